# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Admission rules: which unseen ids of a training lookup get a row.

Give one as ``TableConfig(admission=...)``. An id that is not admitted reads the initial
row that it would get, has no gradient and is not stored. What the rules mean is in
core/admission.h.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np

# Counters of 8 bits saturate at 255, those of 16 bits at 65,535.
_MOST_OF_8_BITS = 200
_MOST_THRESHOLD = 60_000
_ROWS = 4  # of a sketch
_WORD = 4  # bytes
_LEAST_BLOCK = _ROWS * _WORD


class Admission:
    """Base of all rules; make one with the classes below."""

    kernel: ClassVar[str] = "all"

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

    The coin is a function of the table's seed, the id and the number of the lookup.
    Duplicates in a lookup share it. After k lookups the chance is 1 - (1 - p)^k.

    Attributes:
      p: the chance, 0 to 1.
    """

    kernel: ClassVar[str] = "probability"
    p: float

    def __post_init__(self) -> None:
        """Checks the chance.

        Raises:
          ValueError: it is no number from 0 to 1.
        """
        if not _is_number(self.p) or not 0 <= self.p <= 1:
            raise ValueError(
                f"Probability needs a chance from 0 to 1, not {self.p!r}; "
                "Probability(0.1) admits an id after 10 lookups on average"
            )

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
        """Checks the size.

        Raises:
          ValueError: it is no whole number above 0.
        """
        whole = isinstance(self.bytes, (int, np.integer))
        if not whole or isinstance(self.bytes, bool) or self.bytes < 1:
            raise ValueError(
                f"Sketch needs a number of bytes above 0, not {self.bytes!r}; 4 bytes "
                "for each id that is seen between two halvings keep it accurate"
            )

    def for_buckets(self, num_buckets: int) -> Sketch:
        """Returns the sketch of a table with so many buckets."""
        block = self.block_bytes
        if block is None:
            block = max(1, self.bytes // num_buckets // _LEAST_BLOCK) * _LEAST_BLOCK
        return Sketch(block * num_buckets, block)


@dataclasses.dataclass(frozen=True)
class Frequency(Admission):
    """Admits an id once it has occurred often enough.

    Occurrences in training lookups count while the id has no row. Those of one lookup
    are all counted before the first is looked at, so their order does not matter.

    Attributes:
      threshold: occurrences from which on an id gets a row, those of the lookup
        included; 0 and 1 admit all.
      counter: what counts, a ``Sketch``.
      halve_every: training lookups after which all counts are halved, so that ids
        have to occur within a time; None: never.
    """

    kernel: ClassVar[str] = "frequency"
    threshold: int
    counter: Sketch
    halve_every: int | None = None

    def __post_init__(self) -> None:
        """Checks the numbers.

        Raises:
          TypeError: the counter is no ``Sketch``.
          ValueError: a number is out of range.
        """
        if not _is_whole(self.threshold) or not 0 <= self.threshold <= _MOST_THRESHOLD:
            raise ValueError(
                f"Frequency needs a threshold from 0 to {_MOST_THRESHOLD}, not "
                f"{self.threshold!r}; counters of 16 bits hold no more"
            )
        if not isinstance(self.counter, Sketch):
            raise TypeError(
                f"Frequency needs a counter, not {self.counter!r}: write "
                "Frequency(5, jde.admission.Sketch(bytes=1 << 24))"
            )
        every = self.halve_every
        if every is not None and (not _is_whole(every) or not 1 <= every < 2**31):
            raise ValueError(
                f"halve_every must be 1 or more lookups, not {every!r}; None never "
                "halves the counts"
            )

    def kernel_threshold(self) -> int:
        """Returns the threshold in occurrences."""
        return int(self.threshold)

    def for_buckets(self, num_buckets: int) -> Frequency:
        """Returns the rule with its sketch laid out for a table."""
        return dataclasses.replace(self, counter=self.counter.for_buckets(num_buckets))

    @property
    def counter_bits(self) -> int:
        """Returns the bits of a counter: the fewest that hold the threshold."""
        return 8 if self.threshold <= _MOST_OF_8_BITS else 16

    @property
    def block_words(self) -> int:
        """Returns the words of 32 bits that each bucket of the table has."""
        block = self.counter.block_bytes
        if block is None:
            raise ValueError("the rule has no table yet; see for_buckets")
        return block // _WORD


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
