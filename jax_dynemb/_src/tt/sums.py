# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Sums of rows by bag, and of gradients by row: the same bits in every run."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp

from jax_dynemb._src import ops
from jax_dynemb._src.config import MAX_DIM, TableConfig
from jax_dynemb._src.ops import FeatureGradient, sum_rows
from jax_dynemb._src.spec import TableSpec

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
