# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""One padded exchange for all tables of a call whose rows are on single shards."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int32, UInt32

from jax_dynemb._spec import TableSpec
from jax_dynemb.engines.mesh.exchange._buffers import BufferField, ExchangeBuffers
from jax_dynemb.engines.mesh.exchange._route import Route
from jax_dynemb.ops import RouteTable, bucket_of, hash_by, hash_factors, padding

Axes = tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Sections:
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
      shards: devices.
      axes: of the mesh, over which the exchange goes.
    """

    tables: tuple[TableSpec, ...]
    parts: tuple[RouteTable, ...]
    sizes: tuple[int, ...]
    capacities: tuple[int, ...]
    dtypes: tuple[str, ...]
    gradient_dtype: str
    shards: int
    axes: Axes

    @property
    def starts(self) -> list[int]:
        """Returns the first position of each table."""
        return [sum(self.sizes[:t]) for t in range(len(self.sizes))]

    @property
    def always_fit(self) -> bool:
        """Whether there is room for every id with every owner."""
        rooms = [self.capacities[part.first // self.shards] for part in self.parts]
        return all(p.size <= room for p, room in zip(self.parts, rooms, strict=True))

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

    def by_table(self, per_segment: jax.Array) -> jax.Array:
        """[tables * shards] as [tables, shards]."""
        return per_segment.reshape(len(self.tables), self.shards)


def wire_of(sections: Sections, pieces: Sequence[BufferField]) -> ExchangeBuffers:
    """The arrays of an exchange of rows."""
    return ExchangeBuffers(tuple(pieces), sections.shards, sections.axes)


def capacity_of(size: int, shards: int, factor: float) -> int:
    """Places for one owner: its share of the ids, and room for chance.

    The standard deviation of the number of ids with one owner is below the root of its
    mean. So with ``factor`` 1 there is room for a batch without duplicates.
    """
    share = factor * size / shards
    return min(size, math.ceil(share + 4 * math.sqrt(share) + 8))


class Window(NamedTuple):
    """Which distinct ids of each segment travel: [begin, end), [tables, shards]."""

    begin: Int32[Array, "tables shards"]
    end: Int32[Array, "tables shards"]


def positions_of(
    sections: Sections, route: Route, window: Window
) -> Int32[Array, "shards places"]:
    """Where the id of each place stands; past the last position if it is empty.

    The sections of the tables stand side by side.
    """
    n = route.first.shape[0]
    table, place = _place_in_section(sections)
    number = window.begin.T[:, table] + place[None, :]
    found = jnp.take(route.first, number, mode="fill", fill_value=n)
    return jnp.where(number < window.end.T[:, table], found, n)


def places_of(
    sections: Sections, route: Route, window: Window
) -> list[Int32[Array, " size"]]:
    """For each id of each table its place in [shards * capacity]; past it if none."""
    number = route.unique_of
    segment = jnp.searchsorted(
        route.starts[1:-1], number, side="right", method="scan_unrolled"
    ).astype(jnp.int32)
    begin = window.begin.reshape(-1)[segment]
    live = (number >= begin) & (number < window.end.reshape(-1)[segment])
    owner, table = segment % sections.shards, segment // sections.shards
    capacity = jnp.array(sections.capacities, jnp.int32)[table]
    past = sections.shards * max(sections.capacities)
    place = jnp.where(live, owner * capacity + number - begin, past)
    ends = [start + n for start, n in zip(sections.starts, sections.sizes, strict=True)]
    return [place[b:e] for b, e in zip(sections.starts, ends, strict=True)]


def _place_in_section(sections: Sections) -> tuple[jax.Array, jax.Array]:
    """For each place the number of its table, and its own in the section."""
    column = jnp.arange(sum(sections.capacities), dtype=jnp.int32)
    table, place, begin = jnp.zeros_like(column), column, 0
    for t, capacity in enumerate(sections.capacities[:-1]):
        begin += capacity
        table = jnp.where(column >= begin, t + 1, table)
        place = jnp.where(column >= begin, column - begin, place)
    return table, place


def _cut(sections: Sections, of_places: jax.Array) -> list[jax.Array]:
    """[shards, places, ...] by table."""
    ends = np.cumsum(sections.capacities).tolist()
    begins = [0, *ends[:-1]]
    return [of_places[:, b:e] for b, e in zip(begins, ends, strict=True)]


def exchange_arrays(parts: Sequence[jax.Array], axes: Axes) -> list[jax.Array]:
    """One all_to_all of [shards, places, ...] arrays; one for each dtype."""
    result: dict[int, jax.Array] = {}
    for dtype in dict.fromkeys(part.dtype for part in parts):
        of_dtype = [i for i, part in enumerate(parts) if part.dtype == dtype]
        flat = [parts[i].reshape(parts[i].shape[0], -1) for i in of_dtype]
        joined = flat[0] if len(flat) == 1 else jnp.concatenate(flat, axis=1)
        joined = jax.lax.all_to_all(joined, axes, 0, 0, tiled=True)
        begin = 0
        for i, part in zip(of_dtype, flat, strict=True):
            end = begin + part.shape[1]
            result[i] = joined[:, begin:end].reshape(parts[i].shape)
            begin = end
    return [result[i] for i in range(len(parts))]


def send_ids(
    sections: Sections, route: Route, ids: UInt32[Array, "n 2"], window: Window
) -> list[UInt32[Array, "places 2"]]:
    """The ids that this owner gets of each table, [shards * capacity, 2]."""
    return send_ids_and_uses(sections, route, ids, window, ())[0]


def send_ids_and_uses(
    sections: Sections,
    route: Route,
    ids: UInt32[Array, "n 2"],
    window: Window,
    counted: Sequence[int],
    others: Sequence[jax.Array] = (),
) -> tuple[list[jax.Array], dict[int, jax.Array], list[jax.Array]]:
    """``send_ids``, and for the tables ``counted`` how often a device has each id.

    ``others`` travel in the same exchange.
    """
    fill = jnp.concatenate([ids, padding((1,))])
    positions = positions_of(sections, route, window)
    parts = [fill[positions]]
    if counted:
        n = route.first.shape[0]
        uses = jnp.zeros(n + 1, jnp.uint32).at[route.unique_of].add(jnp.uint32(1))
        number = jnp.concatenate([route.unique_of, jnp.full(1, n, jnp.int32)])
        here = jnp.where(positions < n, uses[number[positions]], jnp.uint32(0))
        cut = _cut(sections, here)
        parts += [cut[t] for t in counted]
    received, *rest = exchange_arrays([*parts, *others], sections.axes)
    flat = [each.reshape(-1, 2) for each in _cut(sections, received)]
    uses = [each.reshape(-1) for each in rest[: len(counted)]]
    return flat, dict(zip(counted, uses, strict=True)), rest[len(counted) :]


def next_window(
    sections: Sections, route: Route, ids: UInt32[Array, "n 2"], begin: jax.Array
) -> Window:
    """As many ids as fit, the same range of hashes on every device.

    So every row travels in one round only, whichever devices have it, and an update
    sees the whole of its gradient. All ids of a bucket travel together, as long as some
    bucket fits. Otherwise a later round could need a row that an earlier one evicted.
    At least one device fills a section that is not done, so the rounds end.
    """
    ends = sections.by_table(route.starts[1:])
    capacity = jnp.array(sections.capacities, jnp.int32)[:, None]
    fill = jnp.concatenate([ids, padding((1,))])
    num_buckets = jnp.array([t.num_buckets for t in sections.tables], jnp.uint32)
    factors = jnp.asarray(hash_factors([t.hash_seed for t in sections.tables]))

    def hashes(number, end, factors):
        n = route.first.shape[0]
        position = jnp.take(route.first, number, mode="fill", fill_value=n)
        return hash_by(fill[jnp.where(number < end, position, n)], factors)

    # The first id of a section that does not fit, on the device where it is smallest.
    over = begin + capacity < ends
    low, high = hashes(begin + capacity, ends, factors[:, None])
    ones = jnp.uint32(0xFFFFFFFF)
    bucket = bucket_of(low, high, jnp.broadcast_to(num_buckets[:, None], low.shape))
    limit_bucket = jax.lax.pmin(jnp.where(over, bucket, ones), sections.axes)
    any_over = limit_bucket != ones
    high = jnp.where(over, high, ones)
    limit_high = jax.lax.pmin(high, sections.axes)
    low = jnp.where(over & (high == limit_high), low, ones)
    limit_low = jax.lax.pmin(low, sections.axes)

    table, place = _place_in_section(sections)
    number = begin.T[:, table] + place[None, :]
    live = number < ends.T[:, table]
    low, high = hashes(number, ends.T[:, table], factors[table][None])
    buckets = jnp.broadcast_to(num_buckets[table][None], low.shape)
    whole = bucket_of(low, high, buckets) < limit_bucket.T[:, table]
    progress = (_count(sections, whole & live) > 0).astype(jnp.int32)
    progress = jax.lax.pmax(progress, sections.axes) > 0
    h, lo = limit_high.T[:, table], limit_low.T[:, table]
    before = (high < h) | ((high == h) & (low < lo))
    before = jnp.where(progress.T[:, table], whole, before) | ~any_over.T[:, table]
    return Window(begin, begin + _count(sections, before & live))


def _count(sections: Sections, flags: jax.Array) -> Int32[Array, "tables shards"]:
    """How many of each section's places are marked."""
    counts = [part.sum(axis=1, dtype=jnp.int32) for part in _cut(sections, flags)]
    return jnp.stack(counts)
