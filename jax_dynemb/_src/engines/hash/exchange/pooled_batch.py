# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Pooled features of which sums travel instead of rows.

Every owner receives the bags of all devices, with padding for ids of other owners. It
pools them as a device alone would and sends back one sum per bag. The device adds the
sums of all owners. In the update a bag's gradient travels to every owner. There is room
for every id with every owner, so nothing can overflow, and nothing is sorted.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import jax

from jax_dynemb._src.engines.hash.exchange.buffers import BufferField, ExchangeBuffers
from jax_dynemb._src.engines.hash.layouts import Placement, Stack
from jax_dynemb._src.engines.hash.links import Links
from jax_dynemb._src.ops import FeatureInput, FeatureLayout
from jax_dynemb._src.spec import TableSpec


@dataclasses.dataclass(frozen=True)
class PooledFeature:
    """Describes one feature, or one of each table of a stack; static.

    Attributes:
      table: the stack's config, as a shard sees it.
      layouts: by block of the stack; None where a table has no such feature.
      width: owners of a block.
    """

    table: TableSpec
    layouts: tuple[FeatureLayout | None, ...]
    width: int

    @property
    def live(self) -> list[FeatureLayout]:
        """Lists the layouts that are present."""
        return [layout for layout in self.layouts if layout is not None]

    @property
    def ids(self) -> int:
        """Counts the places for ids, from a device to an owner."""
        return max(layout.num_ids for layout in self.live)

    @property
    def bags(self) -> int:
        """Counts the places for bags."""
        return max(layout.num_bags for layout in self.live)

    @property
    def bag_size(self) -> int:
        """Ids of every bag; 0 where bags differ and their lengths travel."""
        sizes = {layout.bag_size for layout in self.live}
        return sizes.pop() if len(sizes) == 1 else 0

    @property
    def weighted(self) -> bool:
        """Whether weights travel; then ids without one have weight 1."""
        return any(layout.weighted for layout in self.live)

    @property
    def shards(self) -> int:
        """Counts the devices of the mesh."""
        return len(self.layouts) * self.width

    def owner_layout(self) -> FeatureLayout:
        """Describes the bags of all devices as one feature."""
        ids, bags = (self.shards * n for n in (self.ids, self.bags))
        return FeatureLayout(
            feature=self.live[0].feature,
            table=self.table.name,
            pooling="sum",  # a mean divides when all sums are there
            given_shape=(ids,),
            ids_shape=(ids,),
            rows_shape=(bags,),
            bag_size=self.bag_size,
            weighted=self.weighted,
        )


@dataclasses.dataclass(frozen=True)
class PooledBatch:
    """Holds the features of one call whose sums travel.

    Attributes:
      features: static; the arrays of all of them share the exchanges.
      inputs: by feature; none of them is needed for the update.
      dtype: of sums and gradients between devices.
      links: between the devices.
      first: the first owner of a block, among all shards; None: owners get all ids.
    """

    features: list[PooledFeature]
    inputs: Mapping[str, FeatureInput]
    dtype: str
    links: Links
    first: jax.Array | int | None = 0

    @property
    def shards(self) -> int:
        """Counts the devices."""
        return self.links.shards

    def wire(self) -> ExchangeBuffers:
        """Describes the arrays in which sums, or gradients, travel alone."""
        return ExchangeBuffers(tuple(self.rows()), self.links)

    def rows(self) -> list[BufferField]:
        """Describes what travels to a device: sums, and gradients the other way."""
        return [
            BufferField(s.table.name, s.bags, s.table.dim, self.dtype)
            for s in self.features
        ]

    def exchange(self, parts: Sequence[jax.Array]) -> list[jax.Array]:
        """Exchanges sums, or gradients, alone; returns the arrays that have arrived.

        Args:
          parts: of each feature, [shards, bags, dim].
        """
        wire = self.wire()
        return wire.exchange(wire.filled({}, dict(enumerate(parts))))

    @property
    def tables(self) -> list[TableSpec]:
        """Returns the tables of the features, with the dtype of returned sums."""
        tables = {feature.table.name: feature.table for feature in self.features}
        return [dataclasses.replace(t, dtype=self.dtype) for t in tables.values()]


def pooled_features_of(
    stack: Stack, table: TableSpec, layouts: Sequence[FeatureLayout]
) -> list[PooledFeature]:
    """Groups the features of a stack: the n-th feature of each table.

    Args:
      stack: the arrays.
      table: the stack, as a shard sees it.
      layouts: of features on a device; those of other stacks are left out.
    """
    by_block: list[list[FeatureLayout]] = [[] for _ in range(stack.blocks)]
    for layout in layouts:
        if layout.table == table.name:
            by_block[stack.block_of_feature(layout.feature)].append(layout)
    rows = itertools.zip_longest(*by_block)  # the n-th feature of each table
    return [PooledFeature(table, row, stack.width) for row in rows]


def make_pooled_batch(
    placement: Placement,
    tables: Sequence[TableSpec],
    layouts: Sequence[FeatureLayout],
    inputs: Mapping[str, FeatureInput],
) -> PooledBatch:
    """Groups the features of these stacks, as a shard sees them."""
    features = [
        feature
        for table in tables
        for feature in pooled_features_of(placement.stack(table.name), table, layouts)
    ]
    dtype = placement.exchange_dtype or "float32"
    return PooledBatch(features, inputs, dtype, placement.links_of_sums)
