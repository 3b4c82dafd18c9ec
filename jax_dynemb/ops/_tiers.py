# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Moves the rows of a tiered table: into frames, to an update, and home.

Each function is about one table on one device; docs/decisions/tiers.md has the calls.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb import _ffi
from jax_dynemb._spec import TableSpec
from jax_dynemb.ops._call import Call
from jax_dynemb.ops._keys import as_words
from jax_dynemb.ops._sizes import is_at_most
from jax_dynemb.ops._state import TableState, check_state
from jax_dynemb.ops._tier_state import TierState
from jax_dynemb.ops._words import add_to_words

# From the rows part of a state and the places of each group of slots to new rows.
Body = Callable[[TableState, list[jax.Array]], TableState]


def tier_of(state: TableState) -> TierState:
    """The arrays of a tier that the table has."""
    assert state.tier is not None  # check_state
    return state.tier


def index_state(state: TableState) -> TableState:
    """The arrays of the index part: places stand for optimizer states."""
    tier = tier_of(state)
    places = {"place": tier.place}
    if tier.held is not None:
        places["held"] = tier.held
    return dataclasses.replace(state, optimizer=places)


def with_index(state: TableState, index: TableState) -> TableState:
    """Joins the whole state after a call on its index part."""
    places = index.optimizer
    tier = dataclasses.replace(
        tier_of(index), place=places["place"], held=places.get("held")
    )
    return dataclasses.replace(index, optimizer=state.optimizer, tier=tier)


def promote(
    table: TableSpec, state: TableState, slots: Sequence[jax.Array], purpose: str
) -> TableState:
    """Brings the rows of slots into frames, as far as there are any.

    Args:
      table: its config.
      state: its arrays.
      slots: int32[n] each.
      purpose: "lookup" or "prefetch".
    """
    joined = _joined(slots)
    call = _moving_call("promote", table, joined.shape[0], purpose=_code(purpose))
    _add_moved(call, table, state)
    call.operand(joined)
    call.result((_spill_rows(table),), jnp.int32)
    call.result(joined.shape, jnp.int32)
    call.result(joined.shape, jnp.int32)
    results = call.run()
    new = _take_moved(results, table, state)
    spilled, *arriving = results
    rows = _spill_numbers(table)
    return _settled(table, _send_home(table, new, spilled, rows, arriving), arriving)


def _code(purpose: str) -> np.int64:
    return np.int64(_ffi.code("promotions", purpose))


class Fetched(NamedTuple):
    """Where an update finds rows.

    Attributes:
      state: whose arrays hold the rows.
      places: int32[n]: rows of the arrays.
      spilled: int32[spill_rows]: slots of the rows that must go home.
      count: int32[1]: distinct slots without a frame.
    """

    state: TableState
    places: jax.Array
    spilled: jax.Array
    count: jax.Array


def _fetch(
    table: TableSpec,
    state: TableState,
    slots: jax.Array,
    keys: jax.Array | None,
    turn: jax.Array,
) -> Fetched:
    has_keys = np.int64(keys is not None)
    call = _moving_call("fetch", table, slots.shape[0], has_keys=has_keys)
    _add_moved(call, table, state)
    call.operand(slots)
    call.operand(keys)
    call.operand(turn)
    call.result(slots.shape, jnp.int32)
    call.result((_spill_rows(table),), jnp.int32)
    call.result((1,), jnp.int32)
    results = call.run()
    new = _take_moved(results, table, state)
    return Fetched(new, next(results), next(results), next(results))


def takes_one_round(table: TableSpec, slots: Sequence[jax.Array]) -> bool:
    """Whether all rows of a batch fit the spill rows of a table."""
    spill = _spill_rows(table)
    ids = sum(each.size for each in slots)
    return is_at_most(ids, spill) or table.local_slots <= spill


def fetch(
    table: TableSpec,
    state: TableState,
    slots: Sequence[jax.Array],
    ids: Sequence[jax.Array] | None,
    turn: jax.Array | None = None,
) -> tuple[Fetched, list[jax.Array]]:
    """Makes the rows of slots ready for a call on the rows part; then `send_home`.

    Args:
      table: its config.
      state: its arrays.
      slots: int32[n] each.
      ids: those of the slots, where a slot may hold another id by now.
      turn: int32[1], the number of the round; None is the first.

    Returns:
      What was fetched, and the places of each group of slots.
    """
    keys = None
    if ids is not None:
        keys = jnp.concatenate([as_words(each) for each in ids])
    turn = jnp.zeros(1, jnp.int32) if turn is None else turn
    fetched = _fetch(table, state, _joined(slots), keys, turn)
    return fetched, _split(fetched.places, slots)


def send_home(table: TableSpec, rows: TableState, fetched: Fetched) -> TableState:
    """Joins the whole state after a call on the rows part."""
    new = dataclasses.replace(rows, tier=fetched.state.tier)
    return _send_home(table, new, fetched.spilled, _spill_numbers(table))


def in_rounds(
    table: TableSpec,
    state: TableState,
    slots: Sequence[jax.Array],
    ids: Sequence[jax.Array] | None,
    body: Body,
) -> TableState:
    """Changes rows wherever they lie, by a call on the rows in device memory.

    Args:
      table: its config.
      state: its arrays.
      slots: int32[n] each.
      ids: those of the slots, where a slot may hold another id by now.
      body: changes the rows at the places that it is given. It is traced twice where
        a batch may need several rounds; all rounds count as one update.
    """
    step = _ffi.code("counters", "step")
    before = state.counters[:, step]

    def one_round(
        state: TableState, turn: jax.Array | None
    ) -> tuple[TableState, jax.Array]:
        fetched, places = fetch(table, state, slots, ids, turn)
        rows = body(fetched.state, places)
        return send_home(table, rows, fetched), fetched.count[0]

    state, count = one_round(state, None)
    if takes_one_round(table, slots):
        return state
    spill = _spill_rows(table)

    def further(carry: tuple[jax.Array, TableState]) -> tuple[jax.Array, TableState]:
        turn, state = carry
        counters = state.counters.at[:, step].set(before)
        state = dataclasses.replace(state, counters=counters)
        return turn + 1, one_round(state, turn)[0]

    def is_open(carry: tuple[jax.Array, TableState]) -> jax.Array:
        return carry[0][0] < (count + spill - 1) // spill

    first = jnp.ones_like(count).reshape(1)
    return jax.lax.while_loop(is_open, further, (first, state))[1]


def flush(table: TableSpec, state: TableState) -> TableState:
    """Writes the rows that are newer than their home records there."""
    check_state(table, state)
    tier = tier_of(state)
    constants = _ffi.constants()
    dirty = jnp.uint32(constants["dirty_frame"])
    capacity = constants["bucket_capacity"]
    in_bucket = (tier.owners & jnp.uint32(constants["owner_mask"])).astype(jnp.int32)
    bucket = jnp.arange(table.local_buckets, dtype=jnp.int32)[:, None]
    slots = bucket * capacity + in_bucket
    frame = jnp.arange(1, table.frames + 1, dtype=jnp.int32)
    leaves = (tier.place[slots] == frame) & ((tier.owners & dirty) != 0)
    slots = jnp.where(leaves, slots, -1).reshape(-1)
    rows = jnp.arange(slots.shape[0], dtype=jnp.int32)
    name = "written_back"
    new = dataclasses.replace(tier, owners=tier.owners & ~dirty)
    new = counted(new, name, jnp.sum(leaves))
    return _send_home(table, dataclasses.replace(state, tier=new), slots, rows)


def gather_rows(
    table: TableSpec, state: TableState, slots: jax.Array
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Reads rows and states of slots as they are stored; changes nothing.

    Returns:
      param_dtype[n, dim], and each state by name; zeros for other slots than those of
      the table.
    """
    check_state(table, state)
    call = _moving_call("tier_gather", table, slots.shape[0])
    tier = tier_of(state)
    for array in (state.index, state.counters, tier.place, tier.owners):
        call.read(array)
    for array in (state.values, *state_arrays(table, state), tier.homes):
        call.read(array)
    call.operand(slots)
    call.result((slots.shape[0], table.dim), table.param_dtype)
    for spec in table.states.values():
        call.result((slots.shape[0], *spec.shape), spec.dtype)
    results = call.run()
    values = next(results)
    return values, {name: next(results) for name in table.states}


# ---- the arrays of a call ------------------------------------------------------------


def _moving_call(op: str, table: TableSpec, count: Any, **attributes: Any) -> Call:
    return Call(op, [table], [count, table.frames, _spill_rows(table)], **attributes)


def _spill_rows(table: TableSpec) -> int:
    return table.device_rows - table.local_buckets * table.frames


def state_arrays(table: TableSpec, state: TableState) -> list[jax.Array]:
    """The optimizer states of the rows in device memory, in their order."""
    return [state.optimizer[name] for name in table.states]


def _add_moved(call: Call, table: TableSpec, state: TableState) -> None:
    check_state(table, state)
    tier = tier_of(state)
    call.read(state.index)
    call.read(state.counters)
    for array in (tier.place, tier.owners, state.values, *state_arrays(table, state)):
        call.update(array)
    call.update(tier.counters)
    call.read(tier.homes)


def _take_moved(results: Any, table: TableSpec, state: TableState) -> TableState:
    place, owners, values = next(results), next(results), next(results)
    states = {name: next(results) for name in table.states}
    tier = dataclasses.replace(
        tier_of(state), place=place, owners=owners, counters=next(results)
    )
    return dataclasses.replace(state, values=values, optimizer=states, tier=tier)


def _spill_numbers(table: TableSpec) -> jax.Array:
    first = table.local_buckets * table.frames
    return jnp.arange(first, first + _spill_rows(table), dtype=jnp.int32)


def _send_home(
    table: TableSpec,
    state: TableState,
    slots: jax.Array,
    rows: jax.Array,
    arriving: Sequence[jax.Array] = (),
) -> TableState:
    """Copies rows to their home records, and arriving records to frames."""
    tier = tier_of(state)
    call = Call("swap_rows" if arriving else "write_back", [table])
    call.update(tier.homes)
    for array in (state.values, *state_arrays(table, state)):
        call.read(array)
    for array in (slots, rows, *arriving):
        call.operand(array)
    (homes,) = call.run(on_host=True)
    return dataclasses.replace(state, tier=dataclasses.replace(tier, homes=homes))


def _settled(
    table: TableSpec, state: TableState, arriving: Sequence[jax.Array]
) -> TableState:
    """Returns the state in which all records that arrive are in their frames."""
    call = Call("settle", [table])
    arrays = [state.values, *state_arrays(table, state)]
    for array in arrays:
        call.update(array)
    call.read(tier_of(state).homes)
    for array in arriving:
        call.operand(array)
    values, *states = call.run()
    named = dict(zip(table.states, states, strict=True))
    return dataclasses.replace(state, values=values, optimizer=named)


def counted(tier: TierState, name: str, events: jax.Array) -> TierState:
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
