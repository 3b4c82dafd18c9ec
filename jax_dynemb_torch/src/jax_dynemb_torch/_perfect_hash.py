# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A perfect hash of int64 keys: each key has a slot of its own, which says its place.

The arrays are those of jax_dynemb/files/safetensors/_perfect_hash.py, which writes
them into files and says how they work. Here they are made for tables without, and read.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

PLAIN, FOLDED, MIXED = 0, 1, 2  # kinds: what is done beside the product

_MASK = (1 << 64) - 1
_FILL = 0.7  # of the slots, at most
_SHIFTS = 12  # tried without a multiplication
_MULTIPLIERS = 8  # of a family: three of eight suit random keys
_LARGE = 64  # keys of a group that fits at once or hardly ever
_MOST_LEFT = 8  # groups, and one of a thousand, that find no free slots
_MOST_STEPS = 256  # to make room for them; a dozen is usual
_MOST_BITS = 32  # the lowest bits of y and its highest must not meet
_LEAST_GROUP_BITS = 3  # eight bytes, so that what follows in a file is aligned
# Looks at slots that a family may take for each key; random keys take 3 to 6. To see
# whether all keys can be told apart counts as an eighth of a look.
_LOOKS, _FEWEST_LOOKS = 16, 1 << 17
_WHOLE = 98_304  # ids at a time: each call into PyTorch costs some microseconds,
_PIECE = 16_384  # and of more ids, what is between the steps should stay in a cache
_LOWEST_BYTE = 0 if sys.byteorder == "little" else 7  # of an int64


class PerfectHash(NamedTuple):
    """The arrays of a hash.

    Attributes:
      numbers: int64[5]: multiplier, bits, group_bits, shift, and the kind: PLAIN,
        FOLDED or MIXED.
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
    kind: Any

    def as_tensors(self) -> Steps:
        """Tensors on the CPU, for ``low_bytes`` in place of pilots."""
        steps = self._replace(group_mask=self.group_mask | 255)
        kept = torch.tensor(steps[:-2], dtype=torch.int64).unbind()
        return Steps(*kept, self.multiplied, self.kind)


def steps_of(numbers: torch.Tensor) -> Steps:
    """What follows from the numbers of a hash."""
    multiplier, bits, group_bits, shift, kind = numbers.tolist()
    if kind not in (PLAIN, FOLDED, MIXED):
        raise ValueError(
            f"the index is of kind {kind}, which this jax_dynemb_torch does not know. "
            "Upgrade it."
        )
    masks = (1 << group_bits) - 1, (1 << bits) - 1
    fold = 32, 0xFFFF_FFFF
    return Steps(multiplier, shift, *masks, *fold, multiplier != 1, kind)


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
    if steps.kind != PLAIN:
        ids = _folded(ids, steps)
    y = ids.mul(steps.multiplier) if steps.multiplied else ids
    return _folded(y, steps) if steps.kind == MIXED else y


def _folded(x: torch.Tensor, steps: Steps) -> torch.Tensor:
    high = x.bitwise_right_shift(steps.fold_shift)
    return high.bitwise_and_(steps.fold_mask).bitwise_xor_(x)


class _Try(NamedTuple):
    """One way to hash keys; there are 2**fewer slots for each group."""

    kind: int
    multiplier: int
    bits: int
    shift: int
    fewer: int


class _Work:
    """Counts down the looks that a family of tries has left."""

    def __init__(self, keys: int):
        self.left = _LOOKS * keys + _FEWEST_LOOKS

    def spend(self, looks: int) -> bool:
        """Returns whether the work may go on."""
        self.left -= looks
        return self.left >= 0


def perfect_hash(keys: torch.Tensor) -> PerfectHash | None:
    """Builds the hash; the place of ``keys[i]`` is i + 1.

    Takes one to four microseconds a key as a rule, and at most twenty.

    Args:
      keys: int64[n] on the CPU, distinct, 1 <= n < 2**31.

    Returns:
      The hash; None if no multiplier suits the keys, which hardly happens even to keys
      chosen for that purpose.

    Raises:
      ValueError: a key is there twice.
    """
    ordered = keys.sort()[0]
    if (ordered[1:] == ordered[:-1]).any():
        twice = int(ordered[1:][ordered[1:] == ordered[:-1]][0])
        raise ValueError(
            f"key {twice} is there twice; a perfect hash needs distinct keys: "
            "keys.unique()."
        )
    for family in _families(keys):
        work, before = _Work(len(keys)), None
        for each in family:
            y = _product(keys, each)
            top = y >> each.shift
            # Small keys have the same highest bits wherever the shift begins.
            if before is not None and each.multiplier == 1 and _same(before, each, top):
                continue
            before = each, top
            built = _build(y, top, each, work)
            if built is not None:
                return built
            if work.left < 0:
                break
    return None


def _same(before: tuple[_Try, torch.Tensor], each: _Try, top: torch.Tensor) -> bool:
    last, last_top = before
    return last._replace(shift=each.shift) == each and torch.equal(last_top, top)


def _families(keys: torch.Tensor) -> Iterator[Iterator[_Try]]:
    """Tries in the order of what they cost a reader; each family has its own work."""
    bits = max(2, int(len(keys) / _FILL).bit_length())
    fill = len(keys) / (1 << bits)
    fixed = [_random(number) for number in range(_MULTIPLIERS)]
    for kind in (PLAIN, FOLDED):
        yield _shifted(kind, bits, fill)
        yield _multiplied(kind, fixed, bits, fill)
    first = _digest(keys)
    for more in range(2):
        numbers = range(first + more * _MULTIPLIERS, first + (more + 1) * _MULTIPLIERS)
        if bits + more <= _MOST_BITS:
            own = [_random(number) for number in numbers]
            yield _multiplied(MIXED, own, bits + more, fill / (1 << more))


def _shifted(kind: int, bits: int, fill: float) -> Iterator[_Try]:
    """Tries without a multiplication: for hashed ids, and for consecutive ones."""
    highest, fewest = 64 - bits, _fewer(fill)
    for fewer in (fewest, fewest - 1):
        for shift in range(highest, max(bits, highest - _SHIFTS + 1) - 1, -1):
            yield _Try(kind, 1, bits, shift, fewer)


def _multiplied(
    kind: int, multipliers: list[int], bits: int, fill: float
) -> Iterator[_Try]:
    for multiplier in multipliers:
        yield _Try(kind, multiplier, bits, 64 - bits, _fewer(fill))


def _fewer(fill: float) -> int:
    """By how many bits the groups are fewer than the slots.

    Fuller tables need smaller groups: there are but 256 ways to place one.
    """
    return 4 if fill <= 0.5 else 3 if fill <= 0.55 else 2


def _random(number: int) -> int:
    """An odd number of a fixed sequence: SplitMix64; signed."""
    z = ((number + 1) * 0x9E37_79B9_7F4A_7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58_476D_1CE4_E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D0_49BB_1331_11EB) & _MASK
    z = z ^ (z >> 31) | 1
    return z - (1 << 64) if z >> 63 else z


def _digest(keys: torch.Tensor) -> int:
    """BLAKE2b of the bytes of int64[n] as they lie in a file."""
    octets = keys.contiguous().view(torch.uint8)
    if sys.byteorder == "big":
        octets = octets.view(-1, 8).flip(1).contiguous()
    # PyTorch gives tensors no buffer protocol, and need not have NumPy.
    data = (ctypes.c_char * octets.numel()).from_address(octets.data_ptr())
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def _product(keys: torch.Tensor, each: _Try) -> torch.Tensor:
    y = (keys if each.kind == PLAIN else _fold(keys)) * each.multiplier
    return _fold(y) if each.kind == MIXED else y


def _fold(x: torch.Tensor) -> torch.Tensor:
    return x ^ ((x >> 32) & 0xFFFF_FFFF)


def _build(
    y: torch.Tensor, top: torch.Tensor, each: _Try, work: _Work
) -> PerfectHash | None:
    slots = 1 << each.bits
    group_bits = max(_LEAST_GROUP_BITS, each.bits - each.fewer)
    group, first = top & ((1 << group_bits) - 1), (y ^ top) & (slots - 1)
    both = (group << each.bits | first).sort()[0]
    if not work.spend(len(y) // 8) or (both[1:] == both[:-1]).any():
        return None  # no pilot can tell these keys apart
    placed = _place_groups(group, first, 1 << group_bits, slots, work)
    if placed is None:
        return None
    pilots, owners = placed
    words = torch.arange(slots) ^ pilots[0]
    taken = (owners >= 0).nonzero().squeeze(1)
    words[taken] = y[owners[taken]] ^ (owners[taken] + 1)
    numbers = [each.multiplier, each.bits, group_bits, each.shift, each.kind]
    return PerfectHash(torch.tensor(numbers), words, pilots)


def _place_groups(
    group: torch.Tensor, first: torch.Tensor, groups: int, slots: int, work: _Work
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Pilots of groups and the owners of slots; None if some find no place."""
    order = group.argsort(stable=True)
    counts = torch.bincount(group, minlength=groups)
    starts = counts.cumsum(0) - counts
    pilots = torch.zeros(groups, dtype=torch.uint8)
    owners = torch.full((slots,), -1, dtype=torch.int64)
    taken = torch.zeros(slots, dtype=torch.bool)
    left: list[int] = []
    for size in counts[counts > 0].unique().flip(0).tolist():
        waiting = (counts == size).nonzero().squeeze(1)
        members = order[starts[waiting] + torch.arange(size).unsqueeze(1)]
        wanted = first[members]
        alive = torch.arange(len(waiting))
        for pilot in range(min(256 if size <= _LARGE else 4, slots)):
            fits = _fitting(wanted, alive, pilot, taken, work)
            if work.left < 0:
                return None
            if len(fits) == 0:
                continue
            given = wanted[:, fits] ^ pilot
            fits, given = _first_come(fits, given, owners)
            owners[given] = members[:, fits]
            taken[given] = True
            pilots[waiting[fits]] = pilot
            alive = alive[~torch.isin(alive, fits, assume_unique=True)]
            if len(alive) == 0:
                break
        left += waiting[alive].tolist()
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
    """Places groups where smaller ones have to leave; False if that goes on and on.

    A group of many keys never leaves: it could only drive out what took its place, and
    each of its moves costs as much as all its keys.
    """
    every = torch.arange(256).unsqueeze(1)
    costs = torch.where(counts <= _LARGE, counts.double() ** 2, math.inf)
    for _ in range(_MOST_STEPS + 4 * len(left)):
        if not left:
            return True
        one = left.pop()
        members = members_of(one)
        wanted = (first[members] ^ every) & (len(owners) - 1)
        held = owners[wanted]
        prices = torch.where(held < 0, 0.0, costs[group[held]]).sum(1)
        pilot = int(prices.argmin())
        if prices[pilot] == math.inf:
            return False
        losers = held[pilot][held[pilot] >= 0]
        for other in sorted(set(group[losers].tolist())):
            keys = members_of(other)
            owners[(first[keys] ^ int(pilots[other])) & (len(owners) - 1)] = -1
            left.append(other)
        pilots[one] = pilot
        owners[wanted[pilot]] = members
        costs[one] *= 2  # it will rather stay
    return not left


def _fitting(
    wanted: torch.Tensor,
    alive: torch.Tensor,
    pilot: int,
    taken: torch.Tensor,
    work: _Work,
) -> torch.Tensor:
    """Those groups (columns of ``wanted``) among ``alive`` whose slots are all free."""
    if len(wanted) > _LARGE:
        work.spend(len(wanted) * len(alive))
        return alive[~taken[wanted[:, alive] ^ pilot].any(dim=0)]
    for firsts in wanted:
        if len(alive) == 0 or not work.spend(len(alive)):
            break
        alive = alive[~taken[firsts[alive] ^ pilot]]
    return alive


def _first_come(
    fits: torch.Tensor, given: torch.Tensor, owners: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Of groups (columns) that want one slot, all but the first are left out."""
    turn = torch.arange(len(fits))
    each = turn.expand_as(given).reshape(-1)
    owners.scatter_reduce_(0, given.reshape(-1), each, "amin", include_self=False)
    own = (owners[given] == turn).all(dim=0)
    owners[given] = -1
    return fits[own], given[:, own]
