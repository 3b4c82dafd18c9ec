# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Which tables there are, and where a state has their arrays."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Self

from jax_dynemb.config import TableConfig
from jax_dynemb.ops._state import TableState
from jax_dynemb.sharding._hosts import counter_rows, on_host, table_counters
from jax_dynemb.sharding._placement import Placement, check_slots
from jax_dynemb.table._blocks import in_shared_arrays

States = dict[str, TableState]


class Declared:
    """The names and places of tables; static and hashable.

    Attributes:
      tables: configs by table name.
      features: table names by feature name.
      placement: the mesh and how tables lie on it; None on one device.
      share_arrays: whether tables of one width share arrays on one device.
    """

    def _take(
        self,
        configs: tuple[TableConfig, ...],
        placement: Placement | None,
        share_arrays: bool = False,
        before: Iterable[TableConfig] = (),
    ) -> None:
        """Checks the tables and gives each its place.

        Args:
          configs: of the tables.
          placement: on a mesh, or None.
          share_arrays: on one device.
          before: tables in their arrays; those of the same names stay together.
        """
        self.tables = {config.name: config for config in configs}
        self.features = {
            f: config.name for config in configs for f in config.feature_names
        }
        _check_unique("table", [c.name for c in configs])
        _check_unique("feature", [f for c in configs for f in c.feature_names])
        if not configs:
            raise ValueError("Tables needs one TableConfig or more")
        self.placement = placement and placement.with_tables(configs)
        self.share_arrays = share_arrays
        self._placed = self.tables
        if placement is None:
            check_slots(configs)
        if share_arrays:
            placed = in_shared_arrays(configs, tuple(before))
            self._placed = {config.name: config for config in placed}
        self._key = (configs, self.placement, tuple(self._placed.values()))

    def with_tables(self, tables: Iterable[TableConfig]) -> Self:
        """Other tables on the same devices, those of the same names at their places.

        Args:
          tables: one config a table.
        """
        new = object.__new__(type(self))
        before = self._placed.values()
        new._take(tuple(tables), self.placement, self.share_arrays, before)
        return new

    def __eq__(self, other: object) -> bool:
        """Equal configs in equal order."""
        return isinstance(other, Declared) and self._key == other._key

    def __hash__(self) -> int:
        """Of the configs, so that jit takes it as a static argument."""
        return hash(self._key)

    def __repr__(self) -> str:
        """Names and sizes."""
        inner = ", ".join(f"{c.name}: {c.num_slots} x {c.dim}" for c in self._key[0])
        return f"Tables({inner})"

    def config_of(self, feature: str) -> TableConfig:
        """The table that a feature looks up.

        Raises:
          ValueError: no table has the feature.
        """
        name = self.features.get(feature)
        if name is None:
            raise ValueError(_unknown("Feature", feature, self.features))
        return self.tables[name]

    def _table(self, name: str) -> TableConfig:
        if name not in self.tables:
            raise ValueError(_unknown("Table", name, self.tables))
        return self.tables[name]

    def state_name(self, table: str) -> str:
        """Under which name the arrays of a table are in a state.

        That of the table, unless it shares arrays: see ``share_arrays``, and
        ``sharding="table_wise"`` on a mesh.

        Args:
          table: its name.

        Raises:
          ValueError: there is no such table.
        """
        if self.placement is None:
            return self.local_config(table).state_name
        return self.placement.stack_of(self._table(table).name).name

    def local_configs(self, names: Collection[str]) -> list[TableConfig]:
        """The configs of some tables as a call takes them, on one device."""
        return [config for name, config in self._placed.items() if name in names]

    def sharing_arrays(self, name: str) -> tuple[TableConfig, ...]:
        """A table and those that share its arrays, in their order there."""
        arrays = self.state_name(name)
        every = self._placed.values()
        return tuple(c for c in every if c.state_name == arrays)

    def local_config(self, name: str) -> TableConfig:
        """The config of a table as a call takes it, on one device."""
        return self._placed[self._table(name).name]

    def counted(self, state: States, table: str) -> TableState:
        """The counters of one table on the host, as numpy; of all hosts' shards."""
        if self.placement is None:
            own = self.local_config(table)
            arrays = state[own.state_name]
            if own.block is None:
                return arrays
            counters: Any = on_host(arrays.counters)[own.own_counters]
            return dataclasses.replace(arrays, counters=counters)
        stack = self.placement.stack_of(table)
        return table_counters(stack, table, state[stack.name])

    def counter_rows(self, table: str) -> slice:
        """The rows of its arrays' counters that belong to a table."""
        if self.placement is None:
            return self.local_config(table).own_counters
        return counter_rows(self.placement.stack_of(table), table)


def _check_unique(what: str, names: list[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(
            f"{what} names must be unique, but {twice} occur twice; to share a table "
            "between features list them in its feature_names."
        )


def _unknown(what: str, name: str, known: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(str(name), list(known), n=1)
    hint = f"; did you mean '{close[0]}'?" if close else ""
    return f"{what} '{name}' is not known. Known: {sorted(known)}{hint}"
