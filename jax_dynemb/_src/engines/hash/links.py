# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""How arrays get from each device of a mesh to each other one.

XLA's ``all_to_all`` works everywhere and moves whole arrays. GPUs of one host read
each other's memory instead, so only rows that mean something move. No copy joins them
before or cuts them after.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int32

from jax_dynemb._src.ops import (
    FeatureGradient,
    FeatureInput,
    FeatureLayout,
    PeerRows,
    PeerSums,
    Piece,
    Placed,
    PlacedIds,
    RouteTable,
    RowView,
    StoredRows,
    TableState,
    exchange,
    find,
    lookup,
    place_rows,
    send_bags,
    sum_rows,
)
from jax_dynemb._src.spec import TableSpec


class Live(NamedTuple):
    """Counts the live rows of the first pieces of an exchange.

    Attributes:
      counts: for each piece and device, how many rows this device has for it, or gets
        from it.
      by_sender: which of the two.
    """

    counts: Int32[Array, "pieces shards"]
    by_sender: bool


@dataclasses.dataclass(frozen=True)
class Links:
    """Describes the devices of an exchange, inside a shard_map over their axes.

    Attributes:
      axes: of the mesh, over which the exchange goes.
      shards: devices of an exchange.
      peers: ids of GPUs that read each other's memory, groups of ``shards`` side
        by side; empty: XLA's collectives do the exchange.
      groups: of ``shards`` devices side by side along the axes; each of them exchanges
        by itself.
      apart: whether devices of a group lie ``groups`` apart instead; by collectives.
    """

    axes: tuple[str, ...]
    shards: int
    peers: tuple[int, ...] = ()
    groups: int = 1
    apart: bool = False

    @property
    def rank(self) -> jax.Array:
        """Returns this device's place in its group, int32[]."""
        index = jax.lax.axis_index(self.axes)
        if self.apart:
            return index // self.groups
        return index if self.groups == 1 else index % self.shards

    def all_to_all(self, arrays: Sequence[jax.Array]) -> list[jax.Array]:
        """Exchanges whole arrays [shards, ...]."""
        if self.peers:
            sizes = [x.size * x.dtype.itemsize // self.shards for x in arrays]
            pieces = [Piece(n, 0, size, size) for n, size in enumerate(sizes)]
            return self.exchange(arrays, pieces)
        return self._by_collectives(arrays)

    def gather(self, arrays: Sequence[jax.Array]) -> list[jax.Array]:
        """Returns what each device has, [shards, ...] for an array [...]."""
        if self.peers:
            sizes = [x.size * x.dtype.itemsize for x in arrays]
            pieces = [Piece(n, 0, size, size) for n, size in enumerate(sizes)]
            return self.exchange(arrays, pieces, gathers=True)
        return [
            jax.lax.all_gather(x, self.axes, axis_index_groups=self._index_groups)
            for x in arrays
        ]

    def swap(self, parts: jax.Array) -> jax.Array:
        """Exchanges an array [shards, ...] by one collective."""
        return jax.lax.all_to_all(
            parts, self.axes, 0, 0, tiled=True, axis_index_groups=self._index_groups
        )

    @property
    def _index_groups(self) -> list[list[int]] | None:
        """Lists the groups for a collective; None: there is one."""
        if self.groups == 1:
            return None
        devices = np.arange(self.groups * self.shards)
        if self.apart:
            return devices.reshape(-1, self.groups).T.tolist()
        return devices.reshape(self.groups, -1).tolist()

    def most(self, number: jax.Array) -> jax.Array:
        """Returns the largest of all devices' numbers, each by itself."""
        if self.peers or self.groups > 1:
            return self._every(number).max(axis=0)
        return jax.lax.pmax(number, self.axes)

    def least(self, number: jax.Array) -> jax.Array:
        """Returns the smallest of all devices' numbers, each by itself."""
        if self.peers or self.groups > 1:
            return self._every(number).min(axis=0)
        return jax.lax.pmin(number, self.axes)

    def _every(self, number: jax.Array) -> jax.Array:
        """Gathers an array of each device, [shards, ...].

        A loop with a collective is no part of a CUDA graph. In each step the host would
        wait for the device there, to know whether there is another round.
        """
        (result,) = self.gather([number])
        return result

    def exchange(
        self,
        arrays: Sequence[jax.Array],
        pieces: Sequence[Piece],
        live: Live | None = None,
        *,
        gathers: bool = False,
    ) -> list[jax.Array]:
        """Exchanges live rows between GPUs that read each other's memory.

        Args:
          arrays: each of ``shards`` equal parts.
          pieces: where rows lie in a part.
          live: how many of them; None: all.
          gathers: whether an array is one part instead, which all devices get.
        """
        counts = jnp.zeros((1, self.shards), jnp.int32) if live is None else live.counts
        return exchange(
            arrays,
            pieces,
            self.rank,
            counts,
            devices=self.peers,
            counted_by_sender=live is not None and live.by_sender,
            gathers=gathers,
        )

    def place_rows(
        self,
        arrays: Sequence[jax.Array],
        ids: PlacedIds,
        placed: Placed,
        stored: StoredRows | None = None,
    ) -> tuple[list[jax.Array], jax.Array | None]:
        """Reads rows from GPUs that read each other's memory into their places."""
        return place_rows(arrays, self.rank, ids, placed, stored, devices=self.peers)

    def sum_rows(
        self,
        tables: Sequence[TableSpec],
        groups: Sequence[int],
        features: Sequence[FeatureGradient],
        views: Sequence[RowView],
        order: jax.Array | None = None,
    ) -> list[jax.Array]:
        """Writes sums where GPUs that read each other's memory need them.

        A kernel that reads gradients from this GPU's memory writes them over the links
        meanwhile. So the links work under the sums, and no copy follows.

        Args:
          tables: which fit into one call.
          groups: of each table, equally many for each shard.
          features: their slots are numbers of groups.
          views: where sums lie in the arrays of all shards.
          order: of the positions, see ``PeerSums``.

        Returns:
          Of each table, the array with what this device gets from all.
        """
        peers = PeerSums(self.peers, self.shards, self.rank, order)
        return sum_rows(tables, groups, features, views, peers=peers)

    def send_bags(
        self, ids: Sequence[jax.Array], tables: Sequence[RouteTable]
    ) -> list[jax.Array]:
        """Sends ids to their owners between GPUs that read each other's memory.

        Args:
          ids: of each feature, uint32[n, 2].
          tables: of each feature; the shards own them.

        Returns:
          Of each feature, what has arrived: uint32[shards, n, 2].
        """
        named = {"devices": self.peers, "shards": self.shards}
        return send_bags(ids, tables, self.rank, **named)

    def lookup(
        self,
        tables: Sequence[TableSpec],
        states: Mapping[str, TableState],
        inputs: Sequence[tuple[FeatureLayout, FeatureInput]],
        scores: jax.Array,
        views: Sequence[RowView],
    ) -> tuple[list[dict[str, jax.Array]], dict[str, TableState]]:
        """Looks up, and writes rows where GPUs that read each other's memory need them.

        Args:
          tables: which fit into one call, none with a tier.
          states: of them.
          inputs: ids; rows of each feature are those of all shards, equally many.
          scores: see ``ops.lookup``.
          views: where rows lie, in the only array.

        Returns:
          What ``ops.lookup`` does; the array has what this device gets from all.
        """
        peers = PeerRows(self.peers, self.shards, self.rank)
        outputs, new, _ = lookup(tables, states, inputs, scores, views, peers=peers)
        return outputs, new

    def find(
        self,
        tables: Sequence[TableSpec],
        states: Mapping[str, TableState],
        inputs: Sequence[tuple[FeatureLayout, FeatureInput]],
        views: Sequence[RowView],
    ) -> tuple[list[dict[str, jax.Array]], dict[str, TableState]]:
        """Looks up as ``lookup`` does, and inserts nothing."""
        peers = PeerRows(self.peers, self.shards, self.rank)
        return find(tables, states, inputs, views, peers=peers)

    def _by_collectives(self, arrays: Sequence[jax.Array]) -> list[jax.Array]:
        """Exchanges [shards, places, ...] arrays by one all_to_all per dtype."""
        result: dict[int, jax.Array] = {}
        for dtype in dict.fromkeys(array.dtype for array in arrays):
            of_dtype = [i for i, array in enumerate(arrays) if array.dtype == dtype]
            flat = [arrays[i].reshape(arrays[i].shape[0], -1) for i in of_dtype]
            joined = flat[0] if len(flat) == 1 else jnp.concatenate(flat, axis=1)
            joined = self.swap(joined)
            begin = 0
            for i, part in zip(of_dtype, flat, strict=True):
                end = begin + part.shape[1]
                result[i] = joined[:, begin:end].reshape(arrays[i].shape)
                begin = end
        return [result[i] for i in range(len(arrays))]
