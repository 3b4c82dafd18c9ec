# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Checks once in a while whether tables shall grow, without a wait."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from jax_dynemb._src.engines import StatsFuture
from jax_dynemb._src.is_whole import is_whole
from jax_dynemb._src.table import Tables

_log = logging.getLogger("jax_dynemb.lifecycle")


_FIRST = 3  # the call from which on it is known how many steps a call stands for


class GrowthWatch:
    """Reads counters every few steps, and says which tables are due to grow.

    A check starts to copy the counters, and the next check decides by them. So a
    decision depends on the number of steps, never on the time that the copy takes:
    all processes of a mesh decide alike. The counters of the first calls say how many
    updates lie between two calls, so that a call every 50 steps may be one.

    Attributes:
      every: steps between two checks.
    """

    def __init__(self, every: int = 100):
        """Checks nothing yet.

        Args:
          every: steps between two checks.

        Raises:
          ValueError: that is less than 1.
        """
        if not is_whole(every) or every < 1:
            raise ValueError(
                f"every must be a number of steps from 1 on, not {every!r}"
            )
        self.every = every
        self._calls, self._next, self._apart = 0, every, every
        self._first: list[StatsFuture] = []
        self._is_check = False
        self._coming: StatsFuture | None = None
        self._before: Mapping[str, Any] | None = None
        self._is_settling = False
        self._at_most: set[str] = set()

    def count(self) -> None:
        """Counts a call; call it after each step, or after equally many."""
        self._calls += 1
        self._is_check = self._calls >= self._next
        if self._is_check:
            self._next = self._calls + self._apart

    def due(self, coll: Tables, state: Callable[[], Any]) -> dict[str, int]:
        """Checks if it is time to; call it after ``count``.

        Args:
          coll: the tables.
          state: returns their state; called where a check is due.

        Returns:
          What ``Tables.growth_due`` returns; empty between checks.

        Raises:
          RuntimeError: a table with ``on_full="error"`` has refused ids.
        """
        if self._calls < _FIRST and self.every > 1:
            self._first.append(coll.stats_async(state()))
        elif self._first:
            self._learn()
        if not self._is_check:
            return {}
        arrived, self._coming = self._coming, coll.stats_async(state())
        if arrived is None:
            return {}
        stats = arrived.result()
        # Ids that were refused before the tables grew say nothing of their new size.
        before = stats if self._is_settling else self._before
        due = coll.growth_due(stats, before)
        self._before, self._is_settling = stats, False
        self._log_tables_that_stay(coll, stats, due)
        return due

    @property
    def is_check(self) -> bool:
        """Whether the step that was counted last was one with a check."""
        return self._is_check

    def _learn(self) -> None:
        """Computes from the counters of two calls how many steps a call stands for."""
        seen = (each.result().items() for each in self._first)
        steps = [max((x for n, x in s if n.endswith("/step")), default=0) for s in seen]
        self._first = []
        self._apart = max(1, self.every // max(1, int(steps[-1] - steps[0])))
        self._next = min(self._next, self._calls + self._apart)

    def restart(self) -> None:
        """Drops numbers that are under way, since the tables have another size now."""
        self._coming, self._is_settling = None, True

    def _log_tables_that_stay(
        self, coll: Tables, stats: Mapping[str, Any], due: Mapping[str, int]
    ) -> None:
        for name, config in coll.engine.catalog.dynamic.items():
            crowded = stats[f"{name}/rows"] > config.grow_at * config.num_slots
            bounded = config.max_capacity is not None and name not in due
            if crowded and bounded and name not in self._at_most:
                self._at_most.add(name)
                _log.warning(
                    "Table '%s' has its largest size, %d rows (max_capacity=%d), and "
                    "%d rows are taken.",
                    name,
                    config.num_slots,
                    config.max_capacity,
                    stats[f"{name}/rows"],
                )
