# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Simulated caches, beside ones that are written to be obvious."""

import collections
import itertools

import numpy as np
import pytest

from tiers.hit_rates import Buckets, Furthest, LeastRecent, rate

ROWS = 60


@pytest.fixture(name="batches")
def _batches() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    draws = (rng.zipf(1.3, 25) % ROWS for _ in range(30))
    return [rng.permutation(np.unique(draw)) for draw in draws]


@pytest.mark.parametrize("frames", [1, 7, 30, ROWS])
def test_least_recent_is_an_ordered_dict(batches, frames):
    cache, truth = LeastRecent(ROWS, frames), collections.OrderedDict[int, None]()
    for batch in batches:
        expected = [row in truth for row in batch]
        for row in batch.tolist():
            truth[row] = None
            truth.move_to_end(row)
        while len(truth) > frames:
            truth.popitem(last=False)
        assert cache.step(batch).tolist() == expected


def test_no_choice_hits_more_often_than_the_furthest():
    rng = np.random.default_rng(1)
    for _ in range(20):
        stream = [np.unique(rng.integers(0, 5, 2)) for _ in range(6)]
        cache = Furthest(5, 2, stream)
        hits = sum(int(cache.step(batch).sum()) for batch in stream)
        assert hits == _most_hits(stream, 2)


def _most_hits(stream: list[np.ndarray], frames: int) -> int:
    """Tries every set of rows that a cache may keep after every batch."""
    best = {frozenset[int](): 0}
    for batch in stream:
        rows = frozenset(batch.tolist())
        after: dict[frozenset[int], int] = {}
        for cached, hits in best.items():
            some = cached | rows
            for kept in itertools.combinations(some, min(frames, len(some))):
                now = hits + len(cached & rows)
                after[frozenset(kept)] = max(after.get(frozenset(kept), 0), now)
        best = after
    return max(best.values())


def test_a_bucket_keeps_what_the_batch_uses(batches):
    cache = Buckets(ROWS, 4, 1)
    used, cached = {}, set[int]()
    for time, batch in enumerate(batches):
        found = cache.step(batch)
        assert found.tolist() == [row in cached for row in batch]
        used |= dict.fromkeys(batch.tolist(), time)
        both = cached | set(batch.tolist())
        kept = cached & set(batch.tolist())
        assert len(kept) <= 4
        after = {int(row) for row in np.flatnonzero(cache._cached)}
        assert kept <= after <= both
        assert len(after) == min(4, len(both))
        oldest = min(used[row] for row in after)
        assert all(used[row] <= oldest for row in cached - after)
        cached = after


def test_rates_count_rows_and_ids():
    batches = [np.array([0, 1]), np.array([0, 2]), np.array([0, 1])]
    counts = [np.array([3, 1]), np.array([5, 1]), np.array([2, 2])]
    found = rate(LeastRecent(3, 3), batches, counts, warm=1)
    assert found.rows == 3 / 4
    assert found.ids == 9 / 10
    assert found.misses == 0.5
