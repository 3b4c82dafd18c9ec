# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Enqueues holds and rows that return, for the main thread."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.engines import States
from jax_dynemb._src.ops import TableState
from jax_dynemb._src.table import Tables, insert_kept
from jax_dynemb._src.tiers.traffic import Inserted, Offer


def hold(
    coll: Tables, state: States, held: Mapping[str, list[jax.Array]], lookups: int
) -> States:
    """Keeps the rows of some keys in their tables, for so many lookups; donates."""
    new = dict(state)
    for table, arrays in held.items():
        name = coll.state_name(table)
        for ids in arrays:
            new[name] = _hold(coll, table, lookups, new[name], ids)
    return new


def insert(coll: Tables, state: States, offer: Offer) -> States:
    """Inserts the rows of an offer that the table lacks; notes what became of them."""
    name, new = coll.state_name(offer.table), dict(state)
    for arrays in offer.arrays:
        inserted, new[name] = _insert(coll, offer.table, new[name], *arrays)
        offer.inserted.append(inserted)
    return new


@functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
def write(
    coll: Tables,
    state: States,
    ids: Mapping[str, Any],
    rows: Mapping[str, Any],
    *,
    optimizer_state: Any = None,
    scores: Any = None,
) -> States:
    """Inserts in place, see ``Tables.insert``."""
    return coll.insert(state, ids, rows, optimizer_state=optimizer_state, scores=scores)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
def erase(coll: Tables, state: States, ids: Mapping[str, Any]) -> States:
    """Erases in place, see ``Tables.erase``."""
    return coll.erase(state, ids)


@functools.partial(jax.jit, static_argnums=(0, 1, 2), donate_argnums=3)
def _hold(
    coll: Tables, table: str, lookups: int, state: TableState, ids: jax.Array
) -> TableState:
    name = coll.state_name(table)
    return coll.hold({name: state}, {table: ids}, lookups=lookups)[name]


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=2)
def _insert(
    coll: Tables,
    table: str,
    state: TableState,
    ids: jax.Array,
    rows: Any,
    states: dict[str, Any],
    scores: Any,
) -> tuple[Inserted, TableState]:
    name, feature = coll.state_name(table), coll.tables[table].feature_names[0]

    def find(state: States) -> tuple[jax.Array, States]:
        _, found, state = coll.find(state, {feature: ids})
        return found[feature], state

    before, new = find({name: state})
    # A row of the table is newer than the store's.
    mask = before[:, None] if ids.ndim == 2 else before
    absent = jnp.where(mask, jnp.array(-1).astype(ids.dtype), ids)
    new = dict(new)
    new[name] = insert_kept(
        coll, table, new[name], absent, rows, states, scores, unique_ids=True
    )
    if coll.tables[table].score_strategy != "customized":  # else rows have the tick
        new[name] = _same_clock(new[name], state)
    present, new = find(new)
    return Inserted(present & ~before, present), new[name]


def _same_clock(new: TableState, old: TableState) -> TableState:
    """Takes back the tick of an insert whose rows all have scores of the past.

    The next lookup may have it then, as in a table that never evicts. Clocks that are
    time stay, and after rows of the future, as a server may have them.
    """
    clock = _ffi.code("counters", "clock")
    before, after = old.counters[:, clock], new.counters[:, clock]
    low = before[:, 0] + jnp.uint32(1)
    ticked = jnp.stack([low, before[:, 1] + (low == 0).astype(jnp.uint32)], axis=-1)
    once = (after == ticked).all(axis=-1, keepdims=True)
    counters = new.counters.at[:, clock].set(jnp.where(once, before, after))
    return dataclasses.replace(new, counters=counters)
