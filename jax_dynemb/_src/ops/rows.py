# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of given slots, and the keys of a table: for maintenance and the bridge."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.kept_jit import kept_jit
from jax_dynemb._src.ops.bucket_rows import custom_scores_of_index, scores_of_index
from jax_dynemb._src.ops.call import OF_REMOVAL, Call
from jax_dynemb._src.ops.row_keys import keys_of_slots, with_index_of, with_row_keys
from jax_dynemb._src.ops.state import TableState
from jax_dynemb._src.ops.tier_records import after_reading, gather_rows
from jax_dynemb._src.ops.tier_state import index_part, rounds_in_tier, rows_part
from jax_dynemb._src.ops.tiers import in_rounds, index_state, with_index
from jax_dynemb._src.spec import TableSpec

_ROWS = ("index", "values", "optimizer")


def _checked_slots(table: TableSpec, slots: Any) -> jax.Array:
    """Returns the slots if dtype and axes are right; their values are data."""
    slots = jnp.asarray(slots)
    if slots.ndim != 1 or slots.dtype != jnp.int32:
        raise ValueError(
            f"Table '{table.name}': slots must be int32[n], as reduce_gradients "
            f"returns them, not {slots.dtype}{list(slots.shape)}. Flatten them, and "
            "convert other integers with astype(jnp.int32)."
        )
    return slots


def _checked_rows(
    table: TableSpec, count: int, rows: Mapping[str, Any]
) -> dict[str, jax.Array]:
    """Converts the rows to write to the dtypes of kernels; refuses other sizes."""
    shapes = {"values": (count, table.dim), "scores": (count, 2)}
    shapes |= {name: (count, *spec.shape) for name, spec in table.states.items()}
    dtypes = {name: spec.dtype for name, spec in table.states.items()}
    dtypes["scores"] = "uint32"
    unknown = set(rows) - set(shapes)
    if unknown:
        raise ValueError(
            f"Table '{table.name}' has no {sorted(unknown)}; rows may have "
            f"{list(shapes)}, as gather returns them."
        )
    checked = {}
    for name, given in rows.items():
        dtype = dtypes.get(name, "float32")
        checked[name] = jnp.asarray(given, dtype)
        if checked[name].shape != shapes[name]:
            raise ValueError(
                f"Table '{table.name}': {name} have shape {checked[name].shape}, but "
                f"for {count} slots they must have {shapes[name]}. Give one row for "
                "each slot, in the shapes that gather returns."
            )
    return checked


def gather(
    table: TableSpec, state: TableState, slots: jax.Array
) -> tuple[dict[str, jax.Array], TableState]:
    """Reads rows, states and scores; a slot that the table does not have reads zeros.

    Returns "values" float32[n, dim], "scores" uint32[n, 2] and states by name,
    float32[n, dim], float32[n] or int32[n]; and the state, to be carried on.
    """
    slots = _checked_slots(table, slots)
    if table.tier is not None:
        return _gather_tiered(table, state, slots)
    call = Call("gather", [table])
    states = {table.state_name: state}
    call.update(*call.arrays(states, _ROWS))
    call.operand(slots)
    count = slots.shape[0]
    call.result((count, table.dim), jnp.float32)
    for spec in table.states.values():
        call.result((count, *spec.shape), spec.dtype)
    call.result((count, 2), jnp.uint32)
    results = call.run()
    new = call.take_tables(results, states, _ROWS)[table.state_name]
    names = ("values", *table.states, "scores")
    return {name: next(results) for name in names}, new


def _gather_tiered(
    table: TableSpec, state: TableState, slots: jax.Array
) -> tuple[dict[str, jax.Array], TableState]:
    values, states = gather_rows(table, state, slots)
    part = dataclasses.replace(
        rows_part(table), num_buckets=max(1, -(-slots.shape[0] // 128))
    )
    count = slots.shape[0]
    given = TableState(state.index, values, states, state.counters)
    is_live = (slots >= 0) & (slots < table.local_slots)
    places = jnp.where(is_live, jnp.arange(count, dtype=jnp.int32), -1)
    if count > 0:
        rows, _ = gather(part, given, places)
        state = after_reading(state, values)
    else:
        rows = {"values": values.astype(jnp.float32), **states}
    buckets = state.index[jnp.where(is_live, slots, 0) // 128]
    of_index = custom_scores_of_index if table.has_custom_scores else scores_of_index
    low, high = of_index(buckets)
    column = (jnp.where(is_live, slots, 0) % 128)[:, None]
    words = [jnp.take_along_axis(x, column, axis=1) for x in (low, high)]
    scores = jnp.where(is_live[:, None], jnp.concatenate(words, axis=1), jnp.uint32(0))
    return rows | {"scores": scores}, state


def scatter(
    table: TableSpec,
    state: TableState,
    slots: jax.Array,
    rows: Mapping[str, jax.Array],
    *,
    last_wins: bool = False,
    rounds: bool = False,
) -> TableState:
    """Writes what ``rows``, as ``gather`` returns them, have at slots int32[n].

    Slots are distinct unless ``last_wins``. With ``rounds`` values are rounded as by
    the table's updates, else to nearest.
    """
    slots = _checked_slots(table, slots)
    given = _checked_rows(table, slots.shape[0], rows)
    if table.tier is not None:
        return _scatter_tiered(table, state, slots, given, last_wins, rounds)
    names = ("values", "scores", *table.states)
    parts = sum(1 << i for i, name in enumerate(names) if name in rows)
    rounds = rounds and table.rounding == "stochastic"
    flags = {"last_wins": np.int64(last_wins), "rounds": np.int64(rounds)}
    members = (*_ROWS, "counters") if rounds else _ROWS
    noted = slots.shape[0] if last_wins else 0
    call = Call("scatter", [table], [noted], parts=np.int64(parts), **flags)
    states = {table.state_name: state}
    call.update(*call.arrays(states, members))
    call.operand(slots)
    for name in names:
        call.operand(given.get(name))
    return call.take_tables(call.run(), states, members)[table.state_name]


# One program for all calls outside of jit, where a loop is else compiled again.
@kept_jit(0, 4, 5, inline=True)
def _scatter_tiered(
    table: TableSpec,
    state: TableState,
    slots: jax.Array,
    given: dict[str, jax.Array],
    last_wins: bool,
    rounds: bool,
) -> TableState:
    if "scores" in given:
        scores = {"scores": given.pop("scores")}
        index = scatter(
            index_part(table), index_state(state), slots, scores, last_wins=last_wins
        )
        state = with_index(state, index)
    if not given:
        return state
    rounds = rounds and rounds_in_tier(table)
    part, name = rows_part(table, rounds=rounds), table.state_name
    keys = [keys_of_slots(state.index, slots)] if rounds else []

    def body(
        rows: Mapping[str, TableState], places: dict[str, list[jax.Array]]
    ) -> dict[str, TableState]:
        (own,) = places[table.name]
        keyed = with_row_keys(table, rows, [own], keys) if rounds else rows
        written = scatter(
            part, keyed[name], own, given, last_wins=last_wins, rounds=rounds
        )
        return with_index_of(table, {name: written}, rows)

    return in_rounds([table], {name: state}, {table.name: [slots]}, None, body)[name]


def erase(table: TableSpec, state: TableState, ids: jax.Array) -> TableState:
    """Takes keys out of the table; ids that are not there are passed over."""
    call = Call("erase", [table])
    states = {table.state_name: state}
    call.update(*call.arrays(states, OF_REMOVAL))
    call.operand(ids)
    call.result((ids.shape[0],), jnp.int32)
    return call.take_tables(call.run(), states, OF_REMOVAL)[table.state_name]


def export_batch(
    table: TableSpec,
    index: jax.Array,
    first_bucket: jax.Array,
    num_buckets: int,
    min_score: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Lists the live rows of some buckets; only reads, so nothing is aliased.

    ``first_bucket`` is int32[1], ``min_score`` uint32[2]. Returns keys and scores
    uint32[n, 2], slots int32[n], -1 past the count, and int32[1], the count.
    """
    call = Call("export_batch", [table])
    call.operand(index, first_bucket, min_score)
    room = num_buckets * _ffi.constants()["bucket_capacity"]
    call.result((room, 2), jnp.uint32)
    call.result((room, 2), jnp.uint32)
    call.result((room,), jnp.int32)
    call.result((1,), jnp.int32)
    keys, scores, slots, count = call.run()
    return keys, scores, slots, count
