# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Serving lookups of split tables, as one device runs them inside shard_map."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp

from jax_dynemb import ops
from jax_dynemb.engines.mesh.exchange import (
    Bags,
    Batch,
    Route,
    Window,
    add_rows,
    exchange_arrays,
    finished,
    found_parts,
    further_rounds,
    inputs_of_ids,
    inputs_of_owner,
    local_found_flags,
    on_the_wire,
    outputs,
    parts_to_owners,
    places_of,
    route,
    send_first,
    send_ids,
    wire_of,
    zero_sums,
)
from jax_dynemb.ops import TableState

States = Mapping[str, TableState]
ByFeature = dict[str, jax.Array]


@dataclasses.dataclass(frozen=True)
class _Answers:
    """Holds what one round returned.

    Attributes:
      total: by feature whose rows travel, those of all rounds so far.
      flags: by table, uint8[ids]: which are in the table, of all rounds so far.
      sums: by feature whose sums travel, the rows.
      found: of these, uint8[ids].
      states: the states.
    """

    total: list[jax.Array]
    flags: list[jax.Array]
    sums: ByFeature
    found: ByFeature
    states: dict[str, TableState]


def find(
    batch: Batch | None, bags: Bags, states: States
) -> tuple[ByFeature, ByFeature, dict[str, TableState]]:
    """Serving lookup of the row-wise tables.

    Args:
      batch: of the features whose rows travel, if there are any.
      bags: of those whose sums do.
      states: of this device.

    Returns:
      Rows, and found (uint8[num_ids]), by feature; and the states.
    """
    if batch is None:
        return _sums_alone(bags, states)
    sections = batch.sections
    found = route(batch.ids, sections.parts, sections.segments)
    sent = send_first(batch, found, others=parts_to_owners(bags))
    flags = [jnp.zeros(size, jnp.uint8) for size in sections.sizes]
    carry = zero_sums(batch), flags, states
    first = _round(batch, bags, found, sent.window, sent.ids, sent.others, *carry)
    no_bags = dataclasses.replace(bags, sections=[])

    def one(window: Window, carry: tuple) -> tuple:
        ids = send_ids(sections, found, batch.ids, window)
        later = _round(batch, no_bags, found, window, ids, [], *carry)
        return later.total, later.flags, later.states

    carry = first.total, first.flags, first.states
    _, (total, flags, new) = further_rounds(batch, found, sent.fits, carry, one)
    names = [layout.feature for layout, _ in batch.inputs]
    rows = [row for row, _ in finished(batch, total)]
    rows = dict(zip(names, rows, strict=True)) | first.sums
    return rows, _by_feature(batch, flags) | first.found, new


def _sums_alone(
    bags: Bags, states: States
) -> tuple[ByFeature, ByFeature, dict[str, TableState]]:
    """Finds features whose sums travel, where there are no others."""
    inputs = inputs_of_owner(bags, exchange_arrays(parts_to_owners(bags), bags.axes))
    wire = bags.wire()
    owned, new = ops.find(bags.tables, states, inputs, wire.places)
    sums = wire.exchange([o["rows"] for o in owned])
    flags = exchange_arrays(found_parts(bags, inputs, _found(owned)), bags.axes)
    rows = outputs(bags, [wire.part(n, x) for n, x in enumerate(sums)])
    found = local_found_flags(bags, flags)
    return {name: row for name, (row, _) in rows.items()}, found, dict(states) | new


def _round(
    batch: Batch,
    bags: Bags,
    found: Route,
    window: Window,
    ids: list[jax.Array],
    arrived: list[jax.Array],
    total: list[jax.Array],
    flags: list[jax.Array],
    states: States,
) -> _Answers:
    sections, tables = batch.sections, batch.sections.tables
    inputs, count = inputs_of_owner(bags, arrived), len(ids)
    wire = wire_of(sections, [*sections.rows(), *bags.rows()])
    owned, new = ops.find(
        [*on_the_wire(batch, tables), *bags.tables],
        states,
        [*inputs_of_ids(tables, ids), *inputs],
        wire.places,
    )
    arrays = wire.exchange([o["rows"] for o in owned])
    parts = [x.reshape(sections.shards, -1) for x in _found(owned[:count])]
    parts += found_parts(bags, inputs, _found(owned[count:]))
    answers = exchange_arrays(parts, sections.axes)
    places = places_of(sections, found, window)
    flags = [
        flag | jnp.take(answer.reshape(-1), place, mode="fill", fill_value=0)
        for flag, answer, place in zip(flags, answers, places, strict=False)
    ]
    sums = [wire.part(n, arrays[n]) for n in range(count, len(arrays))]
    return _Answers(
        total=add_rows(batch, total, wire, arrays, places),
        flags=flags,
        sums={name: row for name, (row, _) in outputs(bags, sums).items()},
        found=local_found_flags(bags, answers[count:]),
        states=dict(states) | new,
    )


def _found(owned: Sequence[Mapping[str, jax.Array]]) -> list[jax.Array]:
    return [o["found"] for o in owned]


def _by_feature(batch: Batch, flags: Sequence[jax.Array]) -> ByFeature:
    names = [t.name for t in batch.sections.tables]
    begin, result = [0] * len(names), {}
    for layout, _ in batch.inputs:
        t = names.index(layout.table)
        result[layout.feature] = flags[t][begin[t] : begin[t] + layout.num_ids]
        begin[t] += layout.num_ids
    return result
