# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A perfect hash of int64 keys: each key has a slot of its own, which says its place.

The arrays are those of jax_dynemb/export/_perfect_hash.py, which writes them into files
and says how they work; here they are made for tables without, and read.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

_MASK = (1 << 64) - 1
_FILL = 0.7  # of the slots, at most
_SHIFTS = 12  # tried without a multiplication
_MULTIPLIERS = 24  # tried before keys are folded, or get more slots
_LARGE = 64  # keys of a group that fits at once or hardly ever
_MOST_LEFT = 8  # groups, and one of a thousand, that find no free slots
_MOST_STEPS = 10_000  # to make room for them
_MOST_BITS = 32  # the lowest bits of y and its highest must not meet
_LEAST_GROUP_BITS = 3  # eight bytes, so that what follows in a file is aligned
_WHOLE = 98_304  # ids at a time: each call into PyTorch costs some microseconds,
_PIECE = 16_384  # and of more ids, what is between the steps should stay in a cache
_LOWEST_BYTE = 0 if sys.byteorder == "little" else 7  # of an int64


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
        """Tensors on the CPU, for ``low_bytes`` in place of pilots."""
        steps = self._replace(group_mask=self.group_mask | 255)
        kept = torch.tensor(steps[:-2], dtype=torch.int64).unbind()
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
    y = _y(ids, steps)
    top = y.bitwise_right_shift(steps.shift)
    pilot = pilots.index_select(0, top.bitwise_and(steps.group_mask))
    slot = top.bitwise_xor_(y).bitwise_xor_(pilot).bitwise_and_(steps.slot_mask)
    return words.index_select(0, slot).bitwise_xor_(y).clamp_(0, last)


def find_on_cpu(
    ids: torch.Tensor,
    steps: Steps,
    words: torch.Tensor,
    low_bytes: torch.Tensor,
    last: int,
) -> torch.Tensor:
    """The same on a CPU, with fewer operations and many ids piece by piece.

    Args:
      ids: int64[n].
      steps: of the hash, ``as_tensors``.
      words: of the hash.
      low_bytes: what ``low_bytes`` makes of the pilots.
      last: the number behind the last place.
    """
    rest = steps, words, low_bytes, last
    count = ids.shape[0]
    if count <= _WHOLE:
        return _find_piece(ids, *rest, None)
    pieces = -(-count // _PIECE)
    size = -(-count // (8 * pieces)) * 8  # whole lines of a cache
    places = torch.empty_like(ids)
    for begin in range(0, count, size):
        # Slices: Tensor.split takes as long as several operations.
        _find_piece(ids[begin : begin + size], *rest, places[begin : begin + size])
    return places


def low_bytes(pilots: torch.Tensor) -> torch.Tensor:
    """What the lowest byte of ``top`` becomes, if a pilot is to be added by xor.

    Args:
      pilots: of the hash.

    Returns:
      uint8[max(2**group_bits, 256)]: by the lowest bits of ``top``.
    """
    top = torch.arange(max(len(pilots), 256))
    return pilots[top & (len(pilots) - 1)] ^ (top & 255).to(torch.uint8)


def _find_piece(
    ids: torch.Tensor,
    steps: Steps,
    words: torch.Tensor,
    low_bytes: torch.Tensor,
    last: int,
    places: torch.Tensor | None,
) -> torch.Tensor:
    y = _y(ids, steps)
    top = y.bitwise_right_shift(steps.shift)
    group = top.bitwise_and(steps.group_mask)
    # Written there: an xor of numbers and bytes would take three times as long.
    lowest = top.view(torch.uint8)[_LOWEST_BYTE::8]
    torch.index_select(low_bytes, 0, group, out=lowest)
    slot = top.bitwise_xor_(y).bitwise_and_(steps.slot_mask)
    # The groups are no longer needed: memory that is in a cache.
    found = torch.index_select(words, 0, slot, out=group if places is None else places)
    return found.bitwise_xor_(y).clamp_(0, last)


def _y(ids: torch.Tensor, steps: Steps) -> torch.Tensor:
    if steps.folded:
        high = ids.bitwise_right_shift(steps.fold_shift)
        ids = high.bitwise_and_(steps.fold_mask).bitwise_xor_(ids)
    return ids.mul(steps.multiplier) if steps.multiplied else ids


def perfect_hash(keys: torch.Tensor) -> PerfectHash:
    """Builds the hash, one or two microseconds a key.

    The place of ``keys[i]`` is i + 1.

    Args:
      keys: int64[m] on the CPU, distinct, 1 <= m < 2**31.
    """
    least = max(2, int(len(keys) / _FILL).bit_length())
    for bits in range(least, _MOST_BITS + 1):
        for folded in (False, True):
            for multiplier, shift, fewer in _tries(bits, len(keys) / (1 << bits)):
                built = _build(keys, multiplier, bits, shift, fewer, folded)
                if built is not None:
                    return built
    raise ValueError("the keys are not distinct, or too many")


def _tries(bits: int, fill: float) -> Iterator[tuple[int, int, int]]:
    """Multipliers, shifts, and by how many bits the groups are fewer than the slots.

    A multiplier of one will do for hashed ids and for consecutive ones, and needs no
    multiplication. Fuller tables need smaller groups: there are but 256 ways to place
    one.
    """
    highest, fewest = 64 - bits, 4 if fill <= 0.5 else 3 if fill <= 0.55 else 2
    for fewer in (fewest, fewest - 1):
        for shift in range(highest, max(bits, highest - _SHIFTS + 1) - 1, -1):
            yield 1, shift, fewer
    for number in range(_MULTIPLIERS):
        yield _random(number) | 1, highest, fewest


def _random(number: int) -> int:
    """A fixed sequence: SplitMix64; signed."""
    z = ((number + 1) * 0x9E37_79B9_7F4A_7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58_476D_1CE4_E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D0_49BB_1331_11EB) & _MASK
    z ^= z >> 31
    return z - (1 << 64) if z >> 63 else z


def _build(
    keys: torch.Tensor,
    multiplier: int,
    bits: int,
    shift: int,
    fewer: int,
    folded: bool,
) -> PerfectHash | None:
    slots = 1 << bits
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
    left: list[int] = []
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
        left += waiting.tolist()
        if len(left) > (_MOST_LEFT + groups // 1000 if size <= _LARGE else 0):
            return None

    def members_of(each: int) -> torch.Tensor:
        return order[starts[each] : starts[each] + counts[each]]

    if not _make_room(left, members_of, group, first, counts, pilots, owners):
        return None
    return pilots, owners


def _make_room(
    left: list[int],
    members_of: Callable[[int], torch.Tensor],
    group: torch.Tensor,
    first: torch.Tensor,
    counts: torch.Tensor,
    pilots: torch.Tensor,
    owners: torch.Tensor,
) -> bool:
    """Places groups where smaller ones have to leave; False if that goes on and on."""
    costs, every = counts**2, torch.arange(256).unsqueeze(1)
    for _ in range(_MOST_STEPS):
        if not left:
            return True
        one = left.pop()
        members = members_of(one)
        wanted = (first[members] ^ every) & (len(owners) - 1)
        held = owners[wanted]
        pilot = int(torch.where(held < 0, 0, costs[group[held]]).sum(1).argmin())
        losers = held[pilot][held[pilot] >= 0]
        for other in sorted(set(group[losers].tolist())):
            keys = members_of(other)
            owners[(first[keys] ^ int(pilots[other])) & (len(owners) - 1)] = -1
            left.append(other)
        pilots[one] = pilot
        owners[wanted[pilot]] = members
        costs[one] *= 2  # it will rather stay
    return False


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
