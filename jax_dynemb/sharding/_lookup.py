# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Lookups of split tables, as one device runs them inside shard_map."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from jax_dynemb.config import ScoreStrategy, TableConfig
from jax_dynemb.ops import _lookup
from jax_dynemb.ops._layout import FeatureInput, one_row_each
from jax_dynemb.ops._residual import FeatureResidual
from jax_dynemb.ops._state import TableState
from jax_dynemb.sharding._bag_parts import (
    inputs_of_owner,
    outputs,
    parts_to_owners,
    residuals_of_owner,
)
from jax_dynemb.sharding._bags import Bags
from jax_dynemb.sharding._batch import Batch, add_rows, finished, zero_sums
from jax_dynemb.sharding._counters import add_uses, count_exchange, same_lookup
from jax_dynemb.sharding._exchange import (
    Window,
    exchange,
    next_window,
    places_of,
    send_ids_and_uses,
    wire_of,
)
from jax_dynemb.sharding._route import Route, route

States = Mapping[str, TableState]
# Of one round, by table: the array that its rows lie in, and one number (slot or found)
# for each place.
# Takes states, ids by table, and for LFU tables the uses of each id.
Owner = Callable[[States, list, dict], tuple[list, list, dict[str, TableState]]]


@dataclasses.dataclass(frozen=True)
class Looked:
    """What a lookup of a batch gives.

    Attributes:
      route: where the ids went.
      fits: bool[], whether the first round was the only one.
      received: by table, the ids of the first round, and their slots.
      bags: what the owner pooled, of each section of ``Bags``.
      outputs: by feature, rows and the scale of a mean.
      states: the new states.
    """

    route: Route | None
    fits: jax.Array | None
    received: list[tuple[jax.Array, jax.Array]]
    bags: list[FeatureResidual]
    outputs: dict[str, tuple[jax.Array, jax.Array | None]]
    states: dict[str, TableState]


def lookup(
    batch: Batch | None, bags: Bags, states: States, scores: Mapping[str, jax.Array]
) -> Looked:
    """Training lookup of the row-wise tables.

    Args:
      batch: of the features whose rows travel, if there are any.
      bags: of those whose sums do.
      states: of this device.
      scores: by table, what customized scores are.
    """

    def given(tables):
        return jnp.stack([scores[t.name] for t in tables])

    if batch is None:
        arrived = exchange(parts_to_owners(bags), bags.axes)
        inputs = inputs_of_owner(bags, arrived)
        wire = bags.wire()
        owned, new = _lookup.lookup(
            bags.tables, states, inputs, given(bags.tables), wire.places
        )
        sums = wire.exchange([o["rows"] for o in owned])
        kept = residuals_of_owner(inputs, [o["slots"] for o in owned])
        results = outputs(bags, [wire.part(n, x) for n, x in enumerate(sums)])
        return Looked(None, None, [], kept, results, dict(states) | new)

    sections, tables = batch.sections, batch.sections.tables
    found = route(batch.ids, sections.parts, sections.segments)
    fits, peaks = fitting(batch, found)
    window = first_window(batch, found, fits)
    ids, uses, arrived = send_ids_and_uses(
        sections, found, batch.ids, window, _counted(batch), parts_to_owners(bags)
    )
    inputs = inputs_of_owner(bags, arrived)
    used = [*_on_the_wire(batch, tables), *bags.tables]
    asked = [*_inputs(tables, ids), *inputs]
    wire = wire_of(sections, [*sections.rows(), *bags.rows()])
    owned, new = _lookup.lookup(used, states, asked, given(used), wire.places)
    of_ids, of_bags = owned[: len(ids)], owned[len(ids) :]
    slots = [o["slots"] for o in of_ids]
    new = _with_uses(tables, dict(states) | new, slots, uses)
    rows = wire.exchange([o["rows"] for o in owned])
    kept = residuals_of_owner(inputs, [o["slots"] for o in of_bags])
    sums = [wire.part(n, rows[n]) for n in range(len(ids), len(rows))]
    results = outputs(bags, sums)
    places = places_of(sections, found, window)
    total = add_rows(batch, zero_sums(batch), wire, rows, places)

    def later(states, ids, uses):
        pairs = [same_lookup(t, states[t.name]) for t in tables]
        continued = {t.name: state for t, (_, state) in zip(tables, pairs, strict=True)}
        configs = _on_the_wire(batch, [config for config, _ in pairs])
        before = dict(states) | continued
        wire = wire_of(sections, sections.rows())
        owned, new = _lookup.lookup(
            configs, before, _inputs(configs, ids), given(configs), wire.places
        )
        slots = [o["slots"] for o in owned]
        new = _with_uses(configs, dict(states) | new, slots, uses)
        return [o["rows"] for o in owned], slots, new

    total, new = _further_rounds(batch, found, fits, total, new, later)
    for t, table in enumerate(tables):
        capacity = sections.capacities[t]
        new[table.name] = count_exchange(new[table.name], capacity, peaks[t], ~fits)
    for (layout, _), result in zip(batch.inputs, finished(batch, total), strict=True):
        results[layout.feature] = result
    received = list(zip(ids, slots, strict=True))
    return Looked(found, fits, received, kept, results, new)


def find(
    batch: Batch, states: States
) -> tuple[list[jax.Array], list[jax.Array], dict[str, TableState]]:
    """Serving lookup: rows and found (uint8[num_ids]) by feature, and the states."""
    tables, sections = batch.sections.tables, batch.sections

    def owner(states, ids, _):
        wire = wire_of(sections, sections.rows())
        outputs, new = _lookup.find(
            _on_the_wire(batch, tables), states, _inputs(tables, ids), wire.places
        )
        return [o["rows"] for o in outputs], [o["found"] for o in outputs], new

    found = route(batch.ids, sections.parts, sections.segments)
    fits, _ = fitting(batch, found)
    flags = [jnp.zeros(size, jnp.uint8) for size in sections.sizes]
    _, _, (sums, flags), new = _with_flags(batch, found, fits, states, owner, flags)
    rows = [row for row, _ in finished(batch, sums)]
    return rows, _by_feature(batch, flags), new


def fitting(batch: Batch, found: Route) -> tuple[jax.Array, jax.Array]:
    """Whether one round is enough on every device; the most ids for one owner."""
    sections = batch.sections
    counts = sections.by_table(found.starts[1:] - found.starts[:-1])
    peaks = jax.lax.pmax(counts.max(axis=1), sections.axes)
    return (peaks <= jnp.array(sections.capacities, jnp.int32)).all(), peaks


def first_window(batch: Batch, found: Route, fits: jax.Array) -> Window:
    """Everything, or nothing where it does not fit."""
    begin = batch.sections.by_table(found.starts[:-1])
    end = batch.sections.by_table(found.starts[1:])
    return Window(begin, jnp.where(fits, end, begin))


def _with_uses(tables, states, slots, uses) -> dict[str, TableState]:
    new = dict(states)
    for t, each in uses.items():
        name = tables[t].name
        new[name] = add_uses(new[name], slots[t], each)
    return new


def _on_the_wire(batch: Batch, tables: Any) -> list[TableConfig]:
    """Configs whose rows come in the dtype of the exchange, one for each id."""
    pairs = zip(tables, batch.sections.dtypes, strict=True)
    return [dataclasses.replace(t, dtype=dtype, pooling=None) for t, dtype in pairs]


def _inputs(tables: Any, ids: list[jax.Array]) -> list:
    return [
        (one_row_each(t.name, t.name, x.shape[0]), FeatureInput(x, None, None))
        for t, x in zip(tables, ids, strict=True)
    ]


def _counted(batch: Batch) -> list[int]:
    """The tables whose scores count every use."""
    tables = enumerate(batch.sections.tables)
    return [t for t, config in tables if config.score_strategy is ScoreStrategy.LFU]


def _one_round(batch, found, window, states, owner: Owner, sums, counts_uses):
    sections = batch.sections
    counted = _counted(batch) if counts_uses else ()
    ids, uses, _ = send_ids_and_uses(sections, found, batch.ids, window, counted)
    rows, numbers, states = owner(states, ids, uses)
    places = places_of(sections, found, window)
    wire = wire_of(sections, sections.rows())
    sums = add_rows(batch, sums, wire, wire.exchange(rows), places)
    return ids, numbers, places, sums, states


def _further_rounds(batch, found, fits, sums, states, owner: Owner):
    """More rounds while a device has ids that did not fit."""

    def body(carry):
        begin, _, sums, states = carry
        window = next_window(batch.sections, found, batch.ids, begin)
        _, _, _, sums, states = _one_round(
            batch, found, window, states, owner, sums, True
        )
        return window.end, more(batch, found, window.end), sums, states

    begin = batch.sections.by_table(found.starts[:-1])
    carry = (begin, ~fits, sums, states)
    _, _, sums, states = jax.lax.while_loop(lambda carry: carry[1], body, carry)
    return sums, states


def _with_flags(batch, found, fits, states, owner: Owner, flags):
    """All rounds, for an owner that also answers whether it has an id."""
    sections = batch.sections

    def one(window, states, sums, flags):
        ids, numbers, places, sums, states = _one_round(
            batch, found, window, states, owner, sums, False
        )
        parts = [x.reshape(sections.shards, -1) for x in numbers]
        answers = exchange(parts, sections.axes)
        flags = [
            flag | jnp.take(answer.reshape(-1), place, mode="fill", fill_value=0)
            for flag, answer, place in zip(flags, answers, places, strict=True)
        ]
        return ids, states, sums, flags

    def body(carry):
        begin, _, sums, flags, states = carry
        window = next_window(sections, found, batch.ids, begin)
        _, states, sums, flags = one(window, states, sums, flags)
        return window.end, more(batch, found, window.end), sums, flags, states

    window = first_window(batch, found, fits)
    ids, states, sums, flags = one(window, dict(states), zero_sums(batch), flags)
    begin = sections.by_table(found.starts[:-1])
    carry = (begin, ~fits, sums, flags, states)
    carry = jax.lax.while_loop(lambda carry: carry[1], body, carry)
    return ids, None, (carry[2], carry[3]), carry[4]


def more(batch: Batch, found: Route, end: jax.Array) -> jax.Array:
    """Whether any device has ids left; the same answer on all of them."""
    left = (end < batch.sections.by_table(found.starts[1:])).any()
    return jax.lax.pmax(left.astype(jnp.int32), batch.sections.axes) > 0


def _by_feature(batch: Batch, flags: list[jax.Array]) -> list[jax.Array]:
    names = [t.name for t in batch.sections.tables]
    begin, result = [0] * len(names), []
    for layout, _ in batch.inputs:
        t = names.index(layout.table)
        result.append(flags[t][begin[t] : begin[t] + layout.num_ids])
        begin[t] += layout.num_ids
    return result
