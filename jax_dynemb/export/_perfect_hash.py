# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A perfect hash of int64 keys: each key has a slot of its own.

A reader finds the place of a key without a search, with the same few array operations
for one id and for a million (remainders are those of Python, never negative):

    seed = seeds[key % len(seeds)]
    place = slots[(key ^ seed) % len(slots)]

Keys fall into small groups by the first remainder. Groups get their slots one after
the other, the largest first: each takes the first seed of a fixed sequence that leads
its keys to free slots. A slot that no key owns holds place 0, so a reader must compare
``keys[place]`` with the key.
"""

from __future__ import annotations

import numpy as np

_MASK = (1 << 64) - 1
_GROUP = 4  # keys, on average
_LOAD = 0.7  # of the slots, at most
_ROUNDS = 10_000  # of one group size, then another number of groups is tried


def perfect_hash(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Builds the two arrays of the hash.

    Takes about 60 bytes a key while it runs, and a microsecond a key.

    Args:
      keys: int64[n], distinct, n >= 1.

    Returns:
      seeds int64[groups], and slots int32[m]: places in ``keys``.
    """
    groups = _prime(len(keys) // _GROUP)
    while True:
        built = _build(keys, groups, _prime(int(len(keys) / _LOAD)))
        if built is not None:
            return built
        groups = _prime(groups + 2)  # the keys are regular in this one


def _seed(number: int) -> np.int64:
    """The numbers that groups try, in turn: SplitMix64."""
    z = ((number + 1) * 0x9E37_79B9_7F4A_7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58_476D_1CE4_E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D0_49BB_1331_11EB) & _MASK
    return np.uint64(z ^ (z >> 31)).astype(np.int64)


def _prime(least: int) -> int:
    number = max(1, least) | 1
    while any(number % d == 0 for d in range(3, int(number**0.5) + 1, 2)):
        number += 2
    return number


def _build(
    keys: np.ndarray, groups: int, num_slots: int
) -> tuple[np.ndarray, np.ndarray] | None:
    group = keys % groups
    order = np.argsort(group, kind="stable")
    counts = np.bincount(group, minlength=groups)
    starts = np.cumsum(counts) - counts
    if int(counts.max()) ** 2 > 4 * num_slots:
        return None  # no seed will do for so many
    seeds = np.zeros(groups, np.int64)
    slots = np.full(num_slots, -1, np.int32)
    number = 0
    for size in range(int(counts.max()), 0, -1):
        waiting = np.flatnonzero(counts == size)
        places = order[starts[waiting, None] + np.arange(size)]
        for _ in range(_ROUNDS):
            if len(waiting) == 0:
                break
            seed = _seed(number)
            number += 1
            fits = _place((keys[places] ^ seed) % num_slots, places, slots)
            seeds[waiting[fits]] = seed
            waiting, places = waiting[~fits], places[~fits]
        if len(waiting):
            return None
    return seeds, np.maximum(slots, 0)


def _place(wanted: np.ndarray, places: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """Gives slots to the groups (rows) that fit; of two that do, to the first."""
    flat = wanted.reshape(-1)
    turn = np.arange(len(flat), dtype=np.int32)
    free = slots[flat] == -1
    # A free slot holds -2 - (turn of its first claimant) until it is given away.
    slots[flat[free][::-1]] = -2 - turn[free][::-1]
    own = free & (slots[flat] == -2 - turn)
    fits = own.reshape(wanted.shape).all(axis=1)
    slots[flat[free]] = -1
    slots[wanted[fits]] = places[fits]
    return fits
