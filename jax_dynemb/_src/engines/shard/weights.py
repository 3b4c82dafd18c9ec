# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Gradients with respect to the weights of a pooled lookup."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import jax
import jax.numpy as jnp

from jax_dynemb._src.ops import (
    FeatureInput,
    FeatureLayout,
    FeatureResidual,
    one_row_each,
)
from jax_dynemb._src.spec import TableSpec


def weighted_features(
    features: Mapping[str, FeatureResidual],
) -> dict[str, FeatureResidual]:
    """Returns the features that had weights."""
    weighted = {n: r for n, r in features.items() if r.layout.weighted}
    if not weighted:
        raise ValueError(
            "no feature of this lookup had weights; pass weights to lookup first"
        )
    return weighted


def reading(table: TableSpec) -> TableSpec:
    """To read each id's row: a refused id has the initial row, as in the lookup."""
    return dataclasses.replace(
        table, eval_initializer=table.initializer, dtype="float32", pooling=None
    )


def one_row_input(residual: FeatureResidual) -> tuple[FeatureLayout, FeatureInput]:
    """Prepares the ids of a feature for a read of one row each."""
    layout = residual.layout
    each = one_row_each(layout.feature, layout.table, layout.num_ids)
    return each, FeatureInput(residual.ids, None, None)


def of_feature(
    residual: FeatureResidual,
    d_rows: jax.Array,
    rows: jax.Array,
    max_gradient: float | None = None,
) -> jax.Array:
    """Computes the gradient of each weight from its row, in the shape of the ids."""
    g = jnp.asarray(d_rows, jnp.float32)
    g = g.reshape(residual.layout.num_bags, rows.shape[-1])
    if max_gradient is not None:
        g = jnp.clip(g, -max_gradient, max_gradient)
    if residual.scale is not None:
        g = g * residual.scale[:, None]
    products = jnp.sum(g[_bag_of_each_id(residual)] * rows, axis=-1)
    # The row of a padding is zeros, so its product is zero too.
    return residual.layout.shaped_as_given(products)


def _bag_of_each_id(residual: FeatureResidual) -> jax.Array:
    layout = residual.layout
    position = jnp.arange(layout.num_ids, dtype=jnp.int32)
    if residual.offsets is None:
        return position // layout.bag_size
    bag = jnp.searchsorted(residual.offsets, position, side="right") - 1
    return jnp.clip(bag, 0, layout.num_bags - 1)
