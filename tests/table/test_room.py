# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A table with ``room_for(n)`` slots holds n ids: by its law, and by its hash."""

import numpy as np
import pytest
from scipy import stats

from jax_dynemb._src.table_sizes import buckets_for, room_for
from oracle import bucket_of

SLOTS = 128
SIZES = [*range(1, 1500), *np.unique(np.geomspace(1500, 2**37, 600).astype(int))]


def test_no_bucket_is_full_but_in_one_table_of_a_billion():
    sizes = np.array(SIZES, np.float64)
    rooms = [room_for(int(n)) for n in SIZES]
    assert [buckets_for(room) * SLOTS for room in rooms] == rooms
    buckets = np.array(rooms) / SLOTS
    chance = buckets * stats.binom.sf(SLOTS, sizes, 1 / buckets)
    assert chance.max() < 1e-9


def last_of_each_room(most):
    """Finds the largest number of ids that gets each room; the chance rises to it."""
    ids, last = 1, []
    while ids <= most:
        room, low, high = room_for(ids), ids, 2 * ids
        while room_for(high) == room:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if room_for(middle) == room else (low, middle)
        last.append(low)
        ids = high
    return np.array(last)


def test_no_number_of_ids_up_to_a_million_loses_one():
    last = last_of_each_room(1_000_000)
    rooms = np.array([room_for(int(n)) for n in last])
    assert last[-1] >= 1_000_000 and np.all(np.diff(rooms) > 0)
    # In a room of its own size, more ids make a full bucket more likely.
    chance = rooms / SLOTS * stats.binom.sf(SLOTS, last, SLOTS / rooms)
    assert chance.max() < 1e-9
    assert rooms[0] == 2 * SLOTS and last[0] >= SLOTS


def test_the_room_is_no_larger_than_that_needs():
    sizes = np.array([n for n in SIZES if n >= 2000])
    buckets = np.array([room_for(int(n)) // SLOTS for n in sizes])
    unit = np.where(buckets > 1024, 64, 8)
    fewer = buckets - unit - np.ceil(0.01 * buckets)
    chance = fewer * stats.binom.sf(SLOTS, sizes, 1 / fewer)
    assert chance.min() > 1e-9
    assert np.all(buckets * SLOTS < 2.7 * sizes)
    usual = (sizes >= 10_000) & (sizes <= 1_000_000)
    assert np.all((buckets * SLOTS)[usual] < 2.11 * sizes[usual])


def test_what_no_table_can_hold_is_left_to_its_config():
    assert room_for(10**400) == 10**400


def fullest_bucket(keys: np.ndarray, buckets: int, hash_seed: int = 0) -> int:
    """Counts the ids of the fullest bucket, by the formula of core/hash.h."""
    first, second = factors(hash_seed)
    keys = keys.astype(np.uint64)
    keys ^= keys >> np.uint64(33)
    keys *= first
    keys ^= keys >> np.uint64(33)
    keys *= second
    keys ^= keys >> np.uint64(33)
    low = (keys & np.uint64(0xFFFFFFFF)) * np.uint64(buckets)
    high = (keys >> np.uint64(32)) * np.uint64(buckets)
    chosen = (high + (low >> np.uint64(32))) >> np.uint64(32)
    return int(np.bincount(chosen.astype(np.int64), minlength=buckets).max())


def factors(hash_seed: int) -> tuple[np.uint64, np.uint64]:
    if not hash_seed:
        return np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
    draw = np.random.default_rng(hash_seed)
    first, second = draw.integers(0, 2**64, 2, np.uint64) | np.uint64(1)
    return first, second


def test_the_formula_is_that_of_the_reference():
    keys = np.random.default_rng(0).integers(0, 2**63, 500)
    counts = np.bincount([bucket_of(int(key), 24) for key in keys], minlength=24)
    assert fullest_bucket(keys, 24) == counts.max()


@pytest.mark.parametrize("kind", ["numbers", "random", "strided"])
def test_ids_of_a_vocabulary_find_a_place_each(kind):
    draw = np.random.default_rng(1)
    sizes = [*range(120, 400, 9), 1000, 4096, 9_999, 30_000, 100_000, 1_000_000]
    for n in sizes:
        for hash_seed in range(12 if n < 100_000 else 3):
            keys = np.arange(n, dtype=np.uint64)
            if kind == "random":
                keys = np.unique(draw.integers(0, 2**63, n, np.uint64))
            elif kind == "strided":
                keys = keys * np.uint64(1 + 2 * draw.integers(0, 2**40))
            assert fullest_bucket(keys, room_for(n) // SLOTS, hash_seed) <= SLOTS
