# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Rows that are evicted from a table above a store, and rows that may not be.

Each function is about one table on one device; docs/decisions/tiers.md has the call.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.ops.call import Call
from jax_dynemb._src.ops.state import TableState, check_state
from jax_dynemb._src.ops.tier_state import Ring, ring_of
from jax_dynemb._src.ops.tiers import add_to_counter, state_arrays, tier_of
from jax_dynemb._src.spec import TableSpec


def depart(table: TableSpec, state: TableState) -> TableState:
    """Copies evicted rows to the ring's records, before any other row moves."""
    check_state(table, state)
    tier, ring = tier_of(state), ring_of(state)
    call = Call("depart", [table])
    call.read(state.counters, tier.owners, state.values, *state_arrays(table, state))
    call.update(tier.counters)
    call.read(tier.homes)
    call.update(ring.notes, ring.records)
    counters, notes, records = call.run()
    new = dataclasses.replace(tier, counters=counters, departed=Ring(notes, records))
    return dataclasses.replace(state, tier=new)


def hold(
    table: TableSpec, state: TableState, slots: jax.Array, lookups: int
) -> TableState:
    """Keeps rows in the table for ``lookups`` (static); a longer hold of a row stays.

    ``slots`` is int32[n]; negative ones are passed over.
    """
    tier = tier_of(state)
    assert tier.held is not None  # check_state
    most = jnp.uint32(_ffi.constants()["most_held"] - 1)
    now = state.counters[table.first_row, _ffi.code("counters", "lookups"), 0]
    there = jnp.where(slots >= 0, slots, tier.held.shape[0])
    before = tier.held.at[there].get(mode="fill", fill_value=0)
    before = jax.lax.bitcast_convert_type(before, jnp.uint32)
    left = before - now  # modulo 2^32, as core/departures.h counts
    left = jnp.where((before != 0) & (left <= most), left, jnp.uint32(0))
    until = now + jnp.maximum(left, jnp.uint32(lookups))
    until = jnp.where(until == 0, jnp.uint32(1), until)  # 0: not held
    until = jax.lax.bitcast_convert_type(until, jnp.int32)
    held = tier.held.at[there].set(until, mode="drop")
    new = dataclasses.replace(tier, held=held)
    new = add_to_counter(new, "held", jnp.sum(slots >= 0, dtype=jnp.uint32))
    return dataclasses.replace(state, tier=new)


def keep_holds(table: TableSpec, state: TableState, lookups: int = 1) -> TableState:
    """Moves the ends of holds by some lookups, which have evicted no row."""
    tier = tier_of(state)
    assert tier.held is not None  # check_state
    now = state.counters[table.first_row, _ffi.code("counters", "lookups"), 0]
    before = now - jnp.uint32(max(lookups, 0))
    until = jax.lax.bitcast_convert_type(tier.held, jnp.uint32)
    most = jnp.uint32(_ffi.constants()["most_held"] - 1)
    left = until - before  # modulo 2^32, as core/departures.h counts
    is_held = (until != 0) & (left != 0) & (left <= most)
    if table.block is not None:
        first = table.block.first_bucket * _ffi.constants()["bucket_capacity"]
        slots = jnp.arange(until.shape[0])
        is_held &= (slots >= first) & (slots < first + table.local_slots)
    moved = until + jnp.uint32(lookups % 2**32)
    moved = jnp.where(moved == 0, jnp.uint32(1), moved)  # 0: not held
    held = jax.lax.bitcast_convert_type(jnp.where(is_held, moved, until), jnp.int32)
    return dataclasses.replace(state, tier=dataclasses.replace(tier, held=held))


def evicts_nothing(table: TableSpec) -> bool:
    """Tells whether a lookup of this table leaves all rows where they are."""
    return not table.evicts or table.unseen == "none"
