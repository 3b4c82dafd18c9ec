# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A perfect hash of int64 keys: each key has a slot of its own, which says its place.

A reader finds a place without a search, by the same few array operations for one id and
for a million; shifts to the right keep the sign, products lose what is above 64 bits:

    y     = key * multiplier                  # if folded: of key ^ (key >>> 32)
    top   = y >> shift                        # of at least bits
    group = top & (2**group_bits - 1)
    slot  = (y ^ top ^ pilots[group]) & (2**bits - 1)
    place = words[slot] ^ y

A slot's word is y of its key, with the place in the lowest bits. Those bits of y follow
from the others and the slot, so a place between 0 and 2**bits proves that the id is the
slot's key, and any other number that it is not stored. An empty slot holds the number
whose place would be 0.

Keys of one group get their slots together, the largest groups first: each takes the
first pilot that leads its keys to free slots, and the few that find none drive others
out. A pilot is one byte for up to eight keys, since what finds the slots should stay in
the caches beside the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

_MASK = (1 << 64) - 1
_FILL = 0.7  # of the slots, at most
_SHIFTS = 12  # tried without a multiplication
_MULTIPLIERS = 24  # tried before keys are folded, or get more slots
_LARGE = 64  # keys of a group that fits at once or hardly ever
_MOST_LEFT = 8  # groups, and one of a thousand, that find no free slots
_MOST_STEPS = 10_000  # to make room for them
_MOST_BITS = 32  # the lowest bits of y and its highest must not meet
_LEAST_GROUP_BITS = 3  # eight bytes, so that what follows in a file is aligned


class PerfectHash(NamedTuple):
    """The arrays of a hash.

    Attributes:
      numbers: int64[5]: multiplier, bits, group_bits, shift, and 1 if keys are folded.
      words: int64[2**bits].
      pilots: uint8[2**group_bits].
    """

    numbers: np.ndarray
    words: np.ndarray
    pilots: np.ndarray


def perfect_hash(keys: np.ndarray) -> PerfectHash:
    """Builds the hash; the place of ``keys[i]`` is i + 1.

    Takes about 60 bytes a key while it runs, and one or two microseconds a key.

    Args:
      keys: int64[n], distinct, 1 <= n < 2**31.
    """
    least = max(2, int(len(keys) / _FILL).bit_length())
    for bits in range(least, _MOST_BITS + 1):
        for folded in (False, True):
            for multiplier, shift, fewer in _tries(bits, len(keys) / (1 << bits)):
                built = _build(keys, multiplier, bits, shift, fewer, folded)
                if built is not None:
                    return built
    raise ValueError("the keys are not distinct, or too many")


def _tries(bits: int, fill: float) -> Iterator[tuple[np.int64, int, int]]:
    """Multipliers, shifts, and by how many bits the groups are fewer than the slots.

    A multiplier of one will do for hashed ids and for consecutive ones, and needs no
    multiplication. Fuller tables need smaller groups: there are but 256 ways to place
    one.
    """
    highest, fewest = 64 - bits, 4 if fill <= 0.5 else 3 if fill <= 0.55 else 2
    for fewer in (fewest, fewest - 1):
        for shift in range(highest, max(bits, highest - _SHIFTS + 1) - 1, -1):
            yield np.int64(1), shift, fewer
    for number in range(_MULTIPLIERS):
        yield _random(number) | np.int64(1), highest, fewest


def _random(number: int) -> np.int64:
    """A fixed sequence: SplitMix64."""
    z = ((number + 1) * 0x9E37_79B9_7F4A_7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58_476D_1CE4_E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D0_49BB_1331_11EB) & _MASK
    return np.uint64(z ^ (z >> 31)).astype(np.int64)


def _build(
    keys: np.ndarray,
    multiplier: np.int64,
    bits: int,
    shift: int,
    fewer: int,
    folded: bool,
) -> PerfectHash | None:
    slots = 1 << bits
    group_bits = max(_LEAST_GROUP_BITS, bits - fewer)
    source = keys ^ ((keys >> 32) & np.int64(0xFFFF_FFFF)) if folded else keys
    y = source * multiplier
    top = y >> shift
    group, first = top & ((1 << group_bits) - 1), (y ^ top) & (slots - 1)
    both = np.sort(group << bits | first)
    if (both[1:] == both[:-1]).any():
        return None  # no pilot can tell these keys apart
    placed = _place_groups(group, first, 1 << group_bits, slots)
    if placed is None:
        return None
    pilots, owners = placed
    words = np.arange(slots) ^ pilots[0]
    taken = np.flatnonzero(owners >= 0)
    words[taken] = y[owners[taken]] ^ (owners[taken] + 1)
    numbers = np.array([multiplier, bits, group_bits, shift, folded], np.int64)
    return PerfectHash(numbers, words, pilots)


def _place_groups(
    group: np.ndarray, first: np.ndarray, groups: int, slots: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """Pilots of groups and the owners of slots; None if some find no place."""
    order = np.argsort(group, kind="stable")
    counts = np.bincount(group, minlength=groups)
    starts = np.cumsum(counts) - counts
    pilots = np.zeros(groups, np.uint8)
    owners = np.full(slots, -1, np.int64)
    left: list[int] = []
    for size in np.unique(counts[counts > 0])[::-1].tolist():
        waiting = np.flatnonzero(counts == size)
        members = order[starts[waiting, None] + np.arange(size)]
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

    def members_of(each: int) -> np.ndarray:
        return order[starts[each] : starts[each] + counts[each]]

    if not _make_room(left, members_of, group, first, counts, pilots, owners):
        return None
    return pilots, owners


def _make_room(
    left: list[int],
    members_of: Callable[[int], np.ndarray],
    group: np.ndarray,
    first: np.ndarray,
    counts: np.ndarray,
    pilots: np.ndarray,
    owners: np.ndarray,
) -> bool:
    """Places groups where smaller ones have to leave; False if that goes on and on."""
    costs, every = counts**2, np.arange(256)[:, None]
    for _ in range(_MOST_STEPS):
        if not left:
            return True
        one = left.pop()
        members = members_of(one)
        wanted = (first[members] ^ every) & (len(owners) - 1)
        held = owners[wanted]
        pilot = int(np.where(held < 0, 0, costs[group[held]]).sum(axis=1).argmin())
        losers = held[pilot][held[pilot] >= 0]
        for other in sorted(set(group[losers].tolist())):
            keys = members_of(other)
            owners[(first[keys] ^ int(pilots[other])) & (len(owners) - 1)] = -1
            left.append(other)
        pilots[one] = pilot
        owners[wanted[pilot]] = members
        costs[one] *= 2  # it will rather stay
    return False


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
