# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Counters that the exchange writes, and operations that go on in several calls."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb._src.config import ScoreStrategy
from jax_dynemb._src.engines.hash.exchange import ExchangeLayout
from jax_dynemb._src.ffi import code
from jax_dynemb._src.ops import TableState, evicts_nothing, keep_holds
from jax_dynemb._src.spec import TableSpec

States = Mapping[str, TableState]


def count_exchange(
    exchange: ExchangeLayout, states: States, demand: jax.Array, overflow: jax.Array
) -> dict[str, TableState]:
    """Notes how full the sections of a lookup were, the same in a table's every row.

    Args:
      exchange: its sizes.
      states: after the lookup.
      demand: uint32[3, tables], see ``SentIds``. Ids that did not travel are hits of
        this shard, in its first row.
      overflow: bool[], whether there were further rounds.
    """
    new = dict(states)
    for name, numbers in _by_arrays(exchange.tables).items():
        state = states[name]
        tables = [exchange.tables[n] for n in numbers]
        of_row = _table_of_row(tables, state)
        here, first = of_row >= 0, np.zeros(of_row.shape, bool)
        first[[table.first_row for table in tables]] = True
        capacities = np.array([exchange.capacities[n] for n in numbers], np.uint32)
        wanted = demand[:, np.array(numbers)[of_row]]
        counters = _counted(
            state.counters, here, first, capacities[of_row], wanted, overflow
        )
        new[name] = dataclasses.replace(state, counters=counters)
    return new


def _counted(
    counters: jax.Array,
    here: np.ndarray,
    first: np.ndarray,
    capacities: np.ndarray,
    demand: jax.Array,
    overflow: jax.Array,
) -> jax.Array:
    """Writes by row: which are of the tables, which their first, and the numbers."""
    hits = code("counters", "hits")
    peak, more, high = demand
    carry = (counters[:, hits, 0] + more < more).astype(jnp.uint32)
    # One element-wise expression: a kernel for all tables, not three for each.
    changes = [
        (here, "exchange_capacity", 0, jnp.asarray(capacities)[:, None, None]),
        (here, "exchange_peak", 0, jnp.maximum(counters, peak[:, None, None])),
        (here, "exchange_overflows", 0, counters + overflow.astype(jnp.uint32)),
        (first, "hits", 0, counters + more[:, None, None]),
        (first, "hits", 1, counters + (high + carry)[:, None, None]),
    ]
    for rows, name, word, changed in changes:
        entry = np.zeros(counters.shape, bool)
        entry[rows, code("counters", name), word] = True
        counters = jnp.where(entry, changed, counters)
    return counters


def same_lookup(
    tables: Sequence[TableSpec], states: States
) -> tuple[list[TableSpec], dict[str, TableState]]:
    """Returns specs and states for a lookup that continues the one before.

    Its clock is the same again, so that it evicts no row that this batch has used. A
    clock that follows the time is read as one that counts. Its moment is the same too:
    a lookup has one place in the ring of nonces, whatever its rounds.
    """
    step, new = ScoreStrategy.STEP, dict(states)
    for name, numbers in _by_arrays(tables).items():
        some, state = [tables[n] for n in numbers], states[name]
        if some[0].ring_rows > 0 and evicts_nothing(some[0]):
            state = keep_holds(some[0], state, -1)
        here = _table_of_row(some, state) >= 0
        new[name] = _one_less(state, here, "clock", "lookups", "moment")
    by_time = [t.score_strategy is ScoreStrategy.TIMESTAMP for t in tables]
    again = [
        dataclasses.replace(t, score_strategy=step) if late else t
        for t, late in zip(tables, by_time, strict=True)
    ]
    return again, new


def same_step(state: TableState, before: TableState) -> TableState:
    """Returns the state for an update that continues the one from ``before``."""
    step = code("counters", "step")
    counters = state.counters.at[:, step].set(before.counters[:, step])
    return dataclasses.replace(state, counters=counters)


def _by_arrays(tables: Sequence[TableSpec]) -> dict[str, list[int]]:
    """Numbers the tables that lie in the same arrays, by their name."""
    result: dict[str, list[int]] = {}
    for n, table in enumerate(tables):
        result.setdefault(table.state_name, []).append(n)
    return result


def _table_of_row(tables: Sequence[TableSpec], state: TableState) -> np.ndarray:
    """Numbers the table of each row of counters; -1 where it is none of them."""
    result = np.full(state.counters.shape[0], -1)
    for n, table in enumerate(tables):
        result[table.own_counters] = n
    return result


def _one_less(state: TableState, here: np.ndarray, *names: str) -> TableState:
    counters = state.counters
    for name in names:
        words = counters[:, code("counters", name)]
        low, high = words[:, 0], words[:, 1]
        high = high - (low == 0).astype(jnp.uint32)
        less = jnp.stack([low - jnp.uint32(1), high], axis=-1)
        words = jnp.where(here[:, None], less, words)
        counters = counters.at[:, code("counters", name)].set(words)
    return dataclasses.replace(state, counters=counters)
