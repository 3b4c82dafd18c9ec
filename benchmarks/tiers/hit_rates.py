# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Hit rates of caches of rows on a stream of batches, simulated with NumPy.

A batch finds a row if the row is cached before the batch begins. So a row counts once
in a batch, however often its id occurs. Three caches:

- `LeastRecent`: one LRU list over all frames of a table. Rows of one batch are ordered
  by where they stand in it.
- `Furthest`: Belady's cache, which knows the stream and keeps the rows that are used
  next. No cache of that size misses less.
- `Buckets`: frames belong to buckets, as those of a tiered table. Rows of the batch
  stay; of the others the one is evicted that was used least recently.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol

import numpy as np


class Cache(Protocol):
    """A cache of rows, batch after batch."""

    def step(self, rows: np.ndarray) -> np.ndarray:
        """Takes distinct rows, `int64[n]`; returns `bool[n]`, which ones it had."""
        ...


class LeastRecent:
    """One LRU list of `frames` rows."""

    def __init__(self, rows: int, frames: int):
        """Makes an empty cache for rows with numbers below `rows`."""
        self._used = np.full(rows, -1, np.int64)
        self._frames = min(frames, rows)
        self._clock = 0

    def step(self, rows: np.ndarray) -> np.ndarray:
        """Takes distinct rows, `int64[n]`; returns `bool[n]`, which ones it had."""
        place = len(self._used) - self._frames
        oldest = max(0, int(np.partition(self._used, place)[place]))
        found = self._used[rows] >= oldest
        self._used[rows] = self._clock + np.arange(len(rows))
        self._clock += len(rows)
        return found


class Furthest:
    """Belady's cache of `frames` rows, for one stream."""

    def __init__(self, rows: int, frames: int, batches: Sequence[np.ndarray]):
        """Makes an empty cache for a stream of batches of distinct rows."""
        self._frames = frames
        self._cached = np.zeros(rows, bool)
        self._next = np.full(rows, len(batches), np.int32)
        self._later = list[np.ndarray]()  # when the rows of each batch are used next
        upcoming = np.full(rows, len(batches), np.int32)
        for t in range(len(batches) - 1, -1, -1):
            self._later.append(upcoming[batches[t]])
            upcoming[batches[t]] = t

    def step(self, rows: np.ndarray) -> np.ndarray:
        """Takes the next batch, `int64[n]`; returns `bool[n]`, which rows it had."""
        found = self._cached[rows]
        self._cached[rows] = True
        self._next[rows] = self._later.pop()
        (kept,) = np.nonzero(self._cached)
        if len(kept) > self._frames:
            order = np.argpartition(self._next[kept], self._frames)
            self._cached[kept[order[self._frames :]]] = False
        return found


class Buckets:
    """`frames` rows of each of `buckets` buckets; a row belongs to one of them."""

    def __init__(self, rows: int, frames: int, buckets: int):
        """Makes an empty cache for rows with numbers below `rows`."""
        self._bucket_of = _scattered(rows, buckets)
        self._used = np.full(rows, -1, np.int64)
        self._cached = np.zeros(rows, bool)
        self._frames = frames
        self._time = 0

    def step(self, rows: np.ndarray) -> np.ndarray:
        """Takes distinct rows, `int64[n]`; returns `bool[n]`, which ones it had."""
        self._time += 1
        found = self._cached[rows]
        self._used[rows] = (
            2 * self._time + found
        )  # of the batch, cached ones come first
        self._cached[rows] = True
        (some,) = np.nonzero(self._cached)
        order = np.lexsort((-self._used[some], self._bucket_of[some]))
        some = some[order]
        buckets = self._bucket_of[some]
        starts = np.searchsorted(buckets, buckets, side="left")
        self._cached[some[np.arange(len(some)) - starts >= self._frames]] = False
        return found


@dataclasses.dataclass(frozen=True)
class Rate:
    """Counts what a cache found in the part of a stream that counts.

    Attributes:
      rows: share of the distinct rows of a batch that were cached.
      ids: share of the ids of a batch whose rows were cached.
      misses: distinct rows of a batch that were not.
    """

    rows: float
    ids: float
    misses: float


def rate(
    cache: Cache, batches: Sequence[np.ndarray], counts: Sequence[np.ndarray], warm: int
) -> Rate:
    """Runs a cache over a stream.

    Args:
      cache: empty.
      batches: `int64[n]` each, distinct rows.
      counts: `int64[n]` each, how many ids of the batch each row has.
      warm: the first batches, which do not count.
    """
    found_rows = found_ids = rows = ids = 0
    for t, (batch, count) in enumerate(zip(batches, counts, strict=True)):
        found = cache.step(batch)
        if t < warm:
            continue
        found_rows += int(found.sum())
        found_ids += int(count[found].sum())
        rows += len(batch)
        ids += int(count.sum())
    measured = len(batches) - warm
    return Rate(found_rows / rows, found_ids / ids, (rows - found_rows) / measured)


def _scattered(rows: int, buckets: int) -> np.ndarray:
    """A bucket for each row, as good as random: a multiplicative hash."""
    mixed = (np.arange(rows, dtype=np.uint64) + np.uint64(1)) * np.uint64(
        0x9E3779B97F4A7C15
    )
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return ((mixed >> np.uint64(32)) % np.uint64(buckets)).astype(np.int64)
