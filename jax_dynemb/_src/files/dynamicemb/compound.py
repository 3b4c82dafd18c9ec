# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Compound scores of DynamicEmb, a count and a time for each row, in tables."""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np

from jax_dynemb._src.files.dynamicemb.dump import Dump
from jax_dynemb._src.files.dynamicemb.format import SCORE_COLUMNS

COMPOUND = ("lfu", "timestamp")  # strategies of tables that keep one of both, or both
_MOST_COUNT = 2**30 - 1  # that a row of an LFU table has
_LEAST_TIME = 1 << 40  # nanoseconds; no count comes so far
_MOST_UNITS = 1 << 31  # of an LFU table's clock, half of what tells rows apart


class CompoundScores(NamedTuple):
    """How two columns become one score."""

    strategy: str  # of the table, "lfu" or "timestamp"
    count: int  # which column counts
    time: int  # which one is the time of the last use, in nanoseconds
    times: np.ndarray  # of all rows, ascending, each once

    @classmethod
    def of(cls, dump: Dump, strategy: str) -> Self | None:
        """Finds out which column is which; None if both or none have large numbers.

        The JSON of this library says it. Else a time is the column of large numbers.
        """
        pieces = [dump.scores(rank) for rank in range(dump.ranks)]
        both = np.concatenate([np.empty((0, 2), np.int64), *pieces])
        names = dump.metadata.get(SCORE_COLUMNS)
        if isinstance(names, list) and sorted(map(str, names)) == sorted(COMPOUND):
            time = names.index("timestamp")
        else:
            large = both.min(axis=0, initial=_LEAST_TIME) >= _LEAST_TIME
            if len(both) == 0 or large.all() or not large.any():
                return None
            time = int(np.flatnonzero(large)[0])
        return cls(strategy, 1 - time, time, np.unique(both[:, time]))

    def ours(self, columns: np.ndarray) -> np.ndarray:
        """Scores as the table has them: uint64[n].

        A clock of an LFU table counts lookups. Times that are close together stand for
        as many, as this library writes them; of others only the order is kept.
        """
        times = columns[:, self.time]
        if self.strategy == "timestamp":
            return np.maximum(times, 1).astype(np.uint64)
        counts = np.clip(columns[:, self.count], 1, _MOST_COUNT).astype(np.uint64)
        span = int(self.times[-1]) - int(self.times[0])
        units = times - self.times[0]
        if span >= _MOST_UNITS:
            units = np.searchsorted(self.times, times)
        return counts << np.uint64(32) | (units + 1).astype(np.uint64)
