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
from jax_dynemb._src.ops import FeatureInput, FeatureLayout, RouteTable, is_one_call
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

    @property
    def is_pushed(self) -> bool:
        """Whether a lookup writes sums to the devices that need them."""
        if not self.links.peers or not self.features:
            return False
        has_sums = all(each.bags > 0 for each in self.features)
        return has_sums and _is_pushable(self.features)

    @property
    def route_tables(self) -> list[RouteTable] | None:
        """Describes the owners of ids by feature, where GPUs write ids to their owners.

        None: they are packed, because not every device owns a part of every table, or
        none reads another's memory.
        """
        whole = all(len(feature.layouts) == 1 for feature in self.features)
        is_first = isinstance(self.first, int) and self.first == 0
        if not self.links.peers or not whole or not is_first or not self.features:
            return None
        return [
            RouteTable(
                size=each.ids,
                first=0,
                owners=each.width,
                hash_seed=each.table.hash_seed,
                num_buckets=each.table.num_buckets,
                local_buckets=each.table.local_buckets,
            )
            for each in self.features
        ]

    def empty(self) -> PooledBatch:
        """Returns the same without features."""
        return dataclasses.replace(self, features=[])

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
        return wire.exchange(wire.filled(parts))

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
    links = links_of_sums(placement, placement.links, features)
    return PooledBatch(features, inputs, dtype, links)


def links_of_sums(
    placement: Placement, links: Links, features: Sequence[PooledFeature]
) -> Links:
    """Chooses what moves the sums of features.

    Peers that copy move no fewer bytes than XLA's collectives do, which overlap with
    kernels (docs/decisions/peers.md). Where a lookup writes sums to peers, no copy
    follows, and the links work under it.
    """
    if placement.exchange_transport == "peers" or _is_pushable(features):
        return links
    return dataclasses.replace(links, peers=())


def _is_pushable(features: Sequence[PooledFeature]) -> bool:
    """Whether one call looks them up, which can write sums to other devices."""
    tables = list({f.table.name: f.table for f in features}.values())
    is_whole = all(t.tier is None and t.row_format is None for t in tables)
    return is_whole and is_one_call(tables, [f.table.name for f in features])
