# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A perfect hash of int64 keys: each key has a slot of its own, which says its place.

The arrays are those of jax_dynemb/export/_perfect_hash.py, which writes them into files
and says how they work; here they are made for tables without, and read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

_MASK = (1 << 64) - 1
_FILL = 0.7  # of the slots, at most
_SHIFTS = 12  # tried without a multiplication
_MULTIPLIERS = 24  # tried before keys are folded, or get more slots
_LARGE = 64  # keys of a group that fits at once or hardly ever
_MOST_BITS = 32  # the lowest bits of y and its highest must not meet
_LEAST_GROUP_BITS = 3  # eight bytes, so that what follows in a file is aligned
_PIECE = 8192  # ids at a time: what is between the steps stays in the nearest cache


class PerfectHash(NamedTuple):
    """The arrays of a hash.

    Attributes:
      numbers: int64[5]: multiplier, bits, group_bits, shift, and 1 if keys are folded.
      words: int64[2**bits].
      pilots: uint8[2**group_bits].
    """

    numbers: torch.Tensor
    words: torch.Tensor
    pilots: torch.Tensor


class Steps(NamedTuple):
    """The numbers of a hash as ``find`` takes them: integers, or tensors without axes.

    For PyTorch an integer becomes such a tensor in each operation, which takes a CPU
    as long as the operation itself if there is one id.
    """

    multiplier: Any
    shift: Any
    group_mask: Any
    slot_mask: Any
    fold_shift: Any
    fold_mask: Any
    multiplied: Any
    folded: Any

    def as_tensors(self) -> Steps:
        """The same as tensors on the CPU."""
        kept = torch.tensor(self[:-2], dtype=torch.int64).unbind()
        return Steps(*kept, self.multiplied, self.folded)


def steps_of(numbers: torch.Tensor) -> Steps:
    """What follows from the numbers of a hash."""
    multiplier, bits, group_bits, shift, folded = numbers.tolist()
    masks = (1 << group_bits) - 1, (1 << bits) - 1
    fold = 32, 0xFFFF_FFFF
    return Steps(multiplier, shift, *masks, *fold, multiplier != 1, bool(folded))


def find(
    ids: torch.Tensor,
    steps: Steps,
    words: torch.Tensor,
    pilots: torch.Tensor,
    last: int,
) -> torch.Tensor:
    """Looks up where ids stand.

    The same array operations without branches on a CPU and a GPU, and under
    ``torch.export``.

    Args:
      ids: int64[n].
      steps: of the hash.
      words: of the hash.
      pilots: of the hash.
      last: the number behind the last place.

    Returns:
      int64[n]: places; 0 or ``last`` for an id that is not among the keys.
    """
    return _find(ids, steps, words, pilots).clamp_(0, last)


def find_in_pieces(
    ids: torch.Tensor,
    steps: Steps,
    words: torch.Tensor,
    pilots: torch.Tensor,
    last: int,
) -> torch.Tensor:
    """The same for a CPU, where many ids are found piece by piece."""
    if ids.shape[0] <= 2 * _PIECE:
        return find(ids, steps, words, pilots, last)
    places = torch.empty_like(ids)
    for some, there in zip(ids.split(_PIECE), places.split(_PIECE), strict=True):
        torch.clamp(_find(some, steps, words, pilots), 0, last, out=there)
    return places


def _find(
    ids: torch.Tensor, steps: Steps, words: torch.Tensor, pilots: torch.Tensor
) -> torch.Tensor:
    multiplier, shift, group_mask, slot_mask, *fold, multiplied, folded = steps
    if folded:
        high = ids.bitwise_right_shift(fold[0]).bitwise_and_(fold[1])
        ids = high.bitwise_xor_(ids)
    y = ids.mul(multiplier) if multiplied else ids
    top = y.bitwise_right_shift(shift)
    pilot = pilots.index_select(0, top.bitwise_and(group_mask))
    slot = top.bitwise_xor_(y).bitwise_xor_(pilot).bitwise_and_(slot_mask)
    return words.index_select(0, slot).bitwise_xor_(y)


def perfect_hash(keys: torch.Tensor) -> PerfectHash:
    """Builds the hash, about a microsecond a key; the place of ``keys[i]`` is i + 1.

    Args:
      keys: int64[m] on the CPU, distinct, 1 <= m < 2**31.
    """
    least = max(2, int(len(keys) / _FILL).bit_length())
    for bits in range(least, _MOST_BITS + 1):
        for folded in (False, True):
            for multiplier, shift in _tries(bits):
                built = _build(keys, multiplier, bits, shift, folded)
                if built is not None:
                    return built
    raise ValueError("the keys are not distinct, or too many")


def _tries(bits: int) -> Iterator[tuple[int, int]]:
    """Multipliers and shifts.

    One will do for hashed ids and for consecutive ones, and needs no multiplication.
    """
    highest = 64 - bits
    for shift in range(highest, max(bits, highest - _SHIFTS + 1) - 1, -1):
        yield 1, shift
    for number in range(_MULTIPLIERS):
        yield _random(number) | 1, highest


def _random(number: int) -> int:
    """A fixed sequence: SplitMix64; signed."""
    z = ((number + 1) * 0x9E37_79B9_7F4A_7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58_476D_1CE4_E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D0_49BB_1331_11EB) & _MASK
    z ^= z >> 31
    return z - (1 << 64) if z >> 63 else z


def _build(
    keys: torch.Tensor, multiplier: int, bits: int, shift: int, folded: bool
) -> PerfectHash | None:
    slots = 1 << bits
    # Fuller tables need smaller groups: there are but 256 ways to place one.
    fill = len(keys) / slots
    fewer = 4 if fill <= 0.4 else 3 if fill <= 0.55 else 2
    group_bits = max(_LEAST_GROUP_BITS, bits - fewer)
    source = keys ^ ((keys >> 32) & 0xFFFF_FFFF) if folded else keys
    y = source * multiplier
    top = y >> shift
    group, first = top & ((1 << group_bits) - 1), (y ^ top) & (slots - 1)
    both = (group << bits | first).sort()[0]
    if (both[1:] == both[:-1]).any():
        return None  # no pilot can tell these keys apart
    placed = _place_groups(group, first, 1 << group_bits, slots)
    if placed is None:
        return None
    pilots, owners = placed
    words = torch.arange(slots) ^ pilots[0]
    taken = (owners >= 0).nonzero().squeeze(1)
    words[taken] = y[owners[taken]] ^ (owners[taken] + 1)
    numbers = torch.tensor([multiplier, bits, group_bits, shift, folded])
    return PerfectHash(numbers, words, pilots)


def _place_groups(
    group: torch.Tensor, first: torch.Tensor, groups: int, slots: int
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Pilots of groups and the owners of slots; None if some find no place."""
    order = group.argsort(stable=True)
    counts = torch.bincount(group, minlength=groups)
    starts = counts.cumsum(0) - counts
    pilots = torch.zeros(groups, dtype=torch.uint8)
    owners = torch.full((slots,), -1, dtype=torch.int64)
    for size in counts[counts > 0].unique().flip(0).tolist():
        waiting = (counts == size).nonzero().squeeze(1)
        members = order[starts[waiting].unsqueeze(1) + torch.arange(size)]
        for pilot in range(256 if size <= _LARGE else 4):
            wanted = (first[members] ^ pilot) & (slots - 1)
            fits = _place(wanted, members, owners)
            pilots[waiting[fits]] = pilot
            waiting, members = waiting[~fits], members[~fits]
            if len(waiting) == 0:
                break
        else:
            return None
    return pilots, owners


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
