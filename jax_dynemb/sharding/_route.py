# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Which distinct ids of a device go to which owner.

``route`` is the seam for a kernel of its own: everything else in this package sees
only the three arrays of a ``Route``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int32, UInt32

from jax_dynemb.sharding._keys import hash_words, is_padding, owner_of


class Part(NamedTuple):
    """The ids of one table.

    Attributes:
      size: how many there are.
      first: the segment of the ids that the table's first owner has.
      owners: shards that hold rows of the table; their segments follow each other.
    """

    size: int
    first: int
    owners: int


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Route:
    """The distinct ids of all tables of a device, in order of (table, owner, hash).

    Positions count the ids of all tables, one table after the other.

    Attributes:
      unique_of: for each position the number of its distinct id; ``n`` for padding.
      first: for each distinct id the position where it first occurs; ``n`` past the
        last one.
      starts: where each segment begins, and where the last one ends; segment ``stack
        * shards + owner``, where a stack is a table or several that share arrays.
    """

    unique_of: Int32[Array, " n"]
    first: Int32[Array, " n"]
    starts: Int32[Array, " segments_and_one"]


def route(ids: UInt32[Array, "n 2"], parts: Sequence[Part], segments: int) -> Route:
    """Finds the distinct ids and their owners.

    Args:
      ids: of all tables, one after the other; -1 is padding.
      parts: of each table, in order of their segments.
      segments: how many there are.
    """
    n = ids.shape[0]
    low, high = hash_words(ids)
    part = _part_of_position(parts)
    segment = _segment(part, low, high, parts)
    live = ~is_padding(ids)
    order = _order(low, high, jnp.where(live, part, len(parts)), len(parts))
    part = part[order]
    segment, ids = jnp.where(live, segment, segments)[order], ids[order]
    same = (part[1:] == part[:-1]) & (ids[1:] == ids[:-1]).all(axis=-1)
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


def _part_of_position(parts: Sequence[Part]) -> Int32[Array, " n"]:
    sizes = [part.size for part in parts]
    position = jnp.arange(sum(sizes), dtype=jnp.int32)
    number = jnp.zeros(sum(sizes), jnp.int32)
    for end in np.cumsum(sizes)[:-1]:
        number += (position >= int(end)).astype(jnp.int32)
    return number


def _segment(
    part: jax.Array, low: jax.Array, high: jax.Array, parts: Sequence[Part]
) -> Int32[Array, " n"]:
    """The segment of each id, as if none were padding."""
    owners = jnp.array([p.owners for p in parts], jnp.int32)[part]
    segment = jnp.array([p.first for p in parts], jnp.int32)[part]
    for count in {p.owners for p in parts} - {1}:
        owner = owner_of(low, high, count)
        segment += jnp.where(owners == count, owner, 0)
    return segment


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
