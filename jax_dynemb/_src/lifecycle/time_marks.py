# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Remembers which lookup a table had made at which time of the day."""

from __future__ import annotations

import bisect
import datetime
import math
import time
from collections.abc import Iterable
from typing import Self

import numpy as np

from jax_dynemb._src.is_whole import is_whole
from jax_dynemb._src.kind_of import kind_of

_MOST_HOURS = 24 * 365 * 1000


class TimeMarks:
    """Keeps pairs of a time and the clock of a table, on the host.

    Tables count lookups. A log of marks turns "not used for a day" into a clock for
    ``Rule(unused_since=...)``. The marks are plain numbers: ``to_json`` gives what a
    checkpoint can store beside the tables.

    Attributes:
      limit: marks to remember. Beyond that, marks are the sparser the older they are.

    Example:
      >>> marks = TimeMarks()
      >>> marks.add(clock=1, seconds=0.0)
      >>> marks.add(clock=500, seconds=3600.0)
      >>> marks.before(minutes=30, seconds=3600.0)
      1
    """

    def __init__(self, limit: int = 10_000):
        """Remembers nothing yet.

        Args:
          limit: marks to remember.

        Raises:
          ValueError: that is less than 2.
        """
        if not is_whole(limit) or limit < 2:
            raise ValueError(f"limit must be a whole number from 2 on, not {limit!r}")
        self.limit = limit
        self._seconds: list[float] = []
        self._clocks: list[int] = []

    def __len__(self) -> int:
        """Counts the marks."""
        return len(self._clocks)

    def add(self, clock: int, seconds: float | None = None) -> None:
        """Notes the clock of the next lookup, as ``Tables.get_score`` returns it.

        A clock that runs backwards means that an older checkpoint was restored:
        marks of the lookups that the table no longer knows are dropped.

        Args:
          clock: of the table.
          seconds: since the epoch; now if None.

        Raises:
          TypeError: the clock is no whole number.
          ValueError: the time is before that of the last mark, or no number.
        """
        now = _seconds(seconds)
        if not is_whole(clock) or clock < 0:
            raise TypeError(
                f"clock must be a whole number from 0 on, not {kind_of(clock)}: write "
                "marks.add(coll.get_score(state)[table]), with marks for each table."
            )
        clock = int(clock)
        keep = bisect.bisect_right(self._clocks, clock)
        del self._clocks[keep:], self._seconds[keep:]
        if self._seconds and not now >= self._seconds[-1]:
            raise ValueError(
                f"seconds={now} is before the last mark, {self._seconds[-1]}: add "
                "marks in the order of time."
            )
        self._seconds.append(now)
        self._clocks.append(clock)
        if len(self._clocks) > self.limit:
            self._thin_out()

    def _thin_out(self) -> None:
        """Drops the mark whose neighbours are closest, relative to its age."""
        seconds = np.array(self._seconds)
        gaps = seconds[2:] - seconds[:-2]
        ages = seconds[-1] - seconds[1:-1]
        place = 1 + int(np.argmin(gaps / np.maximum(ages, 1e-9)))
        del self._clocks[place], self._seconds[place]

    def before(
        self,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float | None = None,
    ) -> int:
        """Returns the clock at the latest mark that is at least so old.

        Rows last used before it have been unused for that long at the least, so a
        rule never removes a row too early. Without such a mark it is 0: no row is.

        Args:
          days: of the age.
          hours: of the age, added.
          minutes: of the age, added.
          seconds: the present time since the epoch; now if None.

        Raises:
          ValueError: the age is below 0, or no number.
        """
        now = _seconds(seconds)
        hours_in_all = 24 * days + hours + minutes / 60
        if not 0 <= hours_in_all < _MOST_HOURS:
            raise ValueError(
                f"days={days}, hours={hours}, minutes={minutes} are no age from 0 on: "
                "write marks.before(hours=24)."
            )
        age = datetime.timedelta(days=days, hours=hours, minutes=minutes)
        place = bisect.bisect_right(self._seconds, now - age.total_seconds())
        return self._clocks[place - 1] if place else 0

    def to_json(self) -> list[list[float]]:
        """Lists the marks as [seconds, clock]."""
        pairs = zip(self._seconds, self._clocks, strict=True)
        return [[seconds, clock] for seconds, clock in pairs]

    @classmethod
    def from_json(cls, marks: Iterable[Iterable[float]], limit: int = 10_000) -> Self:
        """Reads what ``to_json`` returned.

        Args:
          marks: pairs of seconds and clock.
          limit: marks to remember.

        Raises:
          TypeError: something else than a list of pairs.
          ValueError: the times are not in order.
        """
        new = cls(limit)
        pairs = list(marks) if isinstance(marks, Iterable) else [None]
        for pair in pairs:
            if not isinstance(pair, (list, tuple)) or len(pair) != 2:
                raise TypeError(
                    "from_json takes the pairs of seconds and clock that to_json "
                    f"returned, json.loads of their text; not {kind_of(marks)}."
                )
            new.add(int(pair[1]), pair[0])
        return new


def _seconds(given: float | None) -> float:
    """Returns a time since the epoch; now if None."""
    now = time.time() if given is None else float(given)
    if not math.isfinite(now):
        raise ValueError(f"seconds={given} is no time: give seconds since the epoch.")
    return now
