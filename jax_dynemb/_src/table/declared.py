# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Names the tables of a collection and their sizes, for all calls of ``Tables``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.engines import LookupEngine
from jax_dynemb._src.engines.hash import HashEngine, Placement
from jax_dynemb._src.shown import html_table
from jax_dynemb._src.table import memory as _memory
from jax_dynemb._src.table.by_kind import hash_of
from jax_dynemb._src.tt import TTConfig


class Declared:
    """Describes tables and where they lie; hashable, without arrays.

    Attributes:
      engine: holds the tables and runs the operations.
    """

    engine: LookupEngine

    @property
    def tables(self) -> dict[str, Any]:
        """Returns the configs by table name."""
        return self.engine.catalog.tables

    @property
    def features(self) -> dict[str, str]:
        """Returns the table names by feature name."""
        return self.engine.catalog.features

    def config_of(self, feature: str) -> Any:
        """Finds the table that a feature looks up.

        Raises:
          ValueError: no table has the feature.
        """
        return self.engine.catalog.config_of(feature)

    def state_name(self, table: str) -> str:
        """Names the arrays of a state that hold a table.

        It is the name of the table, unless it shares arrays: see ``share_arrays``, and
        ``sharding="table_wise"`` on a mesh.

        Args:
          table: its name.

        Raises:
          ValueError: there is no such table.
        """
        return self.engine.state_name(table)

    def __eq__(self, other: object) -> bool:
        """Compares the configs, their order and the devices."""
        return isinstance(other, Declared) and self.engine == other.engine

    def __hash__(self) -> int:
        """Hashes the configs, so that jit takes a collection as a static argument."""
        return hash(self.engine)

    def __repr__(self) -> str:
        """Shows names and sizes."""
        tables = self.tables.values()
        inner = ", ".join(f"{c.name}: {_rows_of(c)} x {c.dim}" for c in tables)
        return f"{type(self).__name__}({inner})"

    def _repr_html_(self) -> str:
        """Shows names and sizes as a table, in a notebook."""
        rows = [
            (c.name, _rows_of(c), c.dim, c.pooling or "", ", ".join(c.feature_names))
            for c in self.tables.values()
        ]
        return html_table(("table", "rows", "dim", "pooling", "features"), rows)

    @property
    def placement(self) -> Placement | None:
        """Returns the mesh and how tables lie on it; None on one device."""
        return self.engine.placement

    @property
    def share_arrays(self) -> bool | None:
        """Whether tables share arrays, as given."""
        return self.engine.share_arrays

    @property
    def hash_engine(self) -> HashEngine:
        """Runs what only hash tables can do; see ``hash_of``."""
        return hash_of(self.engine)

    def with_tables(self, tables: Iterable[TableConfig | TTConfig]) -> Self:
        """Holds other tables on the same devices, those of equal names at their places.

        Args:
          tables: one config a table.
        """
        return self._with_engine(self.engine.with_configs(tables))

    def with_own_arrays(self) -> Self:
        """Holds the hash tables alone, on the same devices, none in shared arrays."""
        return self._with_engine(self.hash_engine.with_own_arrays())

    def _with_engine(self, engine: LookupEngine) -> Self:
        new = object.__new__(type(self))
        new.engine = engine
        return new

    def memory(self) -> dict[str, dict[str, int]]:
        """Computes what the tables take, before anything is allocated.

        Returns:
          By table the bytes of all its shards. "hbm" counts all arrays in device
          memory, rings of a tier too; of a tensor train, the cores and their optimizer
          states on every device. "pinned_host" counts the home records of a tier.

        Example:
          >>> of_cat = coll.memory()["cat"]  # doctest: +SKIP
          >>> of_cat["hbm"] / 1e9  # doctest: +SKIP
        """
        return _memory.memory(self.engine.catalog.configs, self.placement)

    def _dynamic_memory(self) -> dict[str, dict[str, int]]:
        return _memory.memory(self.engine.catalog.dynamic.values(), self.placement)

    @property
    def _shards(self) -> int:
        return 1 if self.placement is None else self.placement.shards


def _rows_of(config: TableConfig | TTConfig) -> int:
    return config.num_embeddings if isinstance(config, TTConfig) else config.num_slots
