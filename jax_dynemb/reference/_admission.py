# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Which unseen keys of a lookup get a row: a coin, or counts in a sketch."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ._hash import GOLDEN_RATIO, MASK64, bucket_of, fmix64, hash_of
from ._philox import philox4x32

ROWS = 4
COIN = 1 << 31  # the last word of a counter; initial rows have 0 there


class ReferenceAdmission:
    """The rule of one table, and its counts.

    Attributes:
        counts: for each bucket four rows of counters, as Python integers.
    """

    def __init__(self, config: Any, seed: int):
        """Starts without counts; `seed` is that of the table's rows."""
        self.config = config
        self.rule = config.admission
        self.seed = seed
        self.counts: list[list[list[int]]] = []
        if self.kind == "frequency":
            self.most = 2**self.rule.counter_bits - 1
            words = self.rule.block_words // ROWS
            self.width = words * 32 // self.rule.counter_bits
            self.counts = [self._empty() for _ in range(config.num_buckets)]

    @property
    def kind(self) -> str:
        """Names the rule: "all", "probability" or "frequency"."""
        return "all" if self.rule is None else self.rule.kernel

    def kept_out(self, unseen: Mapping[int, int], lookup: int) -> set[int]:
        """Finds the keys that get no row in a lookup.

        Args:
            unseen: the keys without a row, and how often each occurs.
            lookup: the number of the lookup, counted from 1.
        """
        if self.kind == "probability":
            return {key for key in unseen if not self._wins(key, lookup)}
        if self.kind == "all":
            return set()
        every = self.rule.halve_every
        if every and lookup % every == 0:
            self.counts = [
                [[n // 2 for n in row] for row in block] for block in self.counts
            ]
        for key, occurrences in unseen.items():
            for row, column in self._places(key):
                row[column] = min(self.most, row[column] + occurrences)
        return {key for key in unseen if self.count(key) < self.rule.threshold}

    def count(self, key: int) -> int:
        """Reads the smallest counter of a key."""
        return min(row[column] for row, column in self._places(key))

    def grow(self, config: Any) -> None:
        """Gives each bucket of the larger table the counts of the one it was in."""
        if self.counts:
            factor = config.num_buckets // self.config.num_buckets
            self.counts = [
                [list(row) for row in block]
                for block in self.counts
                for _ in range(factor)
            ]
        self.config, self.rule = config, config.admission

    def _empty(self) -> list[list[int]]:
        return [[0] * self.width for _ in range(ROWS)]

    def _places(self, key: int) -> list[tuple[list[int], int]]:
        own = hash_of(key, self.config.hash_seed)
        bucket = bucket_of(key, self.config.num_buckets, self.config.hash_seed)
        first, second = fmix64(own), fmix64(own + GOLDEN_RATIO & MASK64)
        random = [first & 0xFFFFFFFF, first >> 32, second & 0xFFFFFFFF, second >> 32]
        columns = [number * self.width >> 32 for number in random]
        return list(zip(self.counts[bucket], columns, strict=True))

    def _wins(self, key: int, lookup: int) -> bool:
        words = [key & 0xFFFFFFFF, key >> 32, lookup & 0xFFFFFFFF, COIN | lookup >> 32]
        counter = np.array(words, np.uint32)
        random = philox4x32(counter, (self.seed & 0xFFFFFFFF, self.seed >> 32))
        return int(random[0]) < round(self.rule.p * 2**32)
