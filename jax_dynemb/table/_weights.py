# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Gradients with respect to the weights of a pooled lookup."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from jax_dynemb.ops import _lookup
from jax_dynemb.ops._layout import FeatureInput, one_row_each
from jax_dynemb.ops._residual import FeatureResidual, Residual
from jax_dynemb.ops._state import TableState

if TYPE_CHECKING:
    from jax_dynemb.table._tables import Tables

States = dict[str, TableState]


def weight_gradients(
    tables: Tables, states: States, residual: Residual, d_rows: Mapping[str, Any]
) -> tuple[dict[str, jax.Array], States]:
    """See ``Tables.weight_gradients``.

    Of ``rows[b] = scale[b] * sum_i weights[i] * row[i]`` the derivative with respect
    to ``weights[i]`` is ``scale[b] * <d_rows[b], row[i]>``.
    """
    weighted = {n: r for n, r in residual.features.items() if r.layout.weighted}
    if not weighted:
        raise ValueError(
            "no feature of this lookup had weights; pass weights to lookup first"
        )
    rows, states = _row_of_each_id(tables, states, weighted)
    result = {}
    for name, each in weighted.items():
        g = jnp.asarray(d_rows[name], jnp.float32)
        g = g.reshape(each.layout.num_bags, rows[name].shape[-1])
        if each.scale is not None:
            g = g * each.scale[:, None]
        products = jnp.sum(g[_bag_of_each_id(each)] * rows[name], axis=-1)
        live = each.slots != -1
        result[name] = each.layout.shaped_as_given(jnp.where(live, products, 0.0))
    return result, states


def _row_of_each_id(
    tables: Tables, states: States, features: Mapping[str, FeatureResidual]
) -> tuple[dict[str, jax.Array], States]:
    """Reads each id's row; a refused id has the initial row, as in the lookup."""
    names = {each.layout.table for each in features.values()}
    configs = [
        dataclasses.replace(c, eval_initializer=c.initializer, dtype="float32")
        for name, c in tables.tables.items()
        if name in names
    ]
    inputs = [
        (
            one_row_each(r.layout.feature, r.layout.table, r.layout.num_ids),
            FeatureInput(r.ids, None, None),
        )
        for r in features.values()
    ]
    outputs, new = _lookup.find(configs, states, inputs)
    rows = {name: out["rows"] for name, out in zip(features, outputs, strict=True)}
    return rows, states | new


def _bag_of_each_id(residual: FeatureResidual) -> jax.Array:
    layout = residual.layout
    position = jnp.arange(layout.num_ids, dtype=jnp.int32)
    if residual.offsets is None:
        return position // layout.bag_size
    bag = jnp.searchsorted(residual.offsets, position, side="right") - 1
    return jnp.clip(bag, 0, layout.num_bags - 1)
