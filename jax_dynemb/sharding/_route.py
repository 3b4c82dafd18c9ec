# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Which distinct ids of a device go to which owner.

``route`` is the seam for a kernel of its own: everything else in this package sees
only the three arrays of a ``Route``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int32, UInt32

from jax_dynemb.sharding._keys import hash_words, is_padding, owner_of


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Route:
    """The distinct ids of all tables of a device, in order of (table, owner, hash).

    Positions count the ids of all tables, one table after the other.

    Attributes:
      unique_of: for each position the number of its distinct id; ``n`` for padding.
      first: for each distinct id the position where it first occurs; ``n`` past the
        last one.
      starts: where each segment begins, and where the last one ends; segment ``table
        * shards + owner``.
    """

    unique_of: Int32[Array, " n"]
    first: Int32[Array, " n"]
    starts: Int32[Array, " segments_and_one"]


def route(ids: UInt32[Array, "n 2"], sizes: Sequence[int], shards: int) -> Route:
    """Finds the distinct ids and their owners.

    Args:
      ids: of all tables, one after the other; -1 is padding.
      sizes: ids of each table.
      shards: how many owners there are.
    """
    n, tables = ids.shape[0], len(sizes)
    segments = tables * shards
    low, high = hash_words(ids)
    table = _table_of_position(sizes)
    segment = table * shards + owner_of(low, high, shards)
    segment = jnp.where(is_padding(ids), segments, segment)
    order = _order(low, high, segment // shards, tables)
    segment, ids = segment[order], ids[order]
    same = (segment[1:] == segment[:-1]) & (ids[1:] == ids[:-1]).all(axis=-1)
    fresh = jnp.concatenate([jnp.ones(min(n, 1), bool), ~same]) & (segment < segments)
    count = jnp.cumsum(fresh, dtype=jnp.int32)
    number = jnp.where(segment < segments, count - 1, n)
    bounds = jnp.searchsorted(
        segment, jnp.arange(segments + 1, dtype=segment.dtype), method="scan_unrolled"
    )
    before = jnp.concatenate([jnp.zeros(1, jnp.int32), count])
    return Route(
        unique_of=jnp.zeros(n, jnp.int32).at[order].set(number, unique_indices=True),
        first=jnp.full(n, n, jnp.int32)
        .at[jnp.where(fresh, number, n)]
        .set(order, mode="drop"),
        starts=before[bounds],
    )


def _table_of_position(sizes: Sequence[int]) -> Int32[Array, " n"]:
    position = jnp.arange(sum(sizes), dtype=jnp.int32)
    ends = np.cumsum(sizes)[:-1]
    table = jnp.zeros(sum(sizes), jnp.int32)
    for end in ends:
        table += (position >= int(end)).astype(jnp.int32)
    return table


def _order(
    low: jax.Array, high: jax.Array, table: jax.Array, tables: int
) -> Int32[Array, " n"]:
    """Positions in order of (table, hash, position); padding is of table ``tables``.

    Two sorts with one key and one value each: for these XLA uses a radix sort on a
    GPU. The second has keys of one byte, so it is one pass.
    """
    position = jnp.arange(low.shape[0], dtype=jnp.int32)
    with jax.enable_x64(True):
        wide = jnp.uint64
        key = (high.astype(wide) << wide(32)) | low.astype(wide)
        _, order = jax.lax.sort((key, position), num_keys=1, is_stable=True)
    by_table = table[order].astype(jnp.uint8 if tables < 256 else jnp.uint16)
    return jax.lax.sort((by_table, order), num_keys=1, is_stable=True)[1]
