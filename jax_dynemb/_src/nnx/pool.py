# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Pooling of per-id rows in JAX, for features with weights.

The fused lookup pools inside its kernel, which autodiff cannot see into. Features
with per-id weights therefore fetch one row per id and are pooled here. So the gradient
of the weights is right whatever made them.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.ids import ids as make_ids
from jax_dynemb._src.jagged import Jagged
from jax_dynemb._src.ops import offsets_of

_ALL_ONES = np.uint32(0xFFFFFFFF)


def pool(
    rows: jax.Array,
    ids: jax.Array | Jagged,
    weights: jax.Array,
    table: TableConfig,
) -> jax.Array:
    """Multiplies per-id rows with their weights and pools them into bags.

    Args:
      rows: [..., L, dim] or [B, dim]; for Jagged ids [capacity, dim].
      ids: the ids of the rows; -1 is padding and has no weight.
      weights: one number an id, [..., L], [B] or [capacity].
      table: the table of the feature; its pooling is "sum", or "mean": the sum
        divided by the number of ids, whatever their weights.

    Returns:
      [..., dim], [B, dim] for Jagged ids, in the dtype of ``rows``.

    Raises:
      ValueError: ``weights`` does not have one number an id.
    """
    if jnp.shape(weights) != rows.shape[:-1]:
        raise ValueError(
            f"table {table.name!r}: weights have shape {jnp.shape(weights)}, but there "
            f"are ids of shape {rows.shape[:-1]}. Give one weight an id."
        )
    valid = _valid(ids, table)
    weights = jnp.where(valid, weights, 0).astype(jnp.float32)
    weighted = rows.astype(jnp.float32) * weights[..., None]
    total, count = _sum(weighted, ids), _sum(valid.astype(jnp.float32)[..., None], ids)
    if table.pooling == "mean":
        total = total / jnp.maximum(count, 1)
    return total.astype(rows.dtype)


def _sum(x: jax.Array, ids: jax.Array | Jagged) -> jax.Array:
    if not isinstance(ids, Jagged):
        return x if x.ndim <= 2 else x.sum(axis=-2)
    offsets, _ = offsets_of(ids.lengths, x.shape[0])
    position = jnp.arange(x.shape[0], dtype=jnp.int32)
    bag = jnp.searchsorted(offsets[1:], position, side="right")
    # Positions behind the last bag get a number that segment_sum drops.
    return jax.ops.segment_sum(x, bag, num_segments=ids.lengths.shape[0])


def _valid(ids: jax.Array | Jagged, table: TableConfig) -> jax.Array:
    """Which ids are not padding; bool, in the shape of the ids."""
    values = ids.values if isinstance(ids, Jagged) else ids
    if isinstance(values, np.ndarray) and values.dtype.itemsize == 8:
        values = make_ids(values)
    # Words, because JAX with x64 off cannot compare 64-bit integers with a constant.
    padding = jax.lax.bitcast_convert_type(values, jnp.uint32) == _ALL_ONES
    if table.key_dtype == "int64":
        padding = padding.all(axis=-1)
    if isinstance(ids, Jagged):
        position = jnp.arange(padding.shape[0], dtype=jnp.int32)
        offsets, _ = offsets_of(ids.lengths, padding.shape[0])
        padding |= position >= offsets[-1]
    return ~padding
