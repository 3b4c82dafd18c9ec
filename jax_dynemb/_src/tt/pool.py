# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Bags of rows made once for each distinct id; sums have the same bits in every run."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp

from jax_dynemb._src import ops
from jax_dynemb._src.config import MAX_DIM, TableConfig
from jax_dynemb._src.ops import Distinct, FeatureGradient, FeatureLayout, sum_rows
from jax_dynemb._src.spec import TableSpec


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def pool(
    layout: FeatureLayout,
    rows: jax.Array,
    some: Distinct,
    offsets: jax.Array | None,
    weights: jax.Array | None,
    scale: jax.Array | None,
) -> jax.Array:
    """Pools rows, float32[num_bags, dim]; differentiable in rows and weights.

    Rows are float32 or bfloat16 [n, dim], of distinct ids, see ``some``. ``offsets``
    are int32[num_bags + 1] where bags differ in length, ``weights`` float32[num_ids],
    and ``scale`` of a mean float32[num_bags].
    """
    bags = _sums(layout, _per_id(rows, some.inverse, weights), offsets)
    return bags if scale is None else bags * scale[:, None]


def _forward(layout: FeatureLayout, *arrays: Any) -> tuple[jax.Array, Any]:
    return pool(layout, *arrays), arrays


def _backward(layout: FeatureLayout, arrays: Any, d_bags: jax.Array) -> tuple[Any, ...]:
    rows, some, offsets, weights, scale = arrays
    inverse = some.inverse
    gradient = FeatureGradient(
        layout, d_bags, inverse, inverse, offsets, weights, scale
    )
    d_rows = sum_gradients(gradient, rows, (some.ranks, some.positions))
    d_weights = None
    if weights is not None:
        scaled = d_bags if scale is None else d_bags * scale[:, None]
        of_ids = _of_ids(layout, scaled, inverse.shape[0], offsets)
        d_weights = jnp.sum(of_ids * _per_id(rows, inverse, None), axis=1)
    return d_rows, None, None, d_weights, None


pool.defvjp(_forward, _backward)


def _per_id(
    rows: jax.Array, inverse: jax.Array, weights: jax.Array | None
) -> jax.Array:
    own = rows[jnp.maximum(inverse, 0)].astype(jnp.float32)
    found = jnp.where(inverse[:, None] < 0, 0.0, own)
    return found if weights is None else found * weights[:, None]


def _sums(
    layout: FeatureLayout, per_id: jax.Array, offsets: jax.Array | None
) -> jax.Array:
    if offsets is not None:
        return sum_bags(per_id, offsets)
    if layout.bag_size == 1:
        return per_id
    shape = (layout.num_bags, layout.bag_size, per_id.shape[1])
    return per_id.reshape(shape).sum(axis=1)


def _of_ids(
    layout: FeatureLayout, d_bags: jax.Array, n: int, offsets: jax.Array | None
) -> jax.Array:
    """Returns what belongs to each id's bag; zeros for ids of no bag."""
    if offsets is None:
        return jnp.repeat(d_bags, layout.bag_size, axis=0)
    if d_bags.shape[0] == 0:
        return jnp.zeros((n, d_bags.shape[1]), d_bags.dtype)
    position = jnp.arange(n, dtype=jnp.int32)
    bag = jnp.searchsorted(offsets[1:], position, side="right")
    return jnp.take(d_bags, bag, axis=0, mode="fill", fill_value=0)


_NAME = "rows"


def sum_gradients(
    feature: FeatureGradient,
    rows: jax.Array,
    order: tuple[jax.Array, jax.Array],
) -> jax.Array:
    """Sums bags' gradients for each distinct row, in float32; like ``rows``.

    Slots are numbers of distinct rows, ``order`` is as in ``sum_rows``. Rows of no bag
    are undefined.
    """
    blocks = []
    for begin in range(0, feature.gradients.shape[-1], MAX_DIM):
        block = feature.gradients[:, begin : begin + MAX_DIM]
        part = dataclasses.replace(feature, gradients=block)
        spec = _spec(feature.layout.table, block.shape[1])
        blocks += sum_rows([spec], [len(rows)], [part], order=order, dtype=rows.dtype)
    return blocks[0] if len(blocks) == 1 else jnp.concatenate(blocks, axis=1)


def sum_bags(rows: jax.Array, offsets: jax.Array) -> jax.Array:
    """Sums rows[offsets[b] : offsets[b + 1]] of each bag, float32[bags, width]."""
    width = rows.shape[1]
    blocks = [
        ops.sum_bags(_spec(_NAME, block.shape[1]), block, offsets)
        for block in (rows[:, b : b + MAX_DIM] for b in range(0, width, MAX_DIM))
    ]
    return blocks[0] if len(blocks) == 1 else jnp.concatenate(blocks, axis=1)


@functools.cache
def _spec(name: str, width: int) -> TableSpec:
    return TableSpec.of(TableConfig(name, width, 1))
