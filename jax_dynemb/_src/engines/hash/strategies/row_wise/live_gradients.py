# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Gradients of several lookups, of which a later one took the rows of an earlier one.

They travel in one exchange, which finds the slots of their ids. So before it, owners
say which ids still have the rows that their own lookup returned. The other gradients
are dropped as one device drops them: those of evicted rows are counted, those of ids
that had none are not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jax_dynemb._src.checked_loops import scan
from jax_dynemb._src.engines.hash.exchange import (
    DeviceBatch,
    RoundRange,
    Route,
    first_begin,
    found_parts,
    further_rounds,
    in_order,
    local_found_flags,
    make_batch,
    make_pooled_batch,
    places_of,
    send_ids_and_slots,
    whole_range,
)
from jax_dynemb._src.engines.hash.layouts import Placement
from jax_dynemb._src.engines.hash.strategies.row_wise.exchange_residual import (
    ExchangeResidual,
)
from jax_dynemb._src.engines.hash.strategies.rows_of_ids import slots_of
from jax_dynemb._src.engines.hash.strategies.strategy import LookupGradients, States
from jax_dynemb._src.ops import (
    FeatureGradient,
    FeatureInput,
    FeatureResidual,
    TableState,
    add_to_counter,
    as_words,
    joined,
    padding,
)
from jax_dynemb._src.spec import TableSpec

# By feature, uint8[ids of this device]: whether an id still has its row.
Flags = dict[str, jax.Array]


def live_gradients(
    placement: Placement,
    tables: Sequence[TableSpec],
    lookups: Sequence[LookupGradients],
    states: States,
) -> tuple[list[FeatureGradient], dict[str, TableState]]:
    """Makes padding of the ids that have lost their rows.

    Args:
      placement: of the collection.
      tables: those of the update, as a shard sees them.
      lookups: their gradients on this device.
      states: of this device.

    Returns:
      The gradients, and the states in which lost ones are counted.
    """
    features, new = [], dict(states)
    for one in lookups:
        flags, new = _flags_of(placement, tables, one, new)
        features += [_masked(f, flags[f.layout.feature]) for f in one.features]
    return features, new


def _masked(feature: FeatureGradient, live: jax.Array) -> FeatureGradient:
    ids = as_words(feature.ids)
    ids = jnp.where(live.reshape(-1, 1) > 0, ids, padding((ids.shape[0],)))
    return dataclasses.replace(feature, ids=ids)


def _flags_of(
    placement: Placement,
    tables: Sequence[TableSpec],
    lookup: LookupGradients,
    states: dict[str, TableState],
) -> tuple[Flags, dict[str, TableState]]:
    """Reads the flags of one lookup, or of several that ``lax.scan`` has stacked."""
    asked, stacked = (lookup.residuals, lookup.kept), lookup.stacked

    def body(states: dict[str, TableState], one: Any) -> Any:
        residuals, kept = one
        flags, states = _flags_of_one(placement, tables, residuals, kept, states)
        return states, flags

    if not stacked:
        states, flags = body(states, asked)
        return flags, states
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[stacked:]), asked)
    states, flags = scan(body, states, flat)
    return flags, states


def _flags_of_one(
    placement: Placement,
    tables: Sequence[TableSpec],
    residuals: Sequence[FeatureResidual],
    kept: ExchangeResidual,
    states: dict[str, TableState],
) -> tuple[Flags, dict[str, TableState]]:
    names = {each.layout.table for each in residuals}
    rows = [t for t in tables if t.name in names and t.name not in kept.bags]
    sums = [t for t in tables if t.name in kept.bags]
    flags: Flags = {}
    if rows:
        flags, states = _of_rows(placement, rows, residuals, kept, states)
    if sums:
        of_sums, states = _of_sums(placement, sums, residuals, kept, states)
        flags |= of_sums
    return flags, states


def _of_rows(
    placement: Placement,
    tables: Sequence[TableSpec],
    residuals: Sequence[FeatureResidual],
    kept: ExchangeResidual,
    states: dict[str, TableState],
) -> tuple[Flags, dict[str, TableState]]:
    """Reads the flags of the distinct ids of a lookup, in as many rounds as it took."""
    ordered = in_order(placement, tables, residuals, lambda each: each.layout)
    inputs = [(each.layout, FeatureInput(each.ids, None, None)) for each in ordered]
    batch, slots = (
        make_batch(placement, tables, inputs),
        jnp.concatenate([each.slots for each in ordered]),
    )
    assert kept.route is not None and kept.fits is not None
    assert kept.received is not None
    route, fits = kept.route, kept.fits[0]
    first = whole_range(batch, route, fits, first_begin(batch, route))
    none = jnp.zeros(batch.ids.shape[0], jnp.uint8)
    received = kept.received.select(batch.exchange.tables)

    def one(round_range: RoundRange, carry: _Answers) -> _Answers:
        received = send_ids_and_slots(
            batch.exchange, route, batch.ids, slots, round_range
        )
        return _answered(batch, route, round_range, received, carry)

    carry = _answered(batch, route, first, received, _Answers(none, states))
    _, (flags, states) = further_rounds(batch, route, fits, carry, one)
    return batch.by_feature(flags), states


class _Answers(NamedTuple):
    """Holds what the rounds so far have made: flags of all ids, and the states."""

    flags: jax.Array
    states: dict[str, TableState]


def _answered(
    batch: DeviceBatch,
    route: Route,
    round_range: RoundRange,
    received: tuple[jax.Array, jax.Array],
    carry: _Answers,
) -> _Answers:
    """Sends back which of the ids that an owner received still have their rows."""
    exchange, states, parts = batch.exchange, carry.states, []
    of_tables = [exchange.cut(each) for each in received]
    for table, ids, slots in zip(exchange.tables, *of_tables, strict=True):
        live, states = _still_there(table, states, ids, slots)
        parts.append(live)
    (answers,) = exchange.links.all_to_all([exchange.of_shards(joined(parts))])
    places = places_of(exchange, route, round_range)
    flags = places.answers(answers, exchange.capacities, 0)
    return _Answers(carry.flags | flags, states)


def _of_sums(
    placement: Placement,
    tables: Sequence[TableSpec],
    residuals: Sequence[FeatureResidual],
    kept: ExchangeResidual,
    states: dict[str, TableState],
) -> tuple[Flags, dict[str, TableState]]:
    """Reads those of bags whose sums travelled: each id as often as it occurs."""
    names = {table.name for table in tables}
    mine = [each for each in residuals if each.layout.table in names]
    asked = {each.layout.feature: FeatureInput(each.ids, None, None) for each in mine}
    bags = make_pooled_batch(placement, tables, [each.layout for each in mine], asked)
    owned, live = [one for table in tables for one in kept.bags[table.name]], []
    for one in owned:
        table = next(t for t in tables if t.name == one.layout.table)
        flags, states = _still_there(table, states, as_words(one.ids), one.slots)
        live.append(flags)
    inputs = [(one.layout, FeatureInput(one.ids, one.offsets, None)) for one in owned]
    parts = found_parts(bags, inputs, live)
    return local_found_flags(bags, bags.links.all_to_all(parts)), states


def _still_there(
    table: TableSpec,
    states: dict[str, TableState],
    ids: jax.Array,
    slots: jax.Array,
) -> tuple[jax.Array, dict[str, TableState]]:
    """Marks the ids that are in their slots of before, uint8[n]; counts the others."""
    now, states = slots_of(table, states, ids)
    had = slots >= 0
    live = had & (now == slots)
    lost = jnp.sum(had & ~live, dtype=jnp.uint32)
    state, row = states[table.state_name], table.first_row
    state = add_to_counter(state, row, "lost_updates", lost)
    return live.astype(jnp.uint8), {**states, table.state_name: state}
