# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A perfect hash of int64 keys: each key has a slot of its own, which says its place.

The arrays are those of jax_dynemb/export/_perfect_hash.py, which writes them into files
and says how they work; here they are made for tables without, and read.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

_MASK = (1 << 64) - 1
_FILL = 0.5  # of the heads, at most
_SPREAD = 1 << 15  # of the offsets, at most
_MULTIPLIERS = 24  # tried before keys are folded, or get more bits
_ROUNDS = 2_000  # for groups of one size
_PIECE = 8192  # ids at a time: what is between the steps stays in the nearest cache


class PerfectHash(NamedTuple):
    """The arrays of a hash.

    Attributes:
      numbers: int64[4]: multiplier, bits, group_bits, and 1 if keys are folded.
      words: int64[slots].
      offsets: int32[2**group_bits].
    """

    numbers: torch.Tensor
    words: torch.Tensor
    offsets: torch.Tensor


class Steps(NamedTuple):
    """The numbers of a hash as ``find`` takes them: integers, or tensors without axes.

    For PyTorch an integer becomes such a tensor in each operation, which takes a CPU
    as long as the operation itself if there is one id.
    """

    multiplier: Any
    head_shift: Any
    group_shift: Any
    group_mask: Any
    bits: Any
    fold_shift: Any
    folded: Any

    def as_tensors(self) -> Steps:
        """The same as tensors on the CPU."""
        kept = torch.tensor(self[:-1], dtype=torch.int64).unbind()
        return Steps(*kept, self.folded)


def steps_of(numbers: torch.Tensor) -> Steps:
    """What follows from the numbers of a hash."""
    multiplier, bits, group_bits, folded = numbers.tolist()
    shift = 64 - bits
    mask = (1 << group_bits) - 1
    return Steps(multiplier, shift, shift - group_bits, mask, bits, 32, bool(folded))


def find(
    ids: torch.Tensor,
    steps: Steps,
    words: torch.Tensor,
    offsets: torch.Tensor,
    last: int,
) -> torch.Tensor:
    """Looks up where ids stand.

    The same array operations without branches on a CPU and a GPU, and under
    ``torch.export``.

    Args:
      ids: int64[n].
      steps: of the hash.
      words: of the hash.
      offsets: of the hash.
      last: the number behind the last place.

    Returns:
      int64[n]: places; 0 or ``last`` for an id that is not among the keys.
    """
    if torch.compiler.is_compiling() or ids.is_cuda or ids.shape[0] <= 2 * _PIECE:
        return _find(ids, steps, words, offsets).clamp_(0, last)
    places = torch.empty_like(ids)
    for some, there in zip(ids.split(_PIECE), places.split(_PIECE), strict=True):
        torch.clamp(_find(some, steps, words, offsets), 0, last, out=there)
    return places


def _find(
    ids: torch.Tensor, steps: Steps, words: torch.Tensor, offsets: torch.Tensor
) -> torch.Tensor:
    multiplier, head_shift, group_shift, group_mask, bits, fold_shift, folded = steps
    if folded:
        high = ids.bitwise_right_shift(fold_shift).bitwise_and_(0xFFFF_FFFF)
        ids = high.bitwise_xor_(ids)
    y = ids.mul(multiplier)
    group = y.bitwise_right_shift(group_shift).bitwise_and_(group_mask)
    slot = y.bitwise_right_shift(head_shift).add_(offsets.index_select(0, group))
    return words.index_select(0, slot).bitwise_xor_(y.bitwise_left_shift_(bits))


def perfect_hash(keys: torch.Tensor) -> PerfectHash:
    """Builds the hash, about a microsecond a key; the place of ``keys[i]`` is i + 1.

    Args:
      keys: int64[m] on the CPU, distinct, m >= 1.
    """
    number, least = 0, max(2, int(len(keys) / _FILL).bit_length())
    for bits in range(least, 64):
        for folded in (False, True):
            for _ in range(_MULTIPLIERS):
                multiplier, number = _random(number) | 1, number + 1
                built = _build(keys, multiplier, bits, folded)
                if built is not None:
                    return built
    raise ValueError("the keys are not distinct")


def _random(number: int) -> int:
    """A fixed sequence: SplitMix64; signed."""
    z = ((number + 1) * 0x9E37_79B9_7F4A_7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58_476D_1CE4_E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D0_49BB_1331_11EB) & _MASK
    z ^= z >> 31
    return z - (1 << 64) if z >> 63 else z


def _build(
    keys: torch.Tensor, multiplier: int, bits: int, folded: bool
) -> PerfectHash | None:
    group_bits = max(1, bits - 4)
    source = keys ^ ((keys >> 32) & 0xFFFF_FFFF) if folded else keys
    y = source * multiplier
    upper = (y >> (64 - bits - group_bits)).sort()[0]
    if (upper[1:] == upper[:-1]).any():
        return None  # two keys have the same head and group
    half, spread = 1 << (bits - 1), min(_SPREAD, 1 << max(0, bits - 2))
    group = (y >> (64 - bits - group_bits)) & ((1 << group_bits) - 1)
    heads = (y >> (64 - bits)) + half
    placed = _place_groups(group, heads, 1 << group_bits, (1 << bits) + spread, spread)
    if placed is None:
        return None
    offsets, owners = placed
    words = torch.zeros(len(owners), dtype=torch.int64)
    taken = (owners >= 0).nonzero().squeeze(1)
    words[taken] = (y[owners[taken]] << bits) ^ (owners[taken] + 1)
    numbers = torch.tensor([multiplier, bits, group_bits, folded])
    return PerfectHash(numbers, words, (offsets + half).int())


def _place_groups(
    group: torch.Tensor, heads: torch.Tensor, groups: int, num_slots: int, spread: int
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Offsets of groups and the owners of slots; None if some find no place."""
    order = group.argsort(stable=True)
    counts = torch.bincount(group, minlength=groups)
    starts = counts.cumsum(0) - counts
    offsets = torch.zeros(groups, dtype=torch.int64)
    owners = torch.full((num_slots,), -1, dtype=torch.int64)
    number = 0
    for size in counts.unique().flip(0).tolist():
        if size == 0:
            break
        waiting = (counts == size).nonzero().squeeze(1)
        members = order[starts[waiting].unsqueeze(1) + torch.arange(size)]
        for _ in range(_ROUNDS):
            if len(waiting) == 0:
                break
            offset = _random(number) % spread
            number += 1
            fits = _place(heads[members] + offset, members, owners)
            offsets[waiting[fits]] = offset
            waiting, members = waiting[~fits], members[~fits]
        if len(waiting):
            return None
    return offsets, owners


def _place(
    wanted: torch.Tensor, members: torch.Tensor, owners: torch.Tensor
) -> torch.Tensor:
    """Gives slots to the groups (rows) that fit; of two that do, to the first."""
    flat = wanted.view(-1)
    turn = torch.arange(len(flat))
    free = owners[flat] == -1
    # A free slot holds -2 - (turn of its first claimant) until it is given away.
    owners.scatter_reduce_(0, flat[free], -2 - turn[free], "amax", include_self=False)
    own = free & (owners[flat] == -2 - turn)
    fits = own.view(wanted.shape).all(dim=1)
    owners[flat[free]] = -1
    owners[wanted[fits]] = members[fits]
    return fits
