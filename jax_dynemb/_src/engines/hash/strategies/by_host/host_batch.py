# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Brings the ids of a host's devices together, so that each crosses to others once.

Each device of the host is the gateway of a share of all ids, which a hash of its own
chooses. So the ids of a gateway are spread evenly over the owners of a table, whatever
the order of devices is. Where the ids of a device do not fit, all devices of its host
keep their own: that moves more, and changes no result.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb._src.engines.hash.exchange import (
    DeviceBatch,
    ExchangeBuffers,
    ExchangeLayout,
    IdNumbers,
    Input,
    Places,
    RoundRange,
    Route,
    capacity_of,
    first_begin,
    ids_and_uses_here,
    in_order,
    places_of,
    route_of,
    send_first,
    tables_of,
    whole_range,
    wire_dtype,
    wire_of,
)
from jax_dynemb._src.engines.hash.layouts import Placement
from jax_dynemb._src.engines.hash.links import Links
from jax_dynemb._src.engines.hash.strategies.row_wise.sent_ids import numbers_of
from jax_dynemb._src.ops import FeatureInput, RouteTable, as_words, one_row_each
from jax_dynemb._src.spec import TableSpec

# The hash that chooses the gateway of an id has the seed of its table and this number,
# the golden ratio in 64 bits. Any other number than 0 would do.
_OTHER_SEED = 0x9E3779B97F4A7C15


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class GatheredIds:
    """Holds the ids of which a device is the gateway; every array is of one device.

    Attributes:
      route: where the distinct ids of this device went.
      fits: bool[1], whether they went there; if not, ``ids`` are this device's own.
      ids: by feature that stands for its table, uint32[places, 2].
      uses: likewise, as ``FeatureInput.uses``.
    """

    route: Route
    fits: jax.Array
    ids: dict[str, jax.Array]
    uses: dict[str, jax.Array]


@dataclasses.dataclass(frozen=True)
class HostBatch:
    """Describes the features of which a host gathers the ids.

    Attributes:
      batch: of this device, with a name of its own for each table of a stack.
      standing: of each table of the batch, its stack and a feature of it.
    """

    batch: DeviceBatch
    standing: tuple[tuple[str, str], ...]

    @property
    def exchange(self) -> ExchangeLayout:
        """Describes the exchange within the host."""
        return self.batch.exchange

    def wire(self) -> ExchangeBuffers:
        """Describes the arrays in which rows travel."""
        return wire_of(self.exchange, self.exchange.rows())

    def wire_of_gradients(self) -> ExchangeBuffers:
        """Describes the arrays in which sums of gradients travel."""
        return wire_of(self.exchange, self.exchange.gradients())

    def gather(self, with_numbers: bool) -> GatheredIds:
        """Sends ids to their gateways, with how often each occurs if need be."""
        batch, exchange = self.batch, self.exchange
        # Owners count hits of all devices, so the uses of each id travel.
        numbers = IdNumbers()
        if with_numbers:
            numbers = numbers_of(batch, counts_all=True)
        id_route = route_of(batch)
        first = send_first(batch, id_route, numbers)
        ids, uses, fits = first.ids, first.uses, first.fits
        if not exchange.always_fit:
            own, own_uses = ids_and_uses_here(
                exchange, id_route, batch.ids, self.own_range(id_route), numbers
            )
            ids = jnp.where(fits, ids, own)
            uses = {t: jnp.where(fits, x, own_uses[t]) for t, x in uses.items()}
        parts = exchange.cut(exchange.of_tables(ids))
        names = [feature for _, feature in self.standing]
        return GatheredIds(
            id_route,
            fits[None],
            dict(zip(names, parts, strict=True)),
            {names[t]: each for t, each in uses.items()},
        )

    def inputs(self, gathered: GatheredIds) -> list[Input]:
        """Returns one feature for each table, as its gateway looks it up."""
        result = []
        for stack, feature in self.standing:
            ids, uses = gathered.ids[feature], gathered.uses.get(feature)
            layout = one_row_each(feature, stack, ids.shape[0])
            result.append((layout, FeatureInput(ids, None, None, uses=uses)))
        return result

    def sent_range(self, id_route: Route, fits: jax.Array) -> RoundRange:
        """Returns the range of all ids, or an empty one where they stayed here."""
        begin = first_begin(self.batch, id_route)
        return whole_range(self.batch, id_route, fits, begin)

    def own_range(self, id_route: Route) -> RoundRange:
        """Fills the sections of a table with its ids one after the other.

        They are the ids that this device keeps if they do not fit. All sections of a
        table have as many places as it has ids, so these fit.
        """
        starts = self.exchange.by_table(id_route.starts[:-1])[:, :1]
        ends = self.exchange.by_table(id_route.starts[1:])[:, -1:]
        rooms = np.array(self.exchange.capacities, np.int32)[:, None]
        before = np.arange(self.exchange.shards, dtype=np.int32)[None] * rooms
        begin = jnp.minimum(starts + before, ends)
        return RoundRange(begin, jnp.minimum(begin + rooms, ends))

    def places(self, id_route: Route, fits: jax.Array) -> Places:
        """Finds the places of ids, at their gateways or here."""
        sent = places_of(self.exchange, id_route, self.sent_range(id_route, fits))
        if self.exchange.always_fit:
            return sent
        own = self.own_places(id_route, fits)
        pairs = zip(sent, own, strict=True)
        return Places(*(jnp.where(fits, there, here) for there, here in pairs))

    def own_places(self, id_route: Route, fits: jax.Array) -> Places:
        """Finds the places of ids that stayed here."""
        n = id_route.first.shape[0]
        table = tables_of(self.exchange)
        begin = self.exchange.by_table(id_route.starts[:-1])[:, 0][table]
        number = id_route.unique_of - begin
        room = jnp.array(self.exchange.capacities, jnp.int32)[table]
        live = ~fits & (id_route.unique_of < n)
        return Places(number // room, table, number % room, live)


def make_host_batch(
    placement: Placement,
    links: Links,
    tables: Sequence[TableSpec],
    inputs: Sequence[Input],
) -> HostBatch:
    """Puts the features of these tables in order.

    Args:
      placement: of the collection.
      links: between the devices of a host.
      tables: those whose ids are gathered, as a shard sees them.
      inputs: layouts and arrays of the features on this device; others are left out.
    """
    ordered = in_order(placement, tables, inputs, lambda one: one[0])
    by_name = {table.name: table for table in tables}
    specs, parts, renamed, standing = [], [], [], []
    groups = itertools.groupby(
        ordered, lambda one: (one[0].table, placement.block_of(one[0]))
    )
    for number, ((name, block), some) in enumerate(groups):
        features = list(some)
        spec = dataclasses.replace(by_name[name], name=f"{name} {block}")
        renamed += [(dataclasses.replace(x, table=spec.name), y) for x, y in features]
        specs.append(spec)
        standing.append((name, features[0][0].feature))
        seed = (spec.hash_seed + _OTHER_SEED) % 2**64
        size = sum(layout.num_ids for layout, _ in features)
        parts.append(RouteTable(size, number * links.shards, links.shards, seed))
    exchange = ExchangeLayout(
        tables=tuple(specs),
        parts=tuple(parts),
        sizes=tuple(part.size for part in parts),
        capacities=tuple(capacity_of(p.size, links.shards, 1.0) for p in parts),
        dtypes=tuple(wire_dtype(placement, by_name[name]) for name, _ in standing),
        gradient_dtype="float32",  # they are rounded once, between hosts
        links=links,
    )
    ids = jnp.concatenate([as_words(one.ids) for _, one in renamed])
    return HostBatch(DeviceBatch(exchange, renamed, ids), tuple(standing))
