# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Counters that the exchange writes, and operations that go on in several calls."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb._src.config import ScoreStrategy
from jax_dynemb._src.ffi import code
from jax_dynemb._src.ops import TableState, evicts_nothing, keep_holds
from jax_dynemb._src.spec import TableSpec


def count_exchange(
    state: TableState,
    capacity: int,
    peak: jax.Array,
    repeats: jax.Array,
    overflow: jax.Array,
) -> TableState:
    """Notes how full the sections of a lookup were, the same in every row.

    Args:
      state: after the lookup.
      capacity: of a section.
      peak: uint32[], the most ids that a device had for one owner.
      repeats: uint32[2], the words of how many ids did not travel, since their device
        sent them already: hits of this shard, in its first row.
      overflow: bool[], whether there were further rounds.
    """
    counters = state.counters
    hits = code("counters", "hits")
    more, high = repeats
    carry = (counters[0, hits, 0] + more < more).astype(jnp.uint32)
    # One element-wise expression: a kernel for all tables, not three for each.
    change = {
        "capacity": jnp.full_like(counters, capacity),
        "peak": jnp.maximum(counters, peak),
        "overflows": counters + overflow.astype(jnp.uint32),
    }
    shape = counters.shape[1:]
    for name, changed in change.items():
        here = np.zeros(shape, bool)
        here[code("counters", f"exchange_{name}"), 0] = True
        counters = jnp.where(here, changed, counters)
    for word, change in enumerate((more, high + carry)):
        here = np.zeros(counters.shape, bool)
        here[0, hits, word] = True
        counters = jnp.where(here, counters + change, counters)
    return dataclasses.replace(state, counters=counters)


def same_lookup(table: TableSpec, state: TableState) -> tuple[TableSpec, TableState]:
    """Returns config and state for a lookup that continues the one before.

    Its clock is the same again, so that it evicts no row that this batch has used. A
    clock that follows the time is read as one that counts. Its moment is the same too:
    a lookup has one place in the ring of nonces, whatever its rounds.
    """
    if table.score_strategy is ScoreStrategy.TIMESTAMP:
        table = dataclasses.replace(table, score_strategy=ScoreStrategy.STEP)
    if table.ring_rows > 0 and evicts_nothing(table):
        state = keep_holds(table, state, -1)
    return table, _one_less(state, "clock", "lookups", "moment")


def same_step(state: TableState, before: TableState) -> TableState:
    """Returns the state for an update that continues the one from ``before``."""
    step = code("counters", "step")
    counters = state.counters.at[:, step].set(before.counters[:, step])
    return dataclasses.replace(state, counters=counters)


def _one_less(state: TableState, *names: str) -> TableState:
    counters = state.counters
    for name in names:
        words = counters[:, code("counters", name)]
        low, high = words[:, 0], words[:, 1]
        high = high - (low == 0).astype(jnp.uint32)
        words = jnp.stack([low - jnp.uint32(1), high], axis=-1)
        counters = counters.at[:, code("counters", name)].set(words)
    return dataclasses.replace(state, counters=counters)
