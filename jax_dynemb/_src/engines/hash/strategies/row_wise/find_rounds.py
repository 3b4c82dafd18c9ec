# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Serving lookups of split tables, as one device runs them inside shard_map."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp

from jax_dynemb._src import ops
from jax_dynemb._src.engines.hash.exchange import (
    DeviceBatch,
    Owned,
    PooledBatch,
    RoundRange,
    Route,
    bags_to_owners,
    exchange_rows,
    finalize_pooling,
    find_sums,
    found_parts,
    further_rounds,
    inputs_of_ids,
    kept_if,
    local_found_flags,
    on_the_wire,
    owner_inputs,
    parts_to_owners,
    places_of,
    pooled_outputs,
    pooling_of_rows,
    route_of,
    send_first,
    send_ids,
    wire_of,
)
from jax_dynemb._src.ops import TableState, after, slots_of_all
from jax_dynemb._src.spec import TableSpec

States = Mapping[str, TableState]
ByFeature = dict[str, jax.Array]


@dataclasses.dataclass(frozen=True)
class _Answers:
    """Holds what one round returned.

    Attributes:
      total: by feature whose rows travel, those of all rounds so far.
      flags: uint8[ids]: which are in their tables, of all rounds so far.
      sums: by feature whose sums travel, the rows.
      found: of these, uint8[ids].
      states: the states.
      read: int32[1], see ``Arrived``.
    """

    total: list[jax.Array]
    flags: jax.Array
    sums: ByFeature
    found: ByFeature
    states: dict[str, TableState]
    read: jax.Array | None


def find(
    batch: DeviceBatch | None, bags: PooledBatch, states: States
) -> tuple[ByFeature, ByFeature, dict[str, TableState]]:
    """Looks up the row-wise tables without insertion.

    Args:
      batch: of the features whose rows travel, if there are any.
      bags: of those whose sums do.
      states: of this device.

    Returns:
      Rows, and found (uint8[num_ids]), by feature; and the states.
    """
    if batch is None:
        return _sums_alone(bags, states)
    if bags.is_pushed:
        sums, found_in_bags, states = _sums_alone(bags, states)
        rows, found, states = find(batch, bags.empty(), states)
        return rows | sums, found | found_in_bags, states
    exchange = batch.exchange
    id_route = route_of(batch)
    sent = send_first(batch, id_route, others=parts_to_owners(bags))
    flags = jnp.zeros(batch.ids.shape[0], jnp.uint8)
    carry = None, flags, states
    ids, _ = kept_if(sent.fits, exchange, sent.ids, sent.uses)
    first = _round(batch, bags, id_route, sent.round_range, ids, sent.others, *carry)
    no_bags = bags.empty()

    def one(round_range: RoundRange, carry: tuple) -> tuple:
        ids = send_ids(exchange, id_route, batch.ids, round_range)
        later = _round(batch, no_bags, id_route, round_range, ids, [], *carry)
        return later.total, later.flags, later.states

    carry = first.total, first.flags, first.states
    _, (total, flags, new) = further_rounds(batch, id_route, sent.fits, carry, one)
    names = [layout.feature for layout, _ in batch.inputs]
    rows = [row for row, _ in finalize_pooling(batch, total)]
    rows = dict(zip(names, rows, strict=True)) | first.sums
    new = _after(new, exchange.tables, first.read)
    return rows, batch.by_feature(flags) | first.found, new


def _after(
    states: dict[str, TableState], tables: Sequence[TableSpec], read: jax.Array | None
) -> dict[str, TableState]:
    """The same states, but not before peers have read the tables."""
    if read is None:
        return states
    new = dict(states)
    for name in {table.state_name for table in tables}:
        counters = after(states[name].counters, read)
        new[name] = dataclasses.replace(states[name], counters=counters)
    return new


def _sums_alone(
    bags: PooledBatch, states: States
) -> tuple[ByFeature, ByFeature, dict[str, TableState]]:
    """Finds the features that exchange sums, by a call of their own."""
    inputs = owner_inputs(bags, bags_to_owners(bags))
    owned, sums, new = find_sums(bags, states, inputs)
    wire = bags.wire()
    flags = bags.links.all_to_all(found_parts(bags, inputs, _found(owned)))
    rows = pooled_outputs(bags, [wire.part(n, x) for n, x in enumerate(sums)])
    found = local_found_flags(bags, flags)
    return {name: row for name, (row, _) in rows.items()}, found, dict(states) | new


def _round(
    batch: DeviceBatch,
    bags: PooledBatch,
    id_route: Route,
    round_range: RoundRange,
    ids: jax.Array,
    arrived: list[jax.Array],
    total: list[jax.Array] | None,
    flags: jax.Array,
    states: States,
) -> _Answers:
    exchange, tables = batch.exchange, batch.exchange.tables
    inputs, count = owner_inputs(bags, arrived), len(tables)
    wire = wire_of(exchange, [*exchange.rows(), *bags.rows()])
    pooling = pooling_of_rows(batch, wire)
    asked = inputs_of_ids(exchange, tables, ids, pooling=pooling)
    owned, new = ops.find(
        [*on_the_wire(batch, tables), *bags.tables],
        states,
        [*asked, *inputs],
        wire.views,
    )
    new = dict(states) | new
    slots = slots_of_all(owned[:count])
    mine = Owned([o["rows"] for o in owned], slots, new)
    total, arrived, read = exchange_rows(
        batch, wire, mine, id_route, round_range, total
    )
    found = (slots >= 0).astype(jnp.uint8)
    parts = [exchange.of_shards(found)]
    parts += found_parts(bags, inputs, _found(owned[count:]))
    own, *answers = exchange.links.all_to_all(parts)
    places = places_of(exchange, id_route, round_range)
    flags |= places.answers(own, exchange.capacities, 0)
    sums = [wire.part(n, x) for n, x in enumerate(arrived, count)]
    return _Answers(
        total=total,
        flags=flags,
        sums={name: row for name, (row, _) in pooled_outputs(bags, sums).items()},
        found=local_found_flags(bags, answers),
        states=new,
        read=read,
    )


def _found(owned: Sequence[Mapping[str, jax.Array]]) -> list[jax.Array]:
    return [o["found"] for o in owned]
