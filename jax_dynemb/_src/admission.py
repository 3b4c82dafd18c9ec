# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Admission rules: which unseen ids of a training lookup get a row.

Give one as ``TableConfig(admission=...)``. An id that is not admitted reads the initial
row that it would get, has no gradient and is not stored. What the rules mean is in
core/admission.h.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal

from jax_dynemb._src.is_whole import is_whole

# Counters of 8 bits saturate at 255, those of 16 bits at 65,535.
_MOST_OF_8_BITS = 200
_MOST_THRESHOLD = 60_000
_ROWS = 4  # of a sketch
_WORD = 4  # bytes
_LEAST_BLOCK = _ROWS * _WORD
# Of a bucket of counted keys, which is one of an index (core/table_ref.h).
_SLOTS = 128
_BUCKET_WORDS = 544
MOST_ROOM = 120  # for each slot of the table: words are numbered in 16 bits
_COUNTS = ("occurrences", "lookups")


class Admission:
    """Decides which unseen ids get a row; make one with the classes below."""

    def kernel_rule(self) -> str:
        """Returns the name of the rule in core/admission.h."""
        return "all"

    def kernel_threshold(self) -> int:
        """Returns the number that core/admission.h compares with."""
        return 0

    def for_buckets(self, num_buckets: int) -> Admission:
        """Returns the rule with its memory laid out for a table of so many buckets."""
        del num_buckets
        return self


@dataclasses.dataclass(frozen=True)
class Probability(Admission):
    """Admits an unseen id with a fixed chance at each lookup; keeps no state.

    Chance is a function of the table's seed, the id and the number of the lookup.
    Duplicates in a lookup share it. After k lookups the chance is 1 - (1 - p)^k.

    Attributes:
      p: the chance, 0 to 1.
    """

    p: float

    def __post_init__(self) -> None:
        """Refuses a chance that is no number from 0 to 1."""
        if not _is_number(self.p) or not 0 <= self.p <= 1:
            raise ValueError(
                f"Probability needs a chance from 0 to 1, not {self.p!r}; "
                "Probability(0.1) admits an id after 10 lookups on average"
            )

    def kernel_rule(self) -> str:
        """Returns the name of the rule in core/admission.h."""
        return "all" if self.kernel_threshold() >= 1 << 32 else "probability"

    def kernel_threshold(self) -> int:
        """Returns the chance in steps of 2^-32."""
        return round(float(self.p) * 2**32)


@dataclasses.dataclass(frozen=True)
class Sketch:
    """Counts ids in a count-min sketch: a fixed number of bytes for any number of ids.

    A count may be too high, where ids share counters, and is never too low. The bytes
    are spread evenly over the buckets of the table. A table that grows has a sketch
    that grows with it, so that each bucket keeps its counters.

    Attributes:
      bytes: of the sketch at the table's capacity; rounded down to 16 for each bucket
        of 128 rows, which is also the least.
      block_bytes: of one bucket. The table sets it, and then ``bytes`` follows from
        it.
    """

    bytes: int
    block_bytes: int | None = None

    def __post_init__(self) -> None:
        """Refuses a size that is no whole number above 0."""
        if not is_whole(self.bytes) or self.bytes < 1:
            raise ValueError(
                f"Sketch needs a number of bytes above 0, not {self.bytes!r}; 4 bytes "
                "for each id that is seen between two halvings keep it accurate"
            )

    @classmethod
    def for_keys(cls, n: int, error: float = 0.01, *, threshold: int = 2) -> Sketch:
        """Makes the sketch that counts some number of ids with few errors.

        Args:
          n: ids without a row that are counted, between two halvings if there are any.
          error: the share of them that may share all of their counters, above 0 and
            below 1. Such an id counts as too frequent.
          threshold: of the rule; counters are wider from 201 on.

        Raises:
          ValueError: a number is out of range.
        """
        if not is_whole(n) or n < 1:
            raise ValueError(f"Sketch.for_keys needs 1 or more ids, not {n!r}")
        if not _is_number(error) or not 0 < error < 1:
            raise ValueError(
                f"Sketch.for_keys needs an error above 0 and below 1, not {error!r}; "
                "0.01 lets one id in a hundred count too much"
            )
        # A counter of a row is shared with the chance 1 - exp(-n / counters).
        counters = -n / math.log1p(-(error ** (1 / _ROWS)))
        return cls(math.ceil(counters * _ROWS * _bits(threshold) / 8))

    def for_buckets(self, num_buckets: int) -> Sketch:
        """Returns the sketch of a table with so many buckets."""
        block = self.block_bytes
        if block is None:
            block = max(1, self.bytes // num_buckets // _LEAST_BLOCK) * _LEAST_BLOCK
        return Sketch(block * num_buckets, block)

    @property
    def block_words(self) -> int | None:
        """Returns the words of 32 bits for each bucket of a table, once known."""
        return None if self.block_bytes is None else self.block_bytes // _WORD


@dataclasses.dataclass(frozen=True)
class Exact:
    """Counts ids by key, exactly as long as all of them have room.

    An id takes 17 bytes until it is admitted. Ids have buckets of 128, as the rows of
    the table have. A full one forgets the id that has been absent for the most lookups.
    So leave a third of the room empty where no id may be forgotten.

    Attributes:
      capacity: ids without a row that have room; rounded up to the slots of the table
        or a multiple of them.
      buckets: for each bucket of the table. The table sets it, and then ``capacity``
        follows from it.
    """

    capacity: int
    buckets: int | None = None

    def __post_init__(self) -> None:
        """Refuses a size that is no whole number above 0."""
        if not is_whole(self.capacity) or self.capacity < 1:
            raise ValueError(
                f"Exact needs room for 1 id or more, not {self.capacity!r}; count the "
                "ids without a row that occur until one of them is admitted"
            )

    def for_buckets(self, num_buckets: int) -> Exact:
        """Returns the counter of a table with so many buckets.

        Raises:
          ValueError: it has more buckets than a counter may have.
        """
        of_each = self.buckets
        if of_each is None:
            of_each = -(-self.capacity // (num_buckets * _SLOTS))
        if of_each > MOST_ROOM or of_each * num_buckets >= 1 << 32:
            raise ValueError(
                f"Exact has room for {MOST_ROOM} ids for each slot of the table at "
                f"most, but {self.capacity} ids were wanted beside "
                f"{num_buckets * _SLOTS} slots; count them in a Sketch"
            )
        return Exact(of_each * num_buckets * _SLOTS, of_each)

    @property
    def block_words(self) -> int | None:
        """Returns the words of 32 bits for each bucket of a table, once known."""
        return None if self.buckets is None else self.buckets * _BUCKET_WORDS


@dataclasses.dataclass(frozen=True)
class Frequency(Admission):
    """Admits an id once it has occurred often enough.

    Occurrences in training lookups count while the id has no row. Those of one lookup
    are all counted before the first is looked at, so their order does not matter.

    Attributes:
      threshold: occurrences from which on an id gets a row, those of the lookup
        included; 0 and 1 admit all.
      counter: what counts, a ``Sketch`` or ``Exact``.
      halve_every: training lookups after which all counts are halved, so that ids
        have to occur within a time; None: never.
      counts: "occurrences", or "lookups": those that had the id, however often. A
        sketch does not know the ids of a lookup, so this needs ``Exact``.
    """

    threshold: int
    counter: Sketch | Exact
    halve_every: int | None = None
    counts: Literal["occurrences", "lookups"] = "occurrences"

    def __post_init__(self) -> None:
        """Refuses other counters, numbers out of range, and sketches of lookups."""
        if not isinstance(self.counter, (Sketch, Exact)):
            raise TypeError(
                f"Frequency needs a counter, not {self.counter!r}: write "
                "Frequency(5, jde.admission.Sketch(bytes=1 << 24))"
            )
        most = 2**31 - 1 if self.counts_keys else _MOST_THRESHOLD
        if not is_whole(self.threshold) or not 0 <= self.threshold <= most:
            raise ValueError(
                f"Frequency needs a threshold from 0 to {most}, not "
                f"{self.threshold!r}; its counters hold no more"
            )
        if self.counts not in _COUNTS:
            raise ValueError(f"counts must be one of {_COUNTS}, not {self.counts!r}")
        if self.counts == "lookups" and not isinstance(self.counter, Exact):
            raise ValueError(
                "counts='lookups' needs to know the ids of a lookup, which a Sketch "
                "does not keep; give Frequency a counter Exact(capacity)"
            )
        every = self.halve_every
        if every is not None and (not is_whole(every) or not 1 <= every < 2**31):
            raise ValueError(
                f"halve_every must be 1 or more lookups, not {every!r}; None never "
                "halves the counts"
            )

    def kernel_rule(self) -> str:
        """Returns the name of the rule in core/admission.h."""
        if not self.counts_keys:
            return "frequency"
        return "all" if self.threshold <= 1 else self.counts

    def kernel_threshold(self) -> int:
        """Returns the threshold in occurrences or lookups."""
        return int(self.threshold)

    def for_buckets(self, num_buckets: int) -> Frequency:
        """Returns the rule with its sketch laid out for a table."""
        return dataclasses.replace(self, counter=self.counter.for_buckets(num_buckets))

    @property
    def counts_keys(self) -> bool:
        """Returns whether the counter is ``Exact``."""
        return isinstance(self.counter, Exact)

    @property
    def counter_bits(self) -> int:
        """Returns the bits of a sketch's counter, enough for the threshold."""
        return _bits(self.threshold)

    @property
    def block_words(self) -> int:
        """Returns the words of 32 bits that each bucket of the table has."""
        words = self.counter.block_words
        if words is None:
            raise ValueError("the rule has no table yet; see for_buckets")
        return words


def _bits(threshold: int) -> int:
    return 8 if threshold <= _MOST_OF_8_BITS else 16


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
