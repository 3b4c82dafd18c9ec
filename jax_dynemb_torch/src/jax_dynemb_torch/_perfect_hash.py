# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A perfect hash of int64 keys: each key has a slot of its own.

The arrays are those of jax_dynemb/export/_perfect_hash.py, which writes them into
files; here they are made for tables that come without (dumps, deltas), and read.
"""

from __future__ import annotations

import math

import torch

_MASK = (1 << 64) - 1
_GROUP = 4  # keys, on average
_LOAD = 0.7  # of the slots, at most
_ROUNDS = 10_000  # of one group size, then another number of groups is tried


def find(
    ids: torch.Tensor,
    keys: torch.Tensor,
    seeds: torch.Tensor,
    slots: torch.Tensor,
    unknown: int,
) -> torch.Tensor:
    """Looks up where ids stand.

    Seven array operations without branches, for one id and for a million, on a CPU and
    a GPU, and under ``torch.export``.

    Args:
      ids: int64[n].
      keys: int64[m].
      seeds: int64[groups].
      slots: int32[m or more].
      unknown: the place of an id that is not among the keys.

    Returns:
      int32[n]: places in ``keys``.
    """
    # numel(), because len() of a tensor is a quarter of a microsecond slower.
    seed = seeds.index_select(0, ids.remainder(seeds.numel()))
    slot = seed.bitwise_xor_(ids).remainder_(slots.numel())
    places = slots.index_select(0, slot)
    return places.masked_fill_(keys.index_select(0, places) != ids, unknown)


def perfect_hash(keys: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Builds seeds and slots, see ``find``; about a microsecond a key.

    Args:
      keys: int64[m] on the CPU, distinct, m >= 1.
    """
    groups = _prime(len(keys) // _GROUP)
    while True:
        built = _build(keys, groups, _prime(int(len(keys) / _LOAD)))
        if built is not None:
            return built
        groups = _prime(groups + 2)  # the keys are regular in this one


def _seed(number: int) -> int:
    """The numbers that groups try, in turn: SplitMix64; signed."""
    z = ((number + 1) * 0x9E37_79B9_7F4A_7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58_476D_1CE4_E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D0_49BB_1331_11EB) & _MASK
    z ^= z >> 31
    return z - (1 << 64) if z >> 63 else z


def _prime(least: int) -> int:
    number = max(1, least) | 1
    while any(number % d == 0 for d in range(3, math.isqrt(number) + 1, 2)):
        number += 2
    return number


def _build(
    keys: torch.Tensor, groups: int, num_slots: int
) -> tuple[torch.Tensor, torch.Tensor] | None:
    group = keys % groups
    order = group.argsort(stable=True)
    counts = torch.bincount(group, minlength=groups)
    starts = counts.cumsum(0) - counts
    largest = int(counts.max())
    if largest**2 > 4 * num_slots:
        return None  # no seed will do for so many
    seeds = torch.zeros(groups, dtype=torch.int64)
    slots = torch.full((num_slots,), -1, dtype=torch.int32)
    number = 0
    for size in range(largest, 0, -1):
        waiting = (counts == size).nonzero().squeeze(1)
        places = order[starts[waiting].unsqueeze(1) + torch.arange(size)]
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
    return seeds, slots.clamp_(min=0)


def _place(
    wanted: torch.Tensor, places: torch.Tensor, slots: torch.Tensor
) -> torch.Tensor:
    """Gives slots to the groups (rows) that fit; of two that do, to the first."""
    flat = wanted.view(-1)
    turn = torch.arange(len(flat), dtype=torch.int32)
    free = slots[flat] == -1
    # A free slot holds -2 - (turn of its first claimant) until it is given away.
    slots.scatter_reduce_(0, flat[free], -2 - turn[free], "amax", include_self=False)
    own = free & (slots[flat] == -2 - turn)
    fits = own.view(wanted.shape).all(dim=1)
    slots[flat[free]] = -1
    slots[wanted[fits]] = places[fits].int()
    return fits
