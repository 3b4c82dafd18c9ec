# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Searches the rank up to which rows are removed, for a given number of rows.

A rank has 128 bits: the score of a row, then the hash of its key (core/rule.h). A count
of all rows tells apart the ranks of one window by their next bits. The search fixes
bits from the highest one on, until the limit is known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int32, UInt32

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.config import ScoreStrategy
from jax_dynemb._src.ops import RankCounts

_RANK_BITS = 128
_HASH_BITS = 64
_SATURATES = 2 * _RANK_BITS  # added to the free bits, see kFreeWord

_Bits = UInt32[Array, " 128"]  # of a rank, the lowest bit of its hash first


class Window(NamedTuple):
    """Says which ranks a count tells apart, as ``Window`` of core/rule.h does.

    Attributes:
      prefix: uint32[4], the words of a rank.
      free: how many of its lowest bits ranks may differ in; plus 256 if higher scores
        shall be in the last bin.
    """

    prefix: UInt32[Array, " 4"]
    free: UInt32[Array, ""]


Count = Callable[[Window], RankCounts]


def nothing() -> UInt32[Array, " 4"]:
    """Returns the limit that no row is within."""
    return jnp.zeros(4, jnp.uint32)


def everything() -> UInt32[Array, " 4"]:
    """Returns the limit that all rows are within."""
    return jnp.full(4, 0xFFFFFFFF, jnp.uint32)


def first_window(strategy: ScoreStrategy, clock_bits: jax.Array) -> Window:
    """Chooses the window of the first count, where scores are expected to differ.

    It saturates, so it counts all rows. Where most scores are in its last bin, the
    search goes on at the highest bit in which scores differ.

    Args:
      strategy: of the table's scores.
      clock_bits: int32[], of the table's clock; the same on all shards.
    """
    digit = _ffi.constants()["rule_digit_bits"]
    if strategy is ScoreStrategy.STEP:
        free = clock_bits + 1  # no score of a lookup is in the last bin
    elif strategy is ScoreStrategy.LFU:
        free = 32 + digit  # counts, which stand above 32 bits of the clock
    else:
        free = 63  # a custom score of 62 bits and one (core/rule.h)
    free = jnp.clip(jnp.asarray(free, jnp.uint32), 1, 64)
    return Window(nothing(), free + _HASH_BITS + _SATURATES)


class _Search(NamedTuple):
    """Holds the state of a search.

    Attributes:
      rest: rows to remove among those that the window has.
      limit: the bits that are known, then zeros.
      free: bits that are not known.
      is_first: whether the counts are those of the first window.
      is_found: whether the limit is complete.
      counts: of the window: bins of the wanted kind, and bits.
    """

    rest: UInt32[Array, ""]
    limit: _Bits
    free: Int32[Array, ""]
    is_first: Bool[Array, ""]
    is_found: Bool[Array, ""]
    counts: RankCounts


def limit_of(
    count_rows: Count,
    first: Window,
    counts: RankCounts,
    kind: jax.Array,
    rows: jax.Array,
) -> UInt32[Array, " 4"]:
    """Searches the rank of the last of the rows that rank lowest.

    It ends as soon as a bin holds only rows to remove.

    Args:
      count_rows: counts the ranks of a window, over all shards.
      first: the first window.
      counts: of the first window.
      kind: int32[]: 1 for rows that the rule selects, 0 for the others.
      rows: uint32[], how many; 0: the limit is that of no row.

    Returns:
      The words of the limit.
    """

    def step(search: _Search) -> _Search:
        search = _narrowed(search)

        def count() -> RankCounts:
            prefix, free = _words(search.limit), search.free.astype(jnp.uint32)
            return _of_kind(count_rows(Window(prefix, free)), kind)

        counts = jax.lax.cond(search.is_found, lambda: search.counts, count)
        return search._replace(counts=counts)

    start = _Search(
        rows,
        jnp.zeros(_RANK_BITS, jnp.uint32),
        first.free.astype(jnp.int32) - _SATURATES,
        jnp.bool_(True),
        rows == 0,
        _of_kind(counts, kind),
    )
    end = jax.lax.while_loop(lambda search: ~search.is_found, step, start)
    places = jnp.arange(_RANK_BITS, dtype=jnp.int32)
    filled = jnp.where(places < end.free, jnp.uint32(1), end.limit)
    return jnp.where(rows == 0, nothing(), _words(filled))


def _of_kind(counts: RankCounts, kind: jax.Array) -> RankCounts:
    return counts._replace(bins=counts.bins[kind])


def _narrowed(search: _Search) -> _Search:
    """Fixes the bits that the counts tell."""
    places = jnp.arange(_RANK_BITS, dtype=jnp.int32)
    sums = jnp.cumsum(search.counts.bins, dtype=jnp.uint32)
    digit = jnp.argmax(sums >= search.rest).astype(jnp.int32)
    here = search.counts.bins[digit]
    own_bits = _ffi.constants()["rule_digit_bits"]
    begin = jnp.where(search.free > _HASH_BITS, _HASH_BITS, 0)
    shift = jnp.maximum(search.free - own_bits, begin)
    # The last bin of the first window has scores beyond it: they say nothing of bits.
    is_beyond = search.is_first & (digit == (1 << (search.free - shift)) - 1)
    place_in_digit = jnp.clip(places - shift, 0, 31).astype(jnp.uint32)
    digit_bits = digit.astype(jnp.uint32) >> place_in_digit & 1
    is_digit = (places >= shift) & (places < search.free) & ~is_beyond
    limit = jnp.where(is_digit, digit_bits, search.limit)
    rest = jnp.where(is_beyond, search.rest, search.rest - (sums[digit] - here))
    free = jnp.where(is_beyond, _RANK_BITS, shift)
    is_found = ~is_beyond & ((rest == here) | (free == 0))
    # Bits of scores that all rows agree in need no count.
    one, zero = (
        jnp.pad(bits, (_HASH_BITS, 0)) > 0
        for bits in (search.counts.any_one, search.counts.any_zero)
    )
    differs = jnp.max(jnp.where(one & zero & (places < free), places + 1, 0))
    agreed = jnp.where(
        (free > _HASH_BITS) & ~is_found, jnp.maximum(differs, _HASH_BITS), free
    )
    is_agreed = (places >= agreed) & (places < free)
    limit = jnp.where(is_agreed, one.astype(jnp.uint32), limit)
    return _Search(rest, limit, agreed, jnp.bool_(False), is_found, search.counts)


def _words(rank: _Bits) -> UInt32[Array, " 4"]:
    """Packs bits into words: those of the score first, the low one before the high."""
    values = rank.reshape(4, 32) << jnp.arange(32, dtype=jnp.uint32)[None]
    return jnp.roll(jnp.sum(values, axis=1, dtype=jnp.uint32), 2)
