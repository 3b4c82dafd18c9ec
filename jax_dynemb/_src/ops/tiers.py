# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Moves the rows of tiered tables: into frames, to an update, and home.

Each function is about tables on one device; docs/decisions/tiers.md has the calls.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.ops.call import Call
from jax_dynemb._src.ops.keys import add_to_words, as_words
from jax_dynemb._src.ops.sizes import is_at_most
from jax_dynemb._src.ops.state import TableState, check_state
from jax_dynemb._src.ops.tier_state import TierState
from jax_dynemb._src.spec import TableSpec

States = Mapping[str, TableState]  # by name, see ``TableSpec.state_name``
Groups = Mapping[str, Sequence[jax.Array]]  # slots or ids of each feature, by table
# From states, of which those of tiered tables are rows parts, and the places of each
# group of slots, by table, to new states.
Body = Callable[[States, dict[str, list[jax.Array]]], dict[str, TableState]]


class Moves(NamedTuple):
    """Lists what moves between the rows of a table and its homes."""

    counts: jax.Array  # int32[2], how many entries of each pair of lists count
    # Slots, and the rows that go to their home records.
    leaving: tuple[jax.Array, jax.Array]
    # Slots, and the rows that their records come to; or None.
    arriving: tuple[jax.Array, jax.Array] | None = None


def tier_of(state: TableState) -> TierState:
    """The arrays of a tier that the table has."""
    assert state.tier is not None  # check_state
    return state.tier


def index_state(state: TableState) -> TableState:
    """The arrays of the index part: places stand for optimizer states."""
    tier = tier_of(state)
    locations = {"location": tier.location}
    if tier.held is not None:
        locations["held"] = tier.held
    return dataclasses.replace(state, optimizer=locations)


def with_index(state: TableState, index: TableState) -> TableState:
    """Joins the whole state after a call on its index part."""
    locations = index.optimizer
    tier = dataclasses.replace(
        tier_of(index), location=locations["location"], held=locations.get("held")
    )
    return dataclasses.replace(index, optimizer=state.optimizer, tier=tier)


def promote(
    tables: Sequence[TableSpec], states: States, slots: Groups, purpose: str
) -> dict[str, TableState]:
    """Brings rows of slots int32[n] into frames; to "lookup" or to "prefetch"."""
    new: dict[str, TableState] = {}
    for some in in_calls(tables):
        after, lists = promoted(some, states, slots, purpose)
        new |= _settled(some, move_home(some, after, lists), lists)
    return new


def promoted(
    tables: Sequence[TableSpec], states: States, slots: Groups, purpose: str
) -> tuple[dict[str, TableState], dict[str, Moves]]:
    """Gives frames to slots, and lists what has to move."""
    joined = {table.name: _joined(slots[table.name]) for table in tables}
    code = np.int64(_ffi.code("promotions", purpose))
    call = _moving_call("promote", tables, joined, purpose=code)
    for table in tables:
        _add_moved(call, table, states[table.state_name])
        own = joined[table.name]
        call.operand(own)
        for size in (*own.shape, *own.shape, *own.shape, *own.shape, 2):
            call.result((size,), jnp.int32)
    results, new, lists = call.run(), {}, {}
    for table in tables:
        new[table.state_name] = _take_moved(results, table, states[table.state_name])
        spilled, rows, arriving, into, counts = (next(results) for _ in range(5))
        lists[table.name] = Moves(counts, (spilled, rows), (arriving, into))
    return new, lists


class Fetched(NamedTuple):
    """Where an update finds rows."""

    state: TableState  # whose arrays hold the rows
    places: jax.Array  # int32[n]: rows of the arrays
    spilled: jax.Array  # int32[spill_rows]: slots of the rows that must go home
    counts: jax.Array  # int32[2]: how many these are; distinct slots without a frame


def takes_one_round(table: TableSpec, slots: Sequence[jax.Array]) -> bool:
    """Whether all rows of a batch fit the spill rows of a table."""
    spill = _spill_rows(table)
    ids = sum(each.size for each in slots)
    return is_at_most(ids, spill) or table.local_slots <= spill


def fetch(
    tables: Sequence[TableSpec],
    states: States,
    slots: Groups,
    ids: Groups | None,
    turn: jax.Array | None = None,
) -> tuple[dict[str, Fetched], dict[str, list[jax.Array]]]:
    """Makes the rows of slots ready for a call on rows parts; then `send_home`.

    ``ids`` are those of the slots, where a slot may hold another id by now. ``turn`` is
    int32[1], the round, 0 if None. Also returns each group's places, by table.
    """
    turn = jnp.zeros(1, jnp.int32) if turn is None else turn
    fetched: dict[str, Fetched] = {}
    for some in in_calls(tables):
        fetched |= _fetch(some, states, slots, ids, turn)
    pairs = ((table.name, fetched[table.name].places) for table in tables)
    return fetched, {name: _split(places, slots[name]) for name, places in pairs}


def _fetch(
    tables: Sequence[TableSpec],
    states: States,
    slots: Groups,
    ids: Groups | None,
    turn: jax.Array,
) -> dict[str, Fetched]:
    joined = {table.name: _joined(slots[table.name]) for table in tables}
    call = _moving_call("fetch", tables, joined, has_keys=np.int64(ids is not None))
    call.operand(turn)
    for table in tables:
        _add_moved(call, table, states[table.state_name])
        own = joined[table.name]
        call.operand(own)
        if ids is not None:
            call.operand(jnp.concatenate([as_words(x) for x in ids[table.name]]))
        call.result(own.shape, jnp.int32)
        call.result((_spill_rows(table),), jnp.int32)
        call.result((2,), jnp.int32)
    results, fetched = call.run(), {}
    for table in tables:
        new = _take_moved(results, table, states[table.state_name])
        fetched[table.name] = Fetched(new, *(next(results) for _ in range(3)))
    return fetched


def send_home(
    tables: Sequence[TableSpec], rows: States, fetched: Mapping[str, Fetched]
) -> dict[str, TableState]:
    """Joins the whole states after a call on rows parts."""
    new, lists = {}, {}
    for table in tables:
        own = fetched[table.name]
        state = rows[table.state_name]
        new[table.state_name] = dataclasses.replace(state, tier=own.state.tier)
        out = (own.spilled, _spill_numbers(table))
        lists[table.name] = Moves(own.counts, out)
    for some in in_calls(tables):
        new |= move_home(some, new, lists)
    return new


def in_rounds(
    tables: Sequence[TableSpec],
    states: States,
    slots: Groups,
    ids: Groups | None,
    body: Body,
) -> dict[str, TableState]:
    """Changes rows wherever they lie, by calls on the rows in device memory.

    ``ids`` are as in ``fetch``. ``body`` changes rows at places. It is traced twice
    where a batch may need several rounds; all rounds count as one update.
    """
    step = _ffi.code("counters", "step")
    before = {t.name: states[t.state_name].counters[:, step] for t in tables}

    def one_round(
        states: States, turn: jax.Array | None
    ) -> tuple[dict[str, TableState], dict[str, Fetched]]:
        fetched, places = fetch(tables, states, slots, ids, turn)
        ready = {table.state_name: fetched[table.name].state for table in tables}
        rows = body(ready, places)
        return send_home(tables, rows, fetched), fetched

    new, fetched = one_round(states, None)
    long = [table for table in tables if not takes_one_round(table, slots[table.name])]
    if not long:
        return new
    rounds = [-(-fetched[t.name].counts[1:] // _spill_rows(t)) for t in long]
    last = jnp.max(jnp.concatenate(rounds))

    def further(
        carry: tuple[jax.Array, dict[str, TableState]],
    ) -> tuple[jax.Array, dict[str, TableState]]:
        turn, states = carry
        states = {
            table.state_name: dataclasses.replace(
                states[table.state_name],
                counters=states[table.state_name]
                .counters.at[:, step]
                .set(before[table.name]),
            )
            for table in tables
        }
        return turn + 1, one_round(states, turn)[0]

    def is_open(carry: tuple[jax.Array, dict[str, TableState]]) -> jax.Array:
        return carry[0][0] < last

    return jax.lax.while_loop(is_open, further, (jnp.ones(1, jnp.int32), new))[1]


def flush(tables: Sequence[TableSpec], states: States) -> dict[str, TableState]:
    """Writes the rows that are newer than their home records there."""
    new, lists = {}, {}
    for table in tables:
        clean, lists[table.name] = _newer_rows(table, states[table.state_name])
        new[table.state_name] = clean
    for some in in_calls(tables):
        new |= move_home(some, new, lists)
    return new


def _newer_rows(table: TableSpec, state: TableState) -> tuple[TableState, Moves]:
    """Lists the dirty frames of a table; they are not dirty any more."""
    check_state(table, state)
    tier = tier_of(state)
    constants = _ffi.constants()
    dirty = jnp.uint32(constants["dirty_frame"])
    capacity = constants["bucket_capacity"]
    in_bucket = (tier.owners & jnp.uint32(constants["owner_mask"])).astype(jnp.int32)
    bucket = jnp.arange(table.local_buckets, dtype=jnp.int32)[:, None]
    slots = bucket * capacity + in_bucket
    frame = jnp.arange(1, table.frames + 1, dtype=jnp.int32)
    leaves = (tier.location[slots] == frame[None]) & ((tier.owners & dirty) != 0)
    slots = jnp.where(leaves, slots, -1).reshape(-1)
    rows = jnp.arange(slots.shape[0], dtype=jnp.int32)
    new = dataclasses.replace(tier, owners=tier.owners & ~dirty)
    new = add_to_counter(new, "written_back", jnp.sum(leaves))
    # Calls before this one read homes, and their results are counters: without these
    # XLA would not know that the calls come first, and copy the homes.
    later = _top_bit(state.counters, "counters", "lookups")
    later += _top_bit(tier.counters, "tier_counters", "hits")
    counts = jnp.stack([slots.shape[0] + later, jnp.int32(0)])
    return dataclasses.replace(state, tier=new), Moves(counts, (slots, rows))


def _top_bit(counters: jax.Array, kind: str, name: str) -> jax.Array:
    """Reads the highest bit of a 64-bit count: 0, but XLA does not know that."""
    high = counters[0, _ffi.code(kind, name), 1]
    return (high >> 31).astype(jnp.int32)


# ---- the arrays of a call ------------------------------------------------------------


def in_calls(tables: Sequence[TableSpec]) -> Iterator[Sequence[TableSpec]]:
    """Yields as many tables as a call takes."""
    most = _ffi.constants()["max_tier_tables"]
    for first in range(0, len(tables), most):
        yield tables[first : first + most]


def _moving_call(
    op: str,
    tables: Sequence[TableSpec],
    slots: Mapping[str, jax.Array],
    **attributes: Any,
) -> Call:
    sizes: list[Any] = []
    for table in tables:
        sizes += [slots[table.name].shape[0], table.frames, _spill_rows(table)]
    return Call(op, tables, sizes, **attributes)


def _spill_rows(table: TableSpec) -> int:
    return table.device_rows - table.local_buckets * table.frames


def state_arrays(table: TableSpec, state: TableState) -> list[jax.Array]:
    """The optimizer states of the rows in device memory, in their order."""
    return [state.optimizer[name] for name in table.states]


def _add_moved(call: Call, table: TableSpec, state: TableState) -> None:
    check_state(table, state)
    tier = tier_of(state)
    call.read(state.index, state.counters)
    call.update(
        tier.location,
        tier.owners,
        state.values,
        *state_arrays(table, state),
        tier.counters,
    )
    call.read(tier.homes)


def _take_moved(results: Any, table: TableSpec, state: TableState) -> TableState:
    location, owners, values = next(results), next(results), next(results)
    states = {name: next(results) for name in table.states}
    tier = dataclasses.replace(
        tier_of(state), location=location, owners=owners, counters=next(results)
    )
    return dataclasses.replace(state, values=values, optimizer=states, tier=tier)


def _spill_numbers(table: TableSpec) -> jax.Array:
    first = table.local_buckets * table.frames
    return jnp.arange(first, first + _spill_rows(table), dtype=jnp.int32)


def move_home(
    tables: Sequence[TableSpec], states: States, lists: Mapping[str, Moves]
) -> dict[str, TableState]:
    """Copies rows to their home records, and arriving records to frames."""
    swaps = any(each.arriving is not None for each in lists.values())
    call = Call("swap_rows" if swaps else "write_back", tables)
    for table in tables:
        state, own = states[table.state_name], lists[table.name]
        call.update(tier_of(state).homes)
        call.read(state.values, *state_arrays(table, state))
        call.operand(own.counts, *own.leaving, *(own.arriving or ()))
    results, new = call.run(on_host=True), {}
    for table in tables:
        state = states[table.state_name]
        tier = dataclasses.replace(tier_of(state), homes=next(results))
        new[table.state_name] = dataclasses.replace(state, tier=tier)
    return new


def _settled(
    tables: Sequence[TableSpec], states: States, lists: Mapping[str, Moves]
) -> dict[str, TableState]:
    """Returns states in which all records that arrive are in their frames."""
    call = Call("settle", tables)
    for table in tables:
        state, own = states[table.state_name], lists[table.name]
        call.update(state.values, *state_arrays(table, state))
        call.read(tier_of(state).homes)
        call.operand(own.counts, *(own.arriving or ()))
    results = call.run()
    return {t.state_name: take_rows(results, t, states[t.state_name]) for t in tables}


def take_rows(
    results: Iterator[jax.Array], table: TableSpec, state: TableState
) -> TableState:
    """Builds a table's state after a call that returns its rows and states next."""
    values = next(results)
    optimizer = {name: next(results) for name in table.states}
    return dataclasses.replace(state, values=values, optimizer=optimizer)


def add_to_counter(tier: TierState, name: str, events: jax.Array) -> TierState:
    """Adds events to a counter of a tier."""
    place = (0, _ffi.code("tier_counters", name))
    words = add_to_words(tier.counters[place], events)
    return dataclasses.replace(tier, counters=tier.counters.at[place].set(words))


def _joined(slots: Sequence[jax.Array]) -> jax.Array:
    flat = [each.reshape(-1) for each in slots]
    return flat[0] if len(flat) == 1 else jnp.concatenate(flat)


def _split(places: jax.Array, slots: Sequence[jax.Array]) -> list[jax.Array]:
    parts, begin = [], 0
    for each in slots:
        parts.append(places[begin : begin + each.size])
        begin += each.size
    return parts
