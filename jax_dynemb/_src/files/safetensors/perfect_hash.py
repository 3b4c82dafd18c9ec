# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A perfect hash of int64 keys: each key has a slot of its own, which says its place.

A reader finds a place without a search, by the same few array operations for one id and
for a million. Shifts to the right keep the sign, products lose what is above 64 bits:

        x     = key                            # kind 1 and 2: key ^ (key >>> 32)
        y     = x * multiplier                 # kind 2: of this product y ^ (y >>> 32)
        top   = y >> shift                     # of at least bits
        group = top & (2**group_bits - 1)
        slot  = (y ^ top ^ pilots[group]) & (2**bits - 1)
        place = words[slot] ^ y

A slot's word is y of its key, with the place in the lowest bits. Those bits of y follow
from the others and the slot. So a place between 0 and 2**bits proves that the id is the
slot's key. Any other number proves that the id is not stored. An empty slot holds the
number whose place would be 0.

Keys of one group get their slots together, the largest groups first. Each group takes
the first pilot that leads its keys to free slots. The few groups without such a pilot
displace others. A pilot is one byte for up to eight keys, since what finds the slots
should stay in the caches beside the rows.

The work is bounded: keys are tried in families of multipliers, and a family ends when
it has looked at each key a few times. The last families (kind 2) mix all bits of a key.
Their multipliers follow from the keys, so that keys can not be chosen to collide under
them. Keys for which they fail too get no hash; readers then search.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

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
# whether all keys can be distinguished counts as an eighth of a look.
_LOOKS, _FEWEST_LOOKS = 16, 1 << 17


class PerfectHash(NamedTuple):
    """The arrays of a hash."""

    # int64[5]: multiplier, bits, group_bits, shift, kind (PLAIN, FOLDED or MIXED).
    numbers: np.ndarray
    words: np.ndarray  # int64[2**bits]
    pilots: np.ndarray  # uint8[2**group_bits]


class _Try(NamedTuple):
    """One way to hash keys; there are 2**fewer slots for each group."""

    kind: int
    multiplier: np.int64
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


def perfect_hash(keys: np.ndarray) -> PerfectHash | None:
    """Builds the hash of distinct int64[n], n < 2**31; key i has the place i + 1.

    Takes about 60 bytes and one to four microseconds a key as a rule, at most twenty.
    Returns None if no multiplier suits the keys, which hardly happens even to keys
    chosen for that purpose. ValueError if a key is there twice.
    """
    ordered = np.sort(keys)
    if (ordered[1:] == ordered[:-1]).any():
        twice = ordered[1:][ordered[1:] == ordered[:-1]][0]
        raise ValueError(
            f"key {twice} is there twice; a perfect hash needs distinct keys: "
            "np.unique(keys)."
        )
    for family in _families(keys):
        work, before = _Work(len(keys)), None
        for each in family:
            y = _y(keys, each)
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


def _same(before: tuple[_Try, np.ndarray], each: _Try, top: np.ndarray) -> bool:
    last, last_top = before
    return last._replace(shift=each.shift) == each and np.array_equal(last_top, top)


def _families(keys: np.ndarray) -> Iterator[Iterator[_Try]]:
    """Tries in the order of what they cost a reader; each family has its own work."""
    bits = max(2, int(len(keys) / _FILL).bit_length())
    fill = len(keys) / (1 << bits)
    fixed = [_random(number) for number in range(_MULTIPLIERS)]
    for kind in (PLAIN, FOLDED):
        yield _shifted(kind, bits, fill)
        yield _multiplied(kind, fixed, bits, fill)
    octets = np.ascontiguousarray(keys, "<i8").data
    digest = hashlib.blake2b(octets, digest_size=8).digest()
    first = int.from_bytes(digest, "little")
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
            yield _Try(kind, np.int64(1), bits, shift, fewer)


def _multiplied(
    kind: int, multipliers: list[np.int64], bits: int, fill: float
) -> Iterator[_Try]:
    for multiplier in multipliers:
        yield _Try(kind, multiplier, bits, 64 - bits, _fewer(fill))


def _fewer(fill: float) -> int:
    """Returns by how many bits the groups are fewer than the slots.

    Fuller tables need smaller groups: there are but 256 ways to place one.
    """
    return 4 if fill <= 0.5 else 3 if fill <= 0.55 else 2


def _random(number: int) -> np.int64:
    """An odd number of a fixed sequence: SplitMix64."""
    z = ((number + 1) * 0x9E37_79B9_7F4A_7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58_476D_1CE4_E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D0_49BB_1331_11EB) & _MASK
    return np.uint64(z ^ (z >> 31) | 1).astype(np.int64)


def _y(keys: np.ndarray, each: _Try) -> np.ndarray:
    y = (keys if each.kind == PLAIN else _fold(keys)) * each.multiplier
    return _fold(y) if each.kind == MIXED else y


def _fold(x: np.ndarray) -> np.ndarray:
    return x ^ ((x >> 32) & np.int64(0xFFFF_FFFF))


def _build(
    y: np.ndarray, top: np.ndarray, each: _Try, work: _Work
) -> PerfectHash | None:
    slots = 1 << each.bits
    group_bits = max(_LEAST_GROUP_BITS, each.bits - each.fewer)
    group, first = top & ((1 << group_bits) - 1), (y ^ top) & (slots - 1)
    both = np.sort(group << each.bits | first)
    if not work.spend(len(y) // 8) or (both[1:] == both[:-1]).any():
        return None  # no pilot can tell these keys apart
    placed = _place_groups(group, first, 1 << group_bits, slots, work)
    if placed is None:
        return None
    pilots, owners = placed
    words = np.arange(slots) ^ pilots[0]
    taken = np.flatnonzero(owners >= 0)
    words[taken] = y[owners[taken]] ^ (owners[taken] + 1)
    numbers = [each.multiplier, each.bits, group_bits, each.shift, each.kind]
    return PerfectHash(np.array(numbers, np.int64), words, pilots)


def _place_groups(
    group: np.ndarray, first: np.ndarray, groups: int, slots: int, work: _Work
) -> tuple[np.ndarray, np.ndarray] | None:
    """Pilots of groups and the owners of slots; None if some find no place."""
    order = np.argsort(group, kind="stable")
    counts = np.bincount(group, minlength=groups)
    starts = np.cumsum(counts) - counts
    pilots = np.zeros(groups, np.uint8)
    owners, taken = np.full(slots, -1, np.int64), np.zeros(slots, bool)
    left: list[int] = []
    for size in np.unique(counts[counts > 0])[::-1].tolist():
        waiting = np.flatnonzero(counts == size)
        members = order[starts[waiting] + np.arange(size)[:, None]]
        wanted = first[members]
        alive = np.arange(len(waiting))
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
            alive = alive[~np.isin(alive, fits, assume_unique=True)]
            if len(alive) == 0:
                break
        left += waiting[alive].tolist()
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
    """Places groups by displacing smaller ones; False if that goes on and on.

    A group of many keys is never displaced. It could only displace what took its place,
    and each of its moves costs as much as all its keys.
    """
    every = np.arange(256)[:, None]
    costs = np.where(counts <= _LARGE, counts**2.0, np.inf)
    for _ in range(_MOST_STEPS + 4 * len(left)):
        if not left:
            return True
        one = left.pop()
        members = members_of(one)
        wanted = (first[members] ^ every) & (len(owners) - 1)
        held = owners[wanted]
        prices = np.where(held < 0, 0.0, costs[group[held]]).sum(axis=1)
        pilot = int(prices.argmin())
        if prices[pilot] == np.inf:
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
    wanted: np.ndarray, alive: np.ndarray, pilot: int, taken: np.ndarray, work: _Work
) -> np.ndarray:
    """Returns the groups (columns of ``wanted``) in ``alive`` with all slots free."""
    if len(wanted) > _LARGE:
        work.spend(len(wanted) * len(alive))
        return alive[~taken[wanted[:, alive] ^ pilot].any(axis=0)]
    for firsts in wanted:
        if len(alive) == 0 or not work.spend(len(alive)):
            break
        alive = alive[~taken[firsts[alive] ^ pilot]]
    return alive


def _first_come(
    fits: np.ndarray, given: np.ndarray, owners: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Leaves out all but the first of the groups (columns) that share a slot."""
    turn = np.arange(len(fits))
    # Of numbers written to one place the last one stays, if both arrays are flat: the
    # order of others is NumPy's choice.
    owners[given.T[::-1].ravel()] = np.repeat(turn[::-1], len(given))
    own = (owners[given] == turn).all(axis=0)
    owners[given] = -1
    return fits[own], given[:, own]
