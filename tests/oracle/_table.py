# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Models one table: per bucket a dict from key to row, and its eviction rule."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ._admission import ReferenceAdmission
from ._hash import bucket_of, hash_rank, table_seed
from ._initializers import initial_rows
from ._optimizers import State, initial_state
from ._rounding import round_stochastically, rounding_bits

BUCKET_CAPACITY = 128
MAX_GIVEN = 2**62 - 1  # a score of a customized table
MAX_FREQUENCY = 2**29  # a count that uses have reached
USE = 256  # what a use counts at the begin of a half-life, where counts decay
PADDING = 2**64 - 1
RESERVED = (2**64 - 2, 2**64 - 3, 2**64 - 4)


@dataclasses.dataclass(eq=False)  # the same row only if the same object
class Row:
    """Holds what a table keeps for one key."""

    values: np.ndarray  # param_dtype[dim]
    state: State
    score: int  # of a customized table the given one
    pinned: bool = False
    used: int = 0  # of a customized table: the clock of the last use
    held_until: int = 0  # the number of a lookup


class ReferenceTable:
    """A table of rows under unsigned 64-bit keys.

    Attributes:
        config: its `TableConfig`.
        seed: the 64-bit seed of its rows.
        buckets: the rows, under their keys, a dict for each bucket.
        clock: moves at every lookup and insert, which write scores.
        step: how many optimizer updates were made.
        counts: inserted, evicted, erased, refused, lost_updates, lookups, ...
        removed: the keys of rows that were removed, in any order within a call.
        departed: of a table above a store, the rows that were evicted and not taken,
            in any order within a call; else None.
    """

    def __init__(self, config: Any, seed: int):
        """Makes an empty table; `seed` is the user's seed."""
        self.config = config
        self.seed = table_seed(seed, config.name)
        self.admission = ReferenceAdmission(config, self.seed)
        self.buckets: list[dict[int, Row]] = [{} for _ in range(config.num_buckets)]
        self.clock = 0
        self.step = 0
        names = ("inserted", "evicted", "refused", "lost_updates", "lookups")
        names += ("nonfinite", "hits", "misses", "not_admitted")
        names += ("erased", "removed_by_rule", "evicted_young")
        self.counts: dict[str, int] = dict.fromkeys(names, 0)
        self.removed: list[int] = []
        self.departed: list[tuple[int, Row]] | None = None
        if config.tier is not None and config.tier.ring_rows > 0:
            self.departed = []
            self.counts |= {"departed": 0, "ring_full": 0, "held": 0}

    def get(self, key: int) -> Row | None:
        """The row of `key`, if it is stored."""
        return self.buckets[self._bucket_of(key)].get(key)

    def items(self) -> Iterator[tuple[int, Row]]:
        """All (key, row)."""
        for bucket in self.buckets:
            yield from bucket.items()

    def initial_values(self, keys: np.ndarray, initializer: Any) -> np.ndarray:
        """float32[n, dim] as rounded to the table's storage."""
        rows = initial_rows(initializer, self.seed, keys, self.config.dim)
        return rows.astype(self.config.param_dtype)

    def stored(self, key: int, values: np.ndarray) -> np.ndarray:
        """Rounds an updated row, float64[dim], to the dtype of the table's storage."""
        dtype = self.config.param_dtype
        if self.config.rounding == "nearest" or dtype == "float32":
            return values.astype(dtype)
        keys = np.array([key], np.uint64)
        bits = rounding_bits(self.seed, keys, self.config.dim, self.step)
        return round_stochastically(values.astype(np.float32), bits[0], dtype)

    def stored_state(self, key: int, name: str, values: np.ndarray) -> np.ndarray:
        """Rounds an updated state, float64[dim], as its array holds it; float32."""
        dtype = dict(self.config.state_dtype)[name]
        if self.config.rounding == "nearest":
            return values.astype("f").astype(dtype).astype("f")
        place = list(self.config.states).index(name)
        keys = np.array([key], np.uint64)
        bits = rounding_bits(
            self.seed, keys, self.config.dim, self.step, array=1 + place
        )
        rounded = round_stochastically(values.astype("f"), bits[0], dtype)
        return rounded.astype("f")

    def score(self, row: Row | None, count: int, user_score: int | None) -> int:
        """Returns the score after `count` more uses now, `row` being None if new."""
        now = self.clock & 0xFFFFFFFF
        strategy = self.config.score_strategy.value
        if strategy == "lfu":
            before = row.score >> 32 if row else 0
            if self.config.lfu_halflife:
                before >>= (
                    self._epoch(self.clock) - self._epoch(row.score) if row else 0
                )
                count *= self.weight()
            return min(before + count, MAX_FREQUENCY) << 32 | now
        if strategy == "customized":
            if user_score is None:
                return row.score if row else 0
            return min(user_score, MAX_GIVEN)
        return self.clock

    def _epoch(self, score: int) -> int:
        """Counts whole half-lives before the last use; clocks are below 2**32."""
        return (score & 0xFFFFFFFF) // self.config.lfu_halflife

    def weight(self) -> int:
        """Weighs a use now: doubled from the begin of a half-life to its end."""
        h = self.config.lfu_halflife
        phase = self.clock % h * USE // h
        return USE + phase - (phase * (USE - phase) * 88 >> 16)

    def rank(self, score: int) -> int:
        """Orders rows: the lowest leaves first."""
        if self.config.lfu_halflife:
            return (score >> 32) << self._epoch(score)
        return score

    def count(self, score: int) -> float:
        """How many uses by the latest lookup a row of an LFU table weighs."""
        if not self.config.lfu_halflife:
            return score >> 32
        halvings = self._epoch(self.clock) - self._epoch(score)
        return (score >> 32) / 2**halvings / self.weight()

    def tick(self, now: int | None = None) -> None:
        """Moves the clock on; its low half is never 0, as packed scores hold it.

        A table that notes times takes `now`, but never moves its clock back.
        """
        timed = self.config.score_strategy.value == "timestamp"
        self.clock = max(self.clock + 1, (now or 0) if timed else 0)
        self.clock += self.clock & 0xFFFFFFFF == 0

    def restore(self, score: int) -> int:
        """A score that was given, as it is kept: never that of an empty slot.

        No score lies in the future: the clock moves up to that of a given one.
        """
        if self.config.score_strategy.value == "customized":
            return min(score, MAX_GIVEN)
        packed = self.config.score_strategy.value == "lfu"
        score = min(max(score, 1), (2**62 if packed else 2**62 - 2**32) - 1)
        self.clock = max(self.clock, score & 0xFFFFFFFF if packed else score)
        return score

    def insert(
        self,
        scores: Mapping[int, int],
        evicts: bool = True,
        stays: int | None = None,
    ) -> set[int]:
        """Stores unseen keys where there is room or where an old row may go.

        Args:
            scores: score of every distinct valid key of the call. Keys that are
                present protect their rows from being replaced.
            evicts: False lets no old row go, whatever the table does.
            stays: rows with this score or a higher one do not go; None: all may.

        Returns:
            The keys that were refused.
        """
        by_bucket: dict[int, list[int]] = {}
        for key in scores:
            by_bucket.setdefault(self._bucket_of(key), []).append(key)
        refused: set[int] = set()
        for number, keys in by_bucket.items():
            leavers = self._leavers(self.buckets[number], scores, stays)
            leavers = leavers if evicts else []
            refused |= self._insert_into(self.buckets[number], keys, scores, leavers)
        return refused

    def _insert_into(
        self,
        bucket: dict[int, Row],
        keys: list[int],
        scores: Mapping[int, int],
        leavers: list[int],
    ) -> set[int]:
        newcomers = sorted(
            (k for k in keys if k not in bucket),
            key=lambda k: hash_rank(k, self.config.hash_seed),
        )
        free = BUCKET_CAPACITY - len(bucket)
        wanted = min(len(leavers), max(0, len(newcomers) - free))
        leavers = leavers[: self._room(wanted)]
        accepted = newcomers[: free + len(leavers)]
        if len(leavers) < wanted:
            self.counts["ring_full"] += len(newcomers) - len(accepted)
        replaced = leavers[: max(0, len(accepted) - free)]
        for key in replaced:
            row = bucket.pop(key)
            self.counts["evicted_young"] += self._is_young(row)
            if self.departed is not None:
                self.departed.append((key, row))
                self.counts["departed"] += 1
        self.removed += replaced
        for key, values in zip(accepted, self._fresh(accepted), strict=True):
            state = initial_state(self.config.optimizer, self.config.dim)
            for name, dtype in self.config.state_dtype:
                state[name] = state[name].astype(dtype).astype("f")
            bucket[key] = Row(values, state, scores[key], used=self.clock)
        self.counts["inserted"] += len(accepted)
        self.counts["evicted"] += len(replaced)
        return set(newcomers[len(accepted) :])

    def _room(self, rows: int) -> int:
        """Counts how many of some rows may leave."""
        if self.departed is None:
            return rows
        return min(rows, self.config.tier.ring_rows - len(self.departed))

    def hold(self, key: int, lookups: int) -> None:
        """Keeps a row, if it is stored, during so many lookups that come."""
        row = self.get(key)
        if row is not None:
            row.held_until = max(row.held_until, self.counts["lookups"] + lookups)
            self.counts["held"] += 1

    def take_departed(self) -> list[tuple[int, Row]]:
        """Returns the rows that were evicted since the latest call."""
        assert self.departed is not None
        taken, self.departed = self.departed, []
        return taken

    def _leavers(
        self, bucket: dict[int, Row], scores: Mapping[int, int], stays: int | None
    ) -> list[int]:
        """Lists keys in order of eviction: lowest score, then smallest key.

        Of custom scores that are equal, the row that was used longest ago goes first.
        """
        if self.config.on_full not in ("evict", "evict_or_error", "compete"):
            return []
        number = self.counts["lookups"] + 1  # of this lookup, or of the one to come
        given = self.config.score_strategy.value == "customized"
        leavers = [
            key
            for key, row in bucket.items()
            if key not in scores and not row.pinned and row.held_until < number
        ]
        if stays is not None:
            limit = self.rank(stays) + given  # the older of equal scores is lower
            leavers = [k for k in leavers if self.rank(bucket[k].score) < limit]

        def order(key: int) -> tuple[int, int, int]:
            row = bucket[key]
            return self.rank(row.score), row.used if given else 0, key

        return sorted(leavers, key=order)

    def _fresh(self, keys: list[int]) -> np.ndarray:
        return self.initial_values(np.array(keys, np.uint64), self.config.initializer)

    def last_use(self, row: Row) -> int:
        """Returns the clock of the lookup that used a row last."""
        if self.config.score_strategy.value == "customized":
            return row.used
        if self.config.score_strategy.value != "lfu":
            return row.score
        return self.clock - (self.clock - row.score) % 2**32

    def _is_young(self, row: Row) -> bool:
        return self.clock - self.last_use(row) <= (self.config.keep_for or 0)

    def erase(self, key: int) -> None:
        """Forgets a key, if it is stored."""
        if self.buckets[self._bucket_of(key)].pop(key, None) is not None:
            self.counts["erased"] += 1
            self.removed.append(key)

    def remove_by_rule(self, keys: set[int]) -> None:
        """Forgets stored keys that a rule selects."""
        for key in keys:
            del self.buckets[self._bucket_of(key)][key]
        self.counts["removed_by_rule"] += len(keys)
        self.removed += keys

    def decay(self, factor: float) -> None:
        """Multiplies the counts of an LFU table, half to even, 1 at least."""
        for _, row in self.items():
            count = round((row.score >> 32) * float(np.float32(factor)))
            row.score = max(1, count) << 32 | row.score & 0xFFFFFFFF

    def grow(self, config: Any) -> None:
        """Puts the same rows into the buckets of a larger table."""
        rows = dict(self.items())
        self.admission.grow(config)
        self.config = config
        self.buckets = [{} for _ in range(config.num_buckets)]
        for key, row in rows.items():
            self.buckets[self._bucket_of(key)][key] = row

    def _bucket_of(self, key: int) -> int:
        return bucket_of(key, len(self.buckets), self.config.hash_seed)

    def fullest_bucket(self) -> int:
        """Counts the rows of the fullest bucket."""
        return max(len(bucket) for bucket in self.buckets)

    def __len__(self) -> int:
        """How many keys are stored."""
        return sum(len(bucket) for bucket in self.buckets)
