# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the operations of hash tables, written once, where a layout says."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Self

from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.engines.catalog import Catalog
from jax_dynemb._src.engines.hash.layouts import Layout, OneDevice, Placement
from jax_dynemb._src.engines.hash.lookups import Lookups
from jax_dynemb._src.engines.hash.plan import Plan
from jax_dynemb._src.engines.hash.rows import Rows
from jax_dynemb._src.engines.hash.updates import Updates
from jax_dynemb._src.engines.hash.whole_tables import WholeTables


@dataclasses.dataclass(frozen=True)
class HashEngine(Lookups, Updates, Rows, WholeTables):
    """Runs hash tables on one device or on a mesh; see ``LookupEngine``."""

    @classmethod
    def of(
        cls,
        catalog: Catalog[TableConfig],
        layout: Layout,
        plan: Plan | None = None,
    ) -> Self:
        """Places tables.

        Args:
          catalog: the tables, with the shardings of the plan.
          layout: one device or a mesh; tables of the same names keep its places.
          plan: the shards of table-wise tables.
        """
        planned = {} if plan is None else plan.shards
        return cls(catalog, layout.with_tables(catalog.configs, planned))

    def with_configs(self, configs: Iterable[TableConfig]) -> Self:
        return self.of(Catalog(tuple(configs)), self.layout)

    def with_own_arrays(self) -> Self:
        """Holds the same tables on the same devices, none in shared arrays."""
        layout = dataclasses.replace(self.layout, share_arrays=False)
        return self.of(self.catalog, layout)

    @property
    def placement(self) -> Placement | None:
        """Returns the mesh, and where the tables lie on it; None on one device."""
        return None if isinstance(self.layout, OneDevice) else self.layout

    @property
    def share_arrays(self) -> bool | None:
        """Returns whether tables share arrays, see ``jde.Tables``."""
        return self.layout.share_arrays
