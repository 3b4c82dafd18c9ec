# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The tables of a collection together with the mesh that they are sharded over."""

from __future__ import annotations

import dataclasses

from jax_dynemb.config import TableConfig
from jax_dynemb.engines._catalog import Catalog
from jax_dynemb.engines.mesh._placement import Placement


@dataclasses.dataclass(frozen=True)
class MeshTables:
    """Holds the tables, and where their arrays are.

    Attributes:
      catalog: the tables by name.
      placement: the mesh, and the arrays that hold the tables.
    """

    catalog: Catalog[TableConfig]
    placement: Placement

    def here(self) -> Placement:
        """Returns the placement with its mesh; inside a shard_map that is its own."""
        return self.placement.here()

    def config_of(self, feature: str) -> TableConfig:
        """Finds the table that a feature looks up."""
        return self.catalog.config_of(feature)
