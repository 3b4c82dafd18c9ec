# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Which unseen keys of a lookup get a row: a coin, counts in a sketch or by key."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ._hash import GOLDEN_RATIO, MASK64, bucket_of, fmix64, hash_of, hash_rank
from ._philox import philox4x32

ROWS = 4
SLOTS = 128
MAX_AGE = 2**30 - 1  # lookups, then numbers begin again
COIN = 1 << 31  # the last word of a counter; initial rows have 0 there


class ReferenceAdmission:
    """The rule of one table, and its counts.

    Attributes:
        counts: for each bucket four rows of counters, as Python integers.
        keys: the counter of a rule that counts by key.
    """

    def __init__(self, config: Any, seed: int):
        """Starts without counts; `seed` is that of the table's rows."""
        self.config = config
        self.rule = config.admission
        self.seed = seed
        self.counts: list[list[list[int]]] = []
        self.keys = ReferenceCounter(config)
        if self.kind == "frequency":
            self.most = 2**self.rule.counter_bits - 1
            words = self.rule.block_words // ROWS
            self.width = words * 32 // self.rule.counter_bits
            self.counts = [self._empty() for _ in range(config.num_buckets)]

    @property
    def kind(self) -> str:
        """Names the rule: "all", "probability", "frequency" or what keys count."""
        return "all" if self.rule is None else self.rule.kernel_rule()

    def kept_out(self, unseen: Mapping[int, int], lookup: int) -> set[int]:
        """Finds the keys, of those without a row, that get none."""
        if self.kind == "probability":
            return {key for key in unseen if not self._wins(key, lookup)}
        if self.kind == "all":
            return set()
        every = self.rule.halve_every
        if every and lookup % every == 0:
            self.counts = [
                [[n // 2 for n in row] for row in block] for block in self.counts
            ]
            self.keys.halve()
        if self.kind != "frequency":
            return set(unseen) - self.keys.admitted(unseen, lookup)
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
        self.keys.grow(config)
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


class ReferenceCounter:
    """How often keys without a row have occurred, while their bucket has room.

    Attributes:
        buckets: for each key the latest lookup that had it, and its count.
    """

    def __init__(self, config: Any):
        """Starts without keys; tables with another rule have no buckets."""
        self.config = config
        self.buckets: list[dict[int, tuple[int, int]]] = [
            {} for _ in range(self._num_buckets())
        ]

    def admitted(self, unseen: Mapping[int, int], lookup: int) -> set[int]:
        """Counts the keys of a lookup, and takes out those at the threshold."""
        rule, now = self.config.admission, lookup % MAX_AGE + 1
        result: set[int] = set()
        for number, keys in self._by_bucket(unseen).items():
            bucket = self.buckets[number]
            for key in self._with_room(bucket, keys):
                more = 1 if rule.counts == "lookups" else unseen[key]
                bucket[key] = now, bucket.get(key, (0, 0))[1] + more
                if bucket[key][1] >= rule.threshold:
                    result.add(key)
            for key in result & set(keys):
                del bucket[key]
        return result

    def halve(self) -> None:
        """Halves all counts."""
        self.buckets = [
            {key: (when, count // 2) for key, (when, count) in bucket.items()}
            for bucket in self.buckets
        ]

    def grow(self, config: Any) -> None:
        """Puts the same keys into the buckets of a larger table."""
        kept = [item for bucket in self.buckets for item in bucket.items()]
        self.config = config
        self.buckets = [{} for _ in range(self._num_buckets())]
        for key, counted in kept:
            self.buckets[self._bucket_of(key)][key] = counted

    def _with_room(
        self, bucket: dict[int, tuple[int, int]], keys: list[int]
    ) -> list[int]:
        """Lists the keys that are counted; makes room by forgetting others."""
        new = [key for key in keys if key not in bucket]
        new.sort(key=lambda key: hash_rank(key, self.config.hash_seed))
        leavers = sorted(
            (key for key in bucket if key not in keys),
            key=lambda key: (*bucket[key], key),
        )
        free = SLOTS - len(bucket)
        stay = new[: free + len(leavers)]
        for key in leavers[: max(0, len(stay) - free)]:
            del bucket[key]
        return [key for key in keys if key in bucket or key in stay]

    def _by_bucket(self, keys: Mapping[int, int]) -> dict[int, list[int]]:
        result: dict[int, list[int]] = {}
        for key in keys:
            result.setdefault(self._bucket_of(key), []).append(key)
        return result

    def _bucket_of(self, key: int) -> int:
        return bucket_of(key, len(self.buckets), self.config.hash_seed)

    def _num_buckets(self) -> int:
        of_each = getattr(getattr(self.config.admission, "counter", None), "buckets", 0)
        return self.config.num_buckets * of_each
