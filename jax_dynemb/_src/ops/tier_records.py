# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Reads rows of tiered tables as they are stored, and writes them home."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import jax
import jax.numpy as jnp

from jax_dynemb._src.ops.call import Call
from jax_dynemb._src.ops.state import TableState, check_state, only_rows
from jax_dynemb._src.ops.tiers import state_arrays, tier_of
from jax_dynemb._src.spec import TableSpec

_ROWS_AT_ONCE = 1 << 16  # optimizer states are read with them


def gather_rows(
    table: TableSpec, state: TableState, slots: jax.Array
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Reads rows param_dtype[n, dim] and states as stored; zeros for other slots."""
    check_state(table, state)
    call = Call("tier_gather", [table])
    tier = tier_of(state)
    call.read(
        state.index,
        state.counters,
        tier.location,
        tier.owners,
        state.values,
        *state_arrays(table, state),
        tier.homes,
    )
    call.operand(slots)
    call.result((slots.shape[0], table.dim), table.param_dtype)
    for spec in table.states.values():
        call.result((slots.shape[0], *spec.shape), spec.dtype)
    results = call.run()
    values = next(results)
    return values, {name: next(results) for name in table.states}


def out_of_tier(table: TableSpec, state: TableState) -> TableState:
    """Reads all rows of a shard into device memory: a table without tier and states."""
    shape = (table.local_slots, table.dim)
    size = min(table.local_slots, _ROWS_AT_ONCE)

    def written(n: jax.Array, values: jax.Array) -> jax.Array:
        begin = jnp.minimum(n * size, table.local_slots - size)  # the last has no rest
        slots = begin + jnp.arange(size, dtype=jnp.int32)
        rows, _ = gather_rows(table, state, slots)
        return jax.lax.dynamic_update_slice_in_dim(values, rows, begin, axis=0)

    values = jnp.zeros(shape, table.param_dtype)
    values = jax.lax.fori_loop(0, -(-table.local_slots // size), written, values)
    return only_rows(dataclasses.replace(state, values=values))


def put_records(
    table: TableSpec,
    homes: jax.Array,
    slots: jax.Array,
    values: jax.Array,
    states: Mapping[str, jax.Array],
) -> jax.Array:
    """Writes rows as ``gather_rows`` returns them; slots int32[n] are distinct."""
    call = Call("write_back", [table])
    call.update(homes)
    call.read(values)
    for name in table.states:
        call.read(states[name])
    rows = jnp.arange(slots.shape[0], dtype=jnp.int32)
    call.operand(jnp.array([slots.shape[0], 0], jnp.int32), slots, rows)
    return next(call.run(on_host=True))


def after_reading(state: TableState, values: jax.Array) -> TableState:
    """Returns the state, whose changes wait until ``values`` have been read."""
    kind = jnp.dtype(f"uint{8 * values.dtype.itemsize}")
    word = jax.lax.bitcast_convert_type(values[0, 0], kind)
    # 0, since a word has at most 32 bits, but XLA does not know that. Without it the
    # change would not wait, and XLA would copy the homes.
    zero = (jax.lax.population_count(word) >> 6).astype(jnp.uint32)
    return dataclasses.replace(state, counters=state.counters | zero)
