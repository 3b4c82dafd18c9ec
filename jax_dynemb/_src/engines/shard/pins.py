# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Rows that stay: a bit of their score keeps evictions and rules away from them."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src import ops
from jax_dynemb._src.engines.shard.stored_slots import stored_slots
from jax_dynemb._src.ops import TableState
from jax_dynemb._src.rows import PIN
from jax_dynemb._src.spec import TableSpec

_BIT = 30  # of the high word of a score (core/score.h)


def split_pins(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Separates scores uint64[n] as they are stored from bool[n]: is the row pinned."""
    return scores & ~PIN, (scores & PIN) != 0


def set_pins(
    table: TableSpec, state: TableState, ids: jax.Array, pins: bool
) -> TableState:
    """Pins rows, or lets them go; of one table, on one shard.

    Args:
      table: its spec.
      state: its arrays.
      ids: flat; those that are not stored are passed over.
      pins: static.
    """
    found, state = stored_slots(table, state, ids)
    slots = jnp.sort(found)
    capacity = _ffi.constants()["bucket_capacity"]
    first = 0 if table.block is None else table.block.first_bucket
    bucket = jnp.where(slots >= 0, first + slots // capacity, state.index.shape[0])
    word = _ffi.constants()["scores_word"] + 1
    word = word + _ffi.constants()["slot_words"] * (slots % capacity)
    bit = jnp.uint32(1 << _BIT)
    before = state.index.at[bucket, word].get(mode="fill", fill_value=0)
    after = before | bit if pins else before & ~bit
    index = state.index.at[bucket, word].set(after, mode="drop")
    is_first = jnp.concatenate([jnp.ones(1, bool), slots[1:] != slots[:-1]])
    changed = is_first[: slots.shape[0]] & (slots >= 0) & (before != after)
    state = dataclasses.replace(state, index=index)
    return _count(table, state, jnp.sum(changed, dtype=jnp.uint32), pins)


def _count(
    table: TableSpec, state: TableState, rows: jax.Array, pins: bool
) -> TableState:
    """Adds to the counter of pinned rows, or subtracts."""
    if pins:
        return ops.add_to_counter(state, table.first_row, "pinned", rows)
    entry = (table.first_row, _ffi.code("counters", "pinned"))
    low, high = state.counters[entry]
    words = jnp.stack([low - rows, high - (low < rows).astype(jnp.uint32)])
    counters = state.counters.at[entry].set(words)
    return dataclasses.replace(state, counters=counters)
