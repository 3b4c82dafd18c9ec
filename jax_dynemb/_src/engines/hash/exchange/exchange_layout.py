# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The static sizes of an exchange of ids, rows and gradients."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence

import jax
import numpy as np

from jax_dynemb._src.engines.hash.exchange.buffers import BufferField, ExchangeBuffers
from jax_dynemb._src.engines.hash.links import Links
from jax_dynemb._src.ops import RouteTable, joined
from jax_dynemb._src.spec import TableSpec


@dataclasses.dataclass(frozen=True)
class ExchangeLayout:
    """Describes the static sizes of one exchange.

    A device has a section of ``capacity`` places for each table in what it sends to
    each owner. The ids of all tables stand one table after the other. Tables that
    share arrays (a ``Stack``) are one table here.

    Attributes:
      tables: their configs, as a shard sees them.
      parts: the ids of each table of the user's on a device.
      sizes: ids of each table on a device.
      capacities: places of each table for each owner.
      dtypes: of each table's rows on the wire.
      gradient_dtype: of all gradients on the wire.
      links: between the devices.
    """

    tables: tuple[TableSpec, ...]
    parts: tuple[RouteTable, ...]
    sizes: tuple[int, ...]
    capacities: tuple[int, ...]
    dtypes: tuple[str, ...]
    gradient_dtype: str
    links: Links

    @property
    def shards(self) -> int:
        """Counts the devices."""
        return self.links.shards

    @property
    def axes(self) -> tuple[str, ...]:
        """Names the axes of the mesh over which the exchange goes."""
        return self.links.axes

    @property
    def starts(self) -> list[int]:
        """Returns the first position of each table."""
        return [sum(self.sizes[:t]) for t in range(len(self.sizes))]

    @property
    def always_fit(self) -> bool:
        """Whether there is room for every id with every owner."""
        most = [self.capacities[part.first // self.shards] for part in self.parts]
        return all(p.size <= room for p, room in zip(self.parts, most, strict=True))

    def rows(self) -> list[BufferField]:
        """Describes what travels to a device in the exchange of rows."""
        triples = zip(self.capacities, self.tables, self.dtypes, strict=True)
        return [BufferField(t.name, room, t.dim, dtype) for room, t, dtype in triples]

    def gradients(self) -> list[BufferField]:
        """Describes what travels to a device in the exchange of gradients."""
        pairs = zip(self.capacities, self.tables, strict=True)
        return [
            BufferField(t.name, room, t.dim, self.gradient_dtype) for room, t in pairs
        ]

    @property
    def segments(self) -> int:
        """Counts the segments of a ``Route``: one for each table and owner."""
        return len(self.tables) * self.shards

    @property
    def counts(self) -> list[int]:
        """Counts the places of each table that a device has as an owner."""
        return [self.shards * room for room in self.capacities]

    @property
    def runs(self) -> list[tuple[int, int]]:
        """Lists the capacities, and how many tables one after the other have each."""
        runs = itertools.groupby(self.capacities)
        return [(room, len(list(tables))) for room, tables in runs]

    def cut(self, of_tables: jax.Array) -> list[jax.Array]:
        """Cuts what an owner has by table."""
        ends = np.cumsum(self.counts).tolist()
        return [of_tables[b:e] for b, e in zip([0, *ends], ends, strict=False)]

    def of_tables(self, of_places: jax.Array) -> jax.Array:
        """Orders [shards, places, ...] by table: [shards * places, ...]."""
        more, parts, end = of_places.shape[2:], [], 0
        # A CPU then makes a plain copy, and a GPU pads in another kernel.
        of_places = jax.lax.optimization_barrier(of_places)
        for room, tables in self.runs:
            begin, end = end, end + tables * room
            part = of_places[:, begin:end]
            part = part.reshape(self.shards, tables, room, *more).swapaxes(0, 1)
            parts.append(part.reshape(-1, *more))
        return joined(parts)

    def of_shards(self, of_tables: jax.Array) -> jax.Array:
        """Orders [shards * places] by shard: [shards, places]."""
        parts, end = [], 0
        for room, tables in self.runs:
            begin, end = end, end + tables * room * self.shards
            part = of_tables[begin:end].reshape(tables, self.shards, room)
            parts.append(part.swapaxes(0, 1).reshape(self.shards, -1))
        return joined(parts, axis=1)

    def by_table(self, per_segment: jax.Array) -> jax.Array:
        """Reshapes [tables * shards] to [tables, shards]."""
        return per_segment.reshape(len(self.tables), self.shards)


def wire_of(exchange: ExchangeLayout, pieces: Sequence[BufferField]) -> ExchangeBuffers:
    """Describes the arrays of an exchange of rows."""
    return ExchangeBuffers(tuple(pieces), exchange.links)


def capacity_of(
    size: int, owners: float, factor: float, slots: int | None = None
) -> int:
    """Counts the places for one owner: its share of the ids, and room for chance.

    The standard deviation of the number of ids with one owner is below the root of its
    mean. So with ``factor`` 1 there is room for a batch without duplicates. An owner of
    few slots seldom gets more ids than twice as many, since those beyond them evict
    each other. Where it does they take further rounds.

    Args:
      size: how many ids.
      owners: as many as the buckets fill.
      factor: places, as a multiple of an equal share.
      slots: of an owner; None: no bound.
    """
    share = factor * size / owners
    room = min(size, math.ceil(share + 4 * math.sqrt(share) + 8))
    return room if slots is None else min(room, 2 * slots)
