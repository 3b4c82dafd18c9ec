# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A perfect hash of int64 keys: each key has a slot of its own, which says its place.

A reader finds a place without a search, by the same few array operations for one id and
for a million; shifts to the right keep the sign, products lose what is above 64 bits:

    y     = key * multiplier                  # if folded: of key ^ (key >>> 32)
    head  = y >> (64 - bits)
    rest  = y << bits
    group = (y >> (64 - bits - group_bits)) & (2**group_bits - 1)
    place = words[head + offsets[group]] ^ rest

A slot's word holds the rest of its key beside the place, and head follows from slot and
group. So a place between 0 and 2**bits proves that the id is the slot's key, and any
other number that it is not stored. An empty slot has the word 0: place 0 is nobody's.

Keys of one group get their slots together, the largest groups first: each takes the
first offset of a fixed sequence that leads its keys to free slots.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

_MASK = (1 << 64) - 1
_FILL = 0.5  # of the heads, at most
_SPREAD = 1 << 15  # of the offsets, at most
_MULTIPLIERS = 24  # tried before keys are folded, or get more bits
_ROUNDS = 2_000  # for groups of one size


class PerfectHash(NamedTuple):
    """The arrays of a hash.

    Attributes:
      numbers: int64[4]: multiplier, bits, group_bits, and 1 if keys are folded.
      words: int64[slots].
      offsets: int32[2**group_bits].
    """

    numbers: np.ndarray
    words: np.ndarray
    offsets: np.ndarray


def perfect_hash(keys: np.ndarray) -> PerfectHash:
    """Builds the hash; the place of ``keys[i]`` is i + 1.

    Takes about 60 bytes a key while it runs, and a microsecond a key.

    Args:
      keys: int64[n], distinct, n >= 1.
    """
    number, least = 0, max(2, int(len(keys) / _FILL).bit_length())
    for bits in range(least, 64):
        for folded in (False, True):
            for _ in range(_MULTIPLIERS):
                multiplier, number = _random(number) | np.int64(1), number + 1
                built = _build(keys, multiplier, bits, folded)
                if built is not None:
                    return built
    raise ValueError("the keys are not distinct")


def _random(number: int) -> np.int64:
    """A fixed sequence: SplitMix64."""
    z = ((number + 1) * 0x9E37_79B9_7F4A_7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58_476D_1CE4_E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D0_49BB_1331_11EB) & _MASK
    return np.uint64(z ^ (z >> 31)).astype(np.int64)


def _build(
    keys: np.ndarray, multiplier: np.int64, bits: int, folded: bool
) -> PerfectHash | None:
    group_bits = max(1, bits - 4)
    source = keys ^ ((keys >> 32) & np.int64(0xFFFF_FFFF)) if folded else keys
    y = source * multiplier
    upper = np.sort(y >> (64 - bits - group_bits))
    if (upper[1:] == upper[:-1]).any():
        return None  # two keys have the same head and group
    half, spread = 1 << (bits - 1), min(_SPREAD, 1 << max(0, bits - 2))
    group = (y >> (64 - bits - group_bits)) & ((1 << group_bits) - 1)
    heads = (y >> (64 - bits)) + half
    placed = _place_groups(group, heads, 1 << group_bits, (1 << bits) + spread, spread)
    if placed is None:
        return None
    offsets, owners = placed
    words = np.zeros(len(owners), np.int64)
    taken = np.flatnonzero(owners >= 0)
    words[taken] = (y[owners[taken]] << bits) ^ (owners[taken] + np.int64(1))
    numbers = np.array([multiplier, bits, group_bits, folded], np.int64)
    return PerfectHash(numbers, words, (offsets + half).astype(np.int32))


def _place_groups(
    group: np.ndarray, heads: np.ndarray, groups: int, num_slots: int, spread: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """Offsets of groups and the owners of slots; None if some find no place."""
    order = np.argsort(group, kind="stable")
    counts = np.bincount(group, minlength=groups)
    starts = np.cumsum(counts) - counts
    offsets = np.zeros(groups, np.int64)
    owners = np.full(num_slots, -1, np.int64)
    number = 0
    for size in np.unique(counts)[::-1].tolist():
        if size == 0:
            break
        waiting = np.flatnonzero(counts == size)
        members = order[starts[waiting, None] + np.arange(size)]
        for _ in range(_ROUNDS):
            if len(waiting) == 0:
                break
            offset = int(_random(number)) % spread
            number += 1
            fits = _place(heads[members] + offset, members, owners)
            offsets[waiting[fits]] = offset
            waiting, members = waiting[~fits], members[~fits]
        if len(waiting):
            return None
    return offsets, owners


def _place(wanted: np.ndarray, members: np.ndarray, owners: np.ndarray) -> np.ndarray:
    """Gives slots to the groups (rows) that fit; of two that do, to the first."""
    flat = wanted.reshape(-1)
    turn = np.arange(len(flat))
    free = owners[flat] == -1
    # A free slot holds -2 - (turn of its first claimant) until it is given away.
    owners[flat[free][::-1]] = -2 - turn[free][::-1]
    own = free & (owners[flat] == -2 - turn)
    fits = own.reshape(wanted.shape).all(axis=1)
    owners[flat[free]] = -1
    owners[wanted[fits]] = members[fits]
    return fits
