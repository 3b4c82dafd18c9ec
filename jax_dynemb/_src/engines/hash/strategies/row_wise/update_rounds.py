# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Updates of row-wise tables, as one device runs them inside shard_map."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import jax

from jax_dynemb._src.engines.hash.exchange import (
    DeviceBatch,
    ExchangeBuffers,
    PooledBatch,
    RoundRange,
    Route,
    exchange_gradients,
    fitting,
    further_rounds,
    in_order,
    live_sums,
    make_batch,
    make_pooled_batch,
    owner_gradients,
    places_of,
    route,
    send_ids,
    send_ids_and_slots,
    whole_range,
    wire_of,
)
from jax_dynemb._src.engines.hash.layouts import Placement
from jax_dynemb._src.engines.hash.strategies.row_wise.exchange_residual import (
    ExchangeResidual,
)
from jax_dynemb._src.engines.hash.strategies.row_wise.live_gradients import (
    live_gradients,
)
from jax_dynemb._src.engines.hash.strategies.row_wise.round_counters import same_step
from jax_dynemb._src.engines.hash.strategies.rows_of_ids import of_rows, slots_of
from jax_dynemb._src.engines.hash.strategies.strategy import (
    LookupGradients,
    States,
    Update,
)
from jax_dynemb._src.ops import (
    FeatureGradient,
    FeatureInput,
    FeatureResidual,
    TableState,
    is_one_call,
    joined,
    sum_rows,
)
from jax_dynemb._src.spec import TableSpec

# Of one round: the ids that the owner receives, and their slots, table after table.
Received = tuple[jax.Array, jax.Array]


def apply_gradients(
    placement: Placement,
    tables: Sequence[TableSpec],
    lookups: Sequence[LookupGradients],
    states: States,
    update: Update,
    all_fits: bool,
) -> dict[str, TableState]:
    """See ``Strategy``: sums of rows travel, or of bags where the lookup sent those."""
    kept: ExchangeResidual | None = None
    if len(lookups) == 1 and not lookups[0].stacked and not all_fits:
        kept, features = lookups[0].kept, lookups[0].features
    else:
        features, states = live_gradients(placement, tables, lookups, states)
    names = set() if kept is None else {t.name for t in tables} & set(kept.bags)
    pooled = _PooledGradients.of(
        placement, [t for t in tables if t.name in names], features, kept
    )
    tables = [t for t in tables if t.name not in names]
    if not tables:
        return update(states, pooled.exchange())
    ordered = in_order(placement, tables, features, lambda f: f.layout)
    inputs = [(f.layout, FeatureInput(f.ids, None, None)) for f in ordered]
    factor = float(placement.shards) if all_fits else None
    batch = make_batch(placement, tables, inputs, factor)
    if kept is None or kept.route is None or kept.received is None:
        id_route = route(batch.ids, batch.exchange.parts, batch.exchange.segments)
        fits, received, slots = fitting(batch, id_route), None, None
    else:
        assert kept.fits is not None and kept.later is not None
        id_route, fits = kept.route, kept.fits[0]
        received = kept.received.select(batch.exchange.tables)
        slots = kept.later.of(ordered)
    rounds = _Rounds(batch, id_route, ordered, slots, pooled, update)
    # On a GPU the host waits for the answer whether there is another round. What always
    # follows needs ``begin``, so it comes after that: while the GPU works on it, the
    # host gets ahead again.
    begin, states = further_rounds(batch, id_route, fits, states, rounds.earlier)
    return rounds.last(states, whole_range(batch, id_route, fits, begin), received)


@dataclasses.dataclass(frozen=True)
class _PooledGradients:
    """Holds gradients of the bags whose sums the lookup exchanged.

    Attributes:
      bags: of these features.
      features: gradients of this device.
      owned: the bags that this device pooled as an owner.
    """

    bags: PooledBatch
    features: Sequence[FeatureGradient]
    owned: list[FeatureResidual]

    @classmethod
    def of(
        cls,
        placement: Placement,
        tables: Sequence[TableSpec],
        features: Sequence[FeatureGradient],
        kept: ExchangeResidual | None,
    ) -> _PooledGradients:
        bags = make_pooled_batch(placement, tables, [f.layout for f in features], {})
        owned = [] if kept is None else [b for t in tables for b in kept.bags[t.name]]
        return cls(bags, features, owned)

    def exchange(self, first_array: int = 0) -> list[FeatureGradient]:
        """Returns those of the bags that this device has pooled.

        Args:
          first_array: in an update with other arrays, how many those are at most.
        """
        if not self.owned:
            return []
        arrays, views = exchange_gradients(self.bags, self.features)
        views = [dataclasses.replace(v, array=first_array + v.array) for v in views]
        return owner_gradients(self.owned, arrays, views)


@dataclasses.dataclass(frozen=True)
class _Rounds:
    """Runs one update, in as many rounds as its distinct ids need.

    Attributes:
      batch: the features whose rows travel.
      id_route: where their distinct ids go.
      features: their gradients, in the order of the batch.
      slots: of the ids that did not travel in the first round of the lookup; None: they
        are to be found.
      pooled: what travels with the last round.
      update: updates tables by their optimizers.
    """

    batch: DeviceBatch
    id_route: Route
    features: Sequence[FeatureGradient]
    slots: jax.Array | None
    pooled: _PooledGradients
    update: Update

    def earlier(self, round_range: RoundRange, states: States) -> dict[str, TableState]:
        """Runs a round that is not the last; it does not count as a step."""
        exchange = self.batch.exchange
        wire = wire_of(exchange, exchange.gradients())
        received, before = self._received(round_range, states)
        sums = _sent_sums(self.batch, self.id_route, round_range, self.features, wire)
        arrived = sums.exchange(wire, round_range)
        new = self.update(before, self._of_ids(received, arrived, wire))
        for name in {table.state_name for table in exchange.tables}:
            # What is stored once moves on once, in the last round.
            again = same_step(new[name], states[name])
            again = dataclasses.replace(again, extra=states[name].extra)
            new = new | {name: again}
        return new

    def last(
        self, states: States, round_range: RoundRange, received: Received | None
    ) -> dict[str, TableState]:
        """Runs the last round; ``received`` is known if it is the lookup's first."""
        exchange = self.batch.exchange
        wire = wire_of(exchange, exchange.gradients())
        of_batch = self.batch, self.id_route, round_range, self.features
        sums = _sent_sums(*of_batch, wire, all_travel=True)
        if received is None:
            received, states = self._received(round_range, states)
        gradients = self._of_ids(received, sums.exchange(wire, round_range), wire)
        gradients += self.pooled.exchange(len(wire.views))
        return self.update(states, gradients)

    def _received(
        self, round_range: RoundRange, states: States
    ) -> tuple[Received, States]:
        """Sends the ids again, with their slots or to find them."""
        exchange = self.batch.exchange
        if self.slots is not None:
            of_ids = self.id_route, self.batch.ids, self.slots
            return send_ids_and_slots(exchange, *of_ids, round_range), states
        ids = send_ids(exchange, self.id_route, self.batch.ids, round_range)
        parts = []
        for table, each in zip(exchange.tables, exchange.cut(ids), strict=True):
            slots, states = slots_of(table, states, each)
            parts.append(slots)
        return (ids, joined(parts)), states

    def _of_ids(
        self, received: Received, arrived: list[jax.Array], wire: ExchangeBuffers
    ) -> list[FeatureGradient]:
        exchange = self.batch.exchange
        parts = [exchange.cut(each) for each in received]
        of_tables = zip(exchange.tables, *parts, arrived, wire.views, strict=True)
        gradients = [of_rows(*each) for each in of_tables]
        return [dataclasses.replace(g, shared=received) for g in gradients]


class _Sums(NamedTuple):
    """Holds sums of gradients of a round.

    Attributes:
      arrays: of the wire, by number.
      arrived: whether they are those that this device gets, or those that it has.
    """

    arrays: dict[int, jax.Array]
    arrived: bool

    def exchange(
        self, wire: ExchangeBuffers, round_range: RoundRange
    ) -> list[jax.Array]:
        """Returns the array of each piece as it arrives."""
        mine = [self.arrays[view.array] for view in wire.views]
        return mine if self.arrived else wire.exchange(mine, live_sums(round_range))


def _sent_sums(
    batch: DeviceBatch,
    id_route: Route,
    round_range: RoundRange,
    features: Sequence[FeatureGradient],
    wire: ExchangeBuffers,
    *,
    all_travel: bool = False,
) -> _Sums:
    """Sums this device's gradients of each distinct id, into its place on the wire.

    Places without an id are not written: an owner reads those of its ids only. GPUs
    that read each other's memory write sums to the owners. In a round in which all ids
    travel or none, the order of the route is that of sums.
    """
    exchange = batch.exchange
    places = places_of(exchange, id_route, round_range)
    groups = places.groups(exchange.capacities)
    sources = numbered(batch, features, groups)
    capacities = [exchange.shards * room for room in exchange.capacities]
    where, names = wire.views, [f.layout.table for f in features]
    arrived = bool(wire.links.peers) and is_one_call(exchange.tables, names)
    if arrived:
        # The route has padding last of each part of a table, and a sort last of all.
        is_order = all_travel and len(exchange.parts) == len(exchange.tables)
        order = id_route.order if is_order else None
        sums = wire.links.sum_rows(exchange.tables, capacities, sources, where, order)
    else:
        sums = sum_rows(exchange.tables, capacities, sources, where)
    return _Sums({w.array: x for w, x in zip(where, sums, strict=True)}, arrived)


def numbered(
    batch: DeviceBatch, features: Sequence[FeatureGradient], groups: jax.Array
) -> list[FeatureGradient]:
    """Gives gradients the numbers of the groups that ``sum_rows`` adds them to.

    Args:
      batch: the ids.
      features: their gradients, in the order of the batch.
      groups: int32[ids], negative where an id has none.
    """
    return [
        dataclasses.replace(f, slots=mine, shared=(None, groups))
        for f, mine in zip(features, batch.cut(groups), strict=True)
    ]
