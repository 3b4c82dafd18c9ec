# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Gradients into sharded tables, as one device runs it inside shard_map."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jax_dynemb._spec import TableSpec
from jax_dynemb.engines.mesh import _column_wise, _replicated
from jax_dynemb.engines.mesh._bag_parts import gradient_parts, gradients_of_owner
from jax_dynemb.engines.mesh._bags import make_bags
from jax_dynemb.engines.mesh._batch import Batch, in_order, make_batch
from jax_dynemb.engines.mesh._counters import same_step
from jax_dynemb.engines.mesh._exchange import (
    Window,
    places_of,
    send_ids,
    wire_of,
)
from jax_dynemb.engines.mesh._placement import Placement
from jax_dynemb.engines.mesh._residual import ShardedResidual
from jax_dynemb.engines.mesh._rounds import fitting, further_rounds, whole_window
from jax_dynemb.engines.mesh._route import Route, route
from jax_dynemb.engines.mesh._wire import Wire
from jax_dynemb.ops import FeatureGradient, FeatureInput, TableState, sum_rows

States = Mapping[str, TableState]
# Updates the tables of these gradients once: (states, gradients) -> states.
Update = Callable[[States, list[FeatureGradient]], dict[str, TableState]]


def apply_gradients(
    placement: Placement,
    tables: Sequence[TableSpec],
    features: Sequence[FeatureGradient],
    only: ShardedResidual | None,
    states: States,
    update: Update,
    all_fits: bool = False,
) -> dict[str, TableState]:
    """One optimizer update of every row that the features touched on any device.

    Args:
      placement: of the collection.
      tables: those of the features, as a shard sees them.
      features: gradients of this device.
      only: the residual, if all features are those of one lookup.
      states: of this device.
      update: by the tables' optimizers.
      all_fits: make room for any skew, so that ``update`` runs once.
    """
    new = dict(states)
    copies = placement.with_strategy(tables, "replicated")
    if copies:
        mine = _of(features, copies)
        gathered, read = _replicated.gradients(placement.axes, copies, mine, states)
        new |= update(new | read, gathered)
    slices = placement.with_strategy(tables, "column_wise")
    if slices:
        mine = _of(features, slices)
        received = None if only is None else only.received
        gathered, read = _column_wise.gradients(placement, slices, mine, received, new)
        new |= update(new | read, gathered)
    split = placement.with_strategy(tables, "row_wise")
    if split:
        mine = _of(features, split)
        new = _row_wise(placement, split, mine, only, new, update, all_fits)
    return new


def _row_wise(placement, tables, features, only, states, update: Update, all_fits):
    pooled = [t for t in tables if only is not None and t.name in only.bags]
    names = [t.name for t in pooled]
    bags = make_bags(placement, pooled, [f.layout for f in features], {})
    parts = gradient_parts(bags, features)
    kept = [] if only is None else [one for name in names for one in only.bags[name]]
    tables = [t for t in tables if t.name not in names]
    if not tables:
        wire = bags.wire()
        arrived = wire.exchange(wire.filled({}, dict(enumerate(parts))))
        return update(states, gradients_of_owner(kept, arrived, wire.places))

    ordered = in_order(placement, tables, features, lambda f: f.layout)
    inputs = [(f.layout, FeatureInput(f.ids, None, None)) for f in ordered]
    factor = float(placement.shards) if all_fits else None
    batch = make_batch(placement, tables, inputs, factor)
    sections = batch.sections
    if only is None or only.route is None or only.fits is None:
        found = route(batch.ids, sections.parts, sections.segments)
        fits = fitting(batch, found)
        received = None
    else:
        found, fits = only.route, only.fits[0]
        received = [only.received[t.name] for t in tables]
    before, count = states, len(tables)

    def one(states, window, received, bags_too=False):
        wire = wire_of(
            sections, [*sections.gradients(), *(bags.rows() if bags_too else ())]
        )
        sums = summed(batch, found, window, ordered, wire)
        if received is None:
            received, states = _received(batch, found, window, states)
        others = dict(enumerate(parts, count)) if bags_too else {}
        arrived = wire.exchange(wire.filled(sums, others))
        of_ids = zip(tables, received, arrived[:count], wire.places, strict=False)
        rows = [_replicated.of_rows(t, i, s, g, w) for t, (i, s), g, w in of_ids]
        if bags_too:
            rows += gradients_of_owner(kept, arrived[count:], wire.places[count:])
        return update(states, rows)

    def earlier(window: Window, states: States) -> dict[str, TableState]:
        new = one(states, window, None)
        for t in tables:
            # What is stored once moves on once, in the last round.
            again = same_step(new[t.name], before[t.name])
            again = dataclasses.replace(again, extra=before[t.name].extra)
            new = new | {t.name: again}
        return new

    # On a GPU the host waits for the answer whether there is such a round. What always
    # follows needs ``begin``, so it comes after that: while the GPU works on it, the
    # host gets ahead again.
    begin, states = further_rounds(batch, found, fits, states, earlier)
    return one(states, whole_window(batch, found, fits, begin), received, True)


def _received(batch: Batch, found: Route, window: Any, states: States):
    """Asks again which ids these are, and finds their slots."""
    pairs = []
    ids = send_ids(batch.sections, found, batch.ids, window)
    for table, each in zip(batch.sections.tables, ids, strict=True):
        slots, states = _replicated.slots_of(table, states, each)
        pairs.append((each, slots))
    return pairs, states


def summed(
    batch: Batch,
    found: Route,
    window: Window,
    features: Sequence[FeatureGradient],
    wire: Wire,
) -> dict[int, jax.Array]:
    """Each distinct id's gradients of this device as one, in its place on the wire.

    Returns:
      The arrays of the wire by number. Places without an id are not written: an owner
      reads those of its ids only.
    """
    sections = batch.sections
    places = places_of(sections, found, window)
    rooms = [sections.shards * room for room in sections.capacities]
    slots = [jnp.where(p < n, p, -1) for p, n in zip(places, rooms, strict=True)]
    names, taken = [table.name for table in sections.tables], [0] * len(rooms)
    numbered = []
    for f in features:
        t = names.index(f.layout.table)
        mine = slots[t][taken[t] : taken[t] + f.layout.num_ids]
        taken[t] += f.layout.num_ids
        numbered.append(dataclasses.replace(f, slots=mine))
    where = wire.places[: len(rooms)]
    sums = sum_rows(sections.tables, rooms, numbered, where)
    return {w.array: x for w, x in zip(where, sums, strict=True)}


def _of(
    features: Sequence[FeatureGradient], tables: Sequence[TableSpec]
) -> list[FeatureGradient]:
    names = {table.name for table in tables}
    return [f for f in features if f.layout.table in names]
