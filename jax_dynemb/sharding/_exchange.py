# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""One padded exchange for all row-wise tables of a call."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int32, UInt32

from jax_dynemb.config import TableConfig
from jax_dynemb.sharding._keys import hash_words, padding
from jax_dynemb.sharding._route import Route

Axes = tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Sections:
    """What is static in one exchange.

    A device has a section of ``capacity`` places for each table in what it sends to
    each owner. The ids of all tables stand one table after the other.

    Attributes:
      tables: their configs, as a shard sees them.
      sizes: ids of each table on a device.
      capacities: places of each table for each owner.
      dtypes: of each table's rows on the wire.
      gradient_dtype: of all gradients on the wire.
      shards: devices.
      axes: of the mesh, over which the exchange goes.
    """

    tables: tuple[TableConfig, ...]
    sizes: tuple[int, ...]
    capacities: tuple[int, ...]
    dtypes: tuple[str, ...]
    gradient_dtype: str
    shards: int
    axes: Axes

    @property
    def starts(self) -> list[int]:
        """The first position of each table."""
        return [sum(self.sizes[:t]) for t in range(len(self.sizes))]

    def by_table(self, per_segment: jax.Array) -> jax.Array:
        """[tables * shards] as [tables, shards]."""
        return per_segment.reshape(len(self.tables), self.shards)


def capacity_of(size: int, shards: int, factor: float) -> int:
    """Places for one owner: its share of the ids, and room for chance.

    The number of distinct ids with one owner has a standard deviation below the root
    of its mean, so with ``factor`` 1 there is room for a batch without duplicates.
    """
    share = factor * size / shards
    return min(size, math.ceil(share + 4 * math.sqrt(share) + 8))


class Window(NamedTuple):
    """Which distinct ids of each segment travel: [begin, end), [tables, shards]."""

    begin: Int32[Array, "tables shards"]
    end: Int32[Array, "tables shards"]


def positions_of(sections: Sections, route: Route, window: Window) -> list[jax.Array]:
    """For each table int32[shards, capacity]: where the id of a place stands.

    Empty places have a number past the last position.
    """
    n = route.first.shape[0]
    result = []
    for t, capacity in enumerate(sections.capacities):
        number = _numbers(window.begin[t], capacity)
        live = number < window.end[t][:, None]
        found = jnp.take(route.first, number, mode="fill", fill_value=n)
        result.append(jnp.where(live, found, n))
    return result


def _numbers(begin: Int32[Array, " shards"], capacity: int) -> jax.Array:
    """int32[shards, capacity]: numbers of distinct ids from each ``begin`` on."""
    return begin[:, None] + jnp.arange(capacity, dtype=jnp.int32)[None, :]


def places_of(
    sections: Sections, route: Route, window: Window, t: int
) -> Int32[Array, " size"]:
    """For each id of a table its place in [shards * capacity]; past it if none."""
    start, size = sections.starts[t], sections.sizes[t]
    number = route.unique_of[start : start + size]
    ends = sections.by_table(route.starts[1:])[t]
    owner = jnp.searchsorted(ends[:-1], number, side="right", method="compare_all")
    place = number - window.begin[t][owner]
    live = (place >= 0) & (number < window.end[t][owner])
    capacity = sections.capacities[t]
    place = owner.astype(jnp.int32) * capacity + place
    return jnp.where(live, place, sections.shards * capacity)


def exchange(parts: Sequence[jax.Array], axes: Axes) -> list[jax.Array]:
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
    received, _ = send_ids_and_uses(sections, route, ids, window, ())
    return received


def send_ids_and_uses(
    sections: Sections,
    route: Route,
    ids: UInt32[Array, "n 2"],
    window: Window,
    counted: Sequence[int],
) -> tuple[list[UInt32[Array, "places 2"]], dict[int, UInt32[Array, " places"]]]:
    """``send_ids``, and for the tables ``counted`` how often a device has each id."""
    fill = jnp.concatenate([ids, padding((1,))])
    positions = positions_of(sections, route, window)
    parts = [fill[p] for p in positions]
    if counted:
        n = route.first.shape[0]
        uses = jnp.zeros(n + 1, jnp.uint32).at[route.unique_of].add(jnp.uint32(1))
        number = jnp.concatenate([route.unique_of, jnp.full(1, n, jnp.int32)])
        for t in counted:
            live = positions[t] < n
            here = uses[number[positions[t]]]
            parts.append(jnp.where(live, here, jnp.uint32(0)))
    received = exchange(parts, sections.axes)
    tables = len(sections.tables)
    counts = [each.reshape(-1) for each in received[tables:]]
    return (
        [each.reshape(-1, 2) for each in received[:tables]],
        dict(zip(counted, counts, strict=True)),
    )


def send_back(sections: Sections, rows: Sequence[jax.Array]) -> list[jax.Array]:
    """Rows of the ids that owners got, to the devices that asked for them."""
    parts = [
        each.reshape(sections.shards, capacity, -1)
        for each, capacity in zip(rows, sections.capacities, strict=True)
    ]
    received = exchange(parts, sections.axes)
    return [each.reshape(-1, each.shape[-1]) for each in received]


def send_gradients(
    sections: Sections, route: Route, sums: Sequence[jax.Array], window: Window
) -> list[jax.Array]:
    """Summed gradients, float32[size, dim] by position, to the owners of the rows."""
    parts = []
    positions = positions_of(sections, route, window)
    n = route.first.shape[0]
    for each, position, start in zip(sums, positions, sections.starts, strict=True):
        place = jnp.where(position < n, position - start, each.shape[0])
        part = jnp.take(each, place, axis=0, mode="fill", fill_value=0)
        parts.append(part.astype(sections.gradient_dtype))
    received = exchange(parts, sections.axes)
    return [each.reshape(-1, each.shape[-1]) for each in received]


def next_window(
    sections: Sections, route: Route, ids: UInt32[Array, "n 2"], begin: jax.Array
) -> Window:
    """As many ids as fit, the same range of hashes on every device.

    So every row travels in one round only, whichever devices have it, and an update
    sees the whole of its gradient. At least one device fills a section that is not
    done, so the rounds end.
    """
    ends = sections.by_table(route.starts[1:])
    capacity = jnp.array(sections.capacities, jnp.int32)[:, None]
    fill = jnp.concatenate([ids, padding((1,))])

    def hashes(number, end):
        n = route.first.shape[0]
        position = jnp.take(route.first, number, mode="fill", fill_value=n)
        return hash_words(fill[jnp.where(number < end, position, n)])

    # The first id of a section that does not fit, on the device where it is smallest.
    over = begin + capacity < ends
    low, high = hashes(begin + capacity, ends)
    ones = jnp.uint32(0xFFFFFFFF)
    any_over = jax.lax.pmax(over.astype(jnp.int32), sections.axes) > 0
    high = jnp.where(over, high, ones)
    limit_high = jax.lax.pmin(high, sections.axes)
    low = jnp.where(over & (high == limit_high), low, ones)
    limit_low = jax.lax.pmin(low, sections.axes)

    end = []
    for t, places in enumerate(sections.capacities):
        number = _numbers(begin[t], places)
        low, high = hashes(number, ends[t][:, None])
        h, lo = limit_high[t][:, None], limit_low[t][:, None]
        before = (high < h) | ((high == h) & (low < lo)) | ~any_over[t][:, None]
        live = number < ends[t][:, None]
        end.append(begin[t] + jnp.sum(before & live, axis=1, dtype=jnp.int32))
    return Window(begin, jnp.stack(end))
