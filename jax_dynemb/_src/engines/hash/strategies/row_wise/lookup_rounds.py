# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Training lookups of split tables, as one device runs them inside shard_map."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jax_dynemb._src import ops
from jax_dynemb._src.engines.hash.exchange import (
    DeviceBatch,
    Owned,
    PooledBatch,
    RoundRange,
    Route,
    exchange_rows,
    finalize_pooling,
    first_begin,
    further_rounds,
    inputs_of_ids,
    kept_if,
    lookup_sums,
    on_the_wire,
    owner_inputs,
    owner_residuals,
    places_of,
    pooled_outputs,
    pooling_of_rows,
    send_ids_and_uses,
    whole_range,
    wire_of,
)
from jax_dynemb._src.engines.hash.strategies.row_wise.exchange_residual import (
    ReceivedIds,
)
from jax_dynemb._src.engines.hash.strategies.row_wise.round_counters import (
    count_exchange,
    same_lookup,
)
from jax_dynemb._src.engines.hash.strategies.row_wise.sent_ids import (
    SentIds,
    numbers_of,
)
from jax_dynemb._src.ops import (
    FeatureResidual,
    TableState,
    after,
    join_uses,
    slots_of_all,
)
from jax_dynemb._src.spec import TableSpec

States = Mapping[str, TableState]


class _Carry(NamedTuple):
    """Holds what the rounds so far have made.

    Attributes:
      total: rows by feature.
      slots: of all ids, those of further rounds.
      states: the states.
    """

    total: list[jax.Array]
    slots: jax.Array
    states: dict[str, TableState]


@dataclasses.dataclass(frozen=True)
class Rounds:
    """Holds the results of all rounds of a lookup.

    Attributes:
      route: where the ids went.
      fits: bool[], whether the first round was the only one.
      received: the ids of the first round, and their slots.
      later: the owners' slots of the ids of further rounds, int32[ids of this device];
        negative for those of the first.
      bags: what the owner pooled, for each of ``PooledBatch.features``.
      outputs: by feature, rows and the scale of a mean.
      states: the new states.
    """

    route: Route | None
    fits: jax.Array | None
    received: ReceivedIds | None
    later: jax.Array | None
    bags: list[FeatureResidual]
    outputs: dict[str, tuple[jax.Array, jax.Array | None]]
    states: dict[str, TableState]


def lookup(
    batch: DeviceBatch | None,
    bags: PooledBatch,
    sent: SentIds,
    states: States,
    scores: Mapping[str, jax.Array],
) -> Rounds:
    """Looks up the row-wise tables and inserts unseen ids.

    Args:
      batch: of the features whose rows travel, if there are any.
      bags: of those whose sums do.
      sent: what ``send`` sent of both.
      states: of this device.
      scores: by table, what customized scores are.
    """
    if batch is None:
        return _sums_alone(bags, sent, states, scores)
    if bags.is_pushed:
        of_bags = _sums_alone(bags, sent, states, scores)
        sent = dataclasses.replace(sent, bags=[])
        rounds = lookup(batch, bags.empty(), sent, of_bags.states, scores)
        outputs = rounds.outputs | of_bags.outputs
        return dataclasses.replace(rounds, bags=of_bags.bags, outputs=outputs)
    exchange, tables = batch.exchange, batch.exchange.tables
    id_route, demand = sent.route, sent.demand
    assert id_route is not None and sent.ids is not None
    assert sent.fits is not None and demand is not None
    fits = sent.fits[0]
    ids, uses = kept_if(fits, exchange, sent.ids, sent.uses)
    round_range = whole_range(batch, id_route, fits, first_begin(batch, id_route))
    inputs = owner_inputs(bags, sent.bags)
    used = [*on_the_wire(batch, tables), *bags.tables]
    own_uses = joined_uses(tables, uses, scores)
    wire = wire_of(exchange, [*exchange.rows(), *bags.rows()])
    pooling = pooling_of_rows(batch, wire)
    asked = [*inputs_of_ids(exchange, tables, ids, own_uses, pooling), *inputs]
    owned, new, _ = ops.lookup(used, states, asked, scores_of(scores, used), wire.views)
    count = len(tables)
    of_ids, of_bags = owned[:count], owned[count:]
    new = dict(states) | new
    slots = slots_of_all(of_ids)
    mine = Owned([o["rows"] for o in owned], slots, new)
    total, arrived, read = exchange_rows(batch, wire, mine, id_route, round_range)
    kept = owner_residuals(inputs, [o["slots"] for o in of_bags])
    results = pooled_outputs(
        bags, [wire.part(n, x) for n, x in enumerate(arrived, count)]
    )

    def one(round_range: RoundRange, carry: _Carry) -> _Carry:
        return _later_round(batch, id_route, round_range, scores, carry)

    none = jnp.full(batch.ids.shape[0], -1, jnp.int32)
    carry = _Carry(total, none, new)
    _, (total, later, new) = further_rounds(batch, id_route, fits, carry, one)
    new = count_exchange(exchange, new, after(demand, read), ~fits)
    for (layout, _), result in zip(
        batch.inputs, finalize_pooling(batch, total), strict=True
    ):
        results[layout.feature] = result
    received = ReceivedIds.of(tables, exchange.counts, ids, slots)
    return Rounds(id_route, fits, received, later, kept, results, new)


def _sums_alone(
    bags: PooledBatch, sent: SentIds, states: States, scores: Mapping[str, jax.Array]
) -> Rounds:
    """Looks up the features that exchange sums, by a call of their own."""
    inputs, wire = owner_inputs(bags, sent.bags), bags.wire()
    found, sums, new = lookup_sums(bags, states, inputs, scores_of(scores, bags.tables))
    kept = owner_residuals(inputs, [each["slots"] for each in found])
    results = pooled_outputs(bags, [wire.part(n, x) for n, x in enumerate(sums)])
    return Rounds(None, None, None, None, kept, results, dict(states) | new)


def _later_round(
    batch: DeviceBatch,
    id_route: Route,
    round_range: RoundRange,
    scores: Mapping[str, jax.Array],
    carry: _Carry,
) -> _Carry:
    """Continues a lookup with the ids of another range."""
    exchange, tables = batch.exchange, batch.exchange.tables
    total, slots, states = carry
    received, uses, _ = send_ids_and_uses(
        exchange, id_route, batch.ids, round_range, numbers_of(batch)
    )
    ids = exchange.of_tables(received)
    again, before = same_lookup(tables, states)
    configs = on_the_wire(batch, again)
    wire = wire_of(exchange, exchange.rows())
    own_uses = joined_uses(configs, uses, scores)
    pooling = pooling_of_rows(batch, wire)
    asked = inputs_of_ids(exchange, configs, ids, own_uses, pooling)
    owned, new, _ = ops.lookup(
        configs, before, asked, scores_of(scores, configs), wire.views
    )
    new = before | new
    found = slots_of_all(owned)
    mine = Owned([o["rows"] for o in owned], found, new)
    total = exchange_rows(batch, wire, mine, id_route, round_range, total).sums
    places = places_of(exchange, id_route, round_range)
    part = exchange.of_shards(found)
    (answers,) = exchange.links.all_to_all([part])
    answers = places.answers(answers, exchange.capacities, -1)
    slots = jnp.maximum(slots, answers)
    return _Carry(total, slots, new)


def scores_of(
    scores: Mapping[str, jax.Array], tables: Sequence[TableSpec]
) -> jax.Array:
    """Lists what scores are, in the order of the tables."""
    return jnp.stack([scores[t.name] for t in tables])


def joined_uses(
    tables: Sequence[TableSpec],
    uses: Mapping[int, jax.Array],
    scores: Mapping[str, jax.Array],
) -> dict[int, jax.Array]:
    """Gives ids of customized tables that are only counted the score of their table."""
    result = {}
    for t, each in uses.items():
        if each.ndim == 1:
            own = scores[tables[t].name]
            each = join_uses(tables[t].score_strategy, each, None, own)
        result[t] = each
    return result
