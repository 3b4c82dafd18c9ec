# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Finds the shardings whose slowest device is fastest, within the memory of a device.

Deterministic: equal costs are decided by the order of shardings and of names.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import NoReturn

from jax_dynemb._src.planner.checks import PlannerError, PlannerErrorType
from jax_dynemb._src.planner.layout import Groups, Layout, lay_out
from jax_dynemb._src.planner.options import Options
from jax_dynemb._src.planner.topology import Topology
from jax_dynemb._src.shardings import SHARDINGS, TABLE_WISE, stacks_tables, strategy_of

# The shardings of each strategy.
STRATEGIES = [
    tuple(s for s in SHARDINGS if strategy_of(s) == strategy)
    for strategy in dict.fromkeys(map(strategy_of, SHARDINGS))
]
MOST_TRIALS = 64  # layouts of all tables that the moves may compute
MB = 1e6

Choice = dict[str, str]


class Search:
    """Searches for one plan; ``room`` is a device's bytes for tables and batches."""

    def __init__(self, options: Mapping[str, Options], topology: Topology, room: int):
        self.options = options
        self.topology = topology
        self.room = room
        self._groups = Groups(options)

    def best(self) -> Layout:
        """Finds the best layout; PlannerError if none fits into memory."""
        found: list[tuple[float, int, Choice, Layout]] = []
        subsets = itertools.chain.from_iterable(
            itertools.combinations(STRATEGIES, n) for n in (1, 2, 3)
        )
        for number, subset in enumerate(subsets):
            choice = self._fastest([s for some in subset for s in some])
            layout = self._made_to_fit(choice)
            if layout is not None:
                found.append((layout.slowest, number, choice, layout))
        if not found:
            self._fail()
        _, _, choice, layout = min(found, key=lambda each: each[:2])
        return self._moved(choice, layout)

    def _lay_out(self, choice: Choice) -> Layout:
        return lay_out(choice, self.options, self._groups, self.topology)

    def _seconds(self, name: str, sharding: str) -> float:
        shards = self.topology.world_size
        return self.options[name].alone(sharding).mean_seconds(shards)

    def _bytes(self, name: str, sharding: str) -> float:
        shards = self.topology.world_size
        return self.options[name].alone(sharding).mean_bytes(shards)

    def _fastest(self, among: list[str]) -> Choice:
        """Gives each table its own fastest sharding, of these where it may have one."""
        choice = {}
        for name, options in self.options.items():
            mine = [s for s in options.allowed if s in among] or options.allowed
            alone = [s for s in mine if not stacks_tables(s)] or mine
            choice[name] = min(alone, key=lambda s: self._seconds(name, s))
        for group in self._groups.names:
            self._try_table_wise(choice, group, among)
        return choice

    def _try_table_wise(
        self, choice: Choice, group: list[str], among: list[str]
    ) -> None:
        """Makes a whole group table-wise where that costs less."""
        mine = [n for n in group if not stacks_tables(choice[n])]
        if len(mine) < 2 or TABLE_WISE not in among:
            return
        shards, gain = self.topology.world_size, 0.0
        for some, places in self._groups.cut(mine, shards):
            for name in some:
                option = self.options[name].of(TABLE_WISE, shards // places)
                gain += self._seconds(name, choice[name]) - option.mean_seconds(shards)
        if gain > 0:
            choice.update(dict.fromkeys(mine, TABLE_WISE))

    def _made_to_fit(self, choice: Choice) -> Layout | None:
        """Trades the fewest seconds for bytes until the layout fits; changes choice."""
        layout = self._lay_out(choice)
        if layout.bytes <= self.room:
            return layout
        changes = []
        for name, options in self.options.items():
            old = choice[name]
            for new in options.allowed:
                saved = self._bytes(name, old) - self._bytes(name, new)
                if saved > 0:
                    slower = self._seconds(name, new) - self._seconds(name, old)
                    changes.append((slower / saved, -saved, name, new))
        size = float(layout.bytes)
        for _, _, name, new in sorted(changes):
            if size <= self.room:
                layout = self._lay_out(choice)
                size = layout.bytes  # groups with idle places take more than they say
                if size <= self.room:
                    return layout
            saved = self._bytes(name, choice[name]) - self._bytes(name, new)
            if saved > 0:
                choice[name], size = new, size - saved
        layout = self._lay_out(choice)
        return layout if layout.bytes <= self.room else None

    def _moved(self, choice: Choice, layout: Layout) -> Layout:
        """Improves a layout by the moves of one group or one table at a time."""
        trials = [
            dict.fromkeys(group, TABLE_WISE)
            for group in self._groups.names
            if len(group) > 1
        ]
        trials += [
            {n: s for n in group if (s := self._fastest_alone(n))}
            for group in self._groups.names
            if len(group) > 1
        ]
        order = sorted(self.options, key=lambda n: (-self._seconds(n, choice[n]), n))
        trials += [
            {name: s}
            for name in order
            for s in self.options[name].unstacked
            if s != choice[name]
        ]
        for trial in trials[:MOST_TRIALS]:
            other = choice | trial
            if other == choice:
                continue
            moved = self._lay_out(other)
            if moved.bytes <= self.room and moved.slowest < layout.slowest:
                choice, layout = other, moved
        return layout

    def _fastest_alone(self, name: str) -> str | None:
        alone = self.options[name].unstacked
        return min(alone, key=lambda s: self._seconds(name, s), default=None)

    def _fail(self) -> NoReturn:
        smallest = {
            name: min(options.allowed, key=lambda s: self._bytes(name, s))
            for name, options in self.options.items()
        }
        layout = self._lay_out(smallest)
        sizes = {n: self._bytes(n, s) for n, s in smallest.items()}
        largest = sorted(sizes, key=lambda n: (-sizes[n], n))[:3]
        named = ", ".join(
            f"'{n}' ({sizes[n] / MB:,.1f} MB as {smallest[n]})" for n in largest
        )
        missing = layout.bytes - self.room
        raise PlannerError(
            f"the tables need {layout.bytes:,} bytes of each device, {missing:,} more "
            f"than the {self.room:,} that are left for them. The largest are {named}. "
            "Use more devices, a smaller capacity, param_dtype='bfloat16', an "
            "optimizer with less state, or a smaller storage_reservation.",
            PlannerErrorType.INSUFFICIENT_STORAGE,
        )
