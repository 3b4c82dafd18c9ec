# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Rows from outside into a table: insert_or_assign."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src import ops
from jax_dynemb._src.config import ScoreStrategy
from jax_dynemb._src.engines.shard.scores import PACKED, words_of
from jax_dynemb._src.initializers import Given
from jax_dynemb._src.ops import (
    FeatureInput,
    FeatureLayout,
    TableState,
    add_to_counter,
    moment_places,
    one_row_each,
)
from jax_dynemb._src.scores import score_words
from jax_dynemb._src.spec import AnyTable, TableSpec

# Rows that are given enter whatever the table's rules say of unseen ids.
_EVERY_ROW: dict[str, Any] = {
    "initializer": Given(),
    "unseen": "all",
    "competes": False,
}


class NewRows(NamedTuple):
    """The rows of one table that ``Tables.insert`` stores; see there.

    Those that a table has held ``are_kept`` whatever numbers they have.
    """

    ids: Any
    rows: Any
    optimizer_state: Mapping[str, Any]
    scores: Any
    unique_ids: bool
    are_kept: bool = False


def store(
    table: TableSpec,
    state: TableState,
    ids: jax.Array,
    written: Mapping[str, jax.Array],
    unique_ids: bool,
) -> TableState:
    """Store what ``checked`` returned under flat ids."""
    slots_only = one_row_each(table.name, table.name, ids.shape[0], "no_rows")
    zero = jnp.zeros((1, 2), jnp.uint32)
    (outputs,), states, _ = ops.lookup(
        [dataclasses.replace(table, **_EVERY_ROW)],
        {table.state_name: state},
        [(slots_only, FeatureInput(ids, None, None))],
        zero,
    )
    slots = outputs["slots"]
    new = _not_a_lookup(states[table.state_name], state)
    if "clocks" in written:
        written, clocks = dict(written), written["clocks"]
        del written["clocks"]
        new = _clock_after(table, new, slots, clocks)
        new = set_clocks(table, new, slots, clocks)
    elif "scores" in written and not table.has_custom_scores:
        new = _clock_after(table, new, slots, written["scores"])
    return ops.scatter(table, new, slots, written, last_wins=not unique_ids)


def set_clocks(
    table: TableSpec, state: TableState, slots: jax.Array, clocks: jax.Array
) -> TableState:
    """Says when rows of a customized table were used last; pins stay.

    Args:
      table: its spec.
      state: its arrays.
      slots: int32[n], distinct; negative ones are passed over.
      clocks: uint32[n, 2].
    """
    constants = _ffi.constants()
    capacity, count = constants["bucket_capacity"], state.index.shape[0]
    slots = jnp.where(slots >= 0, slots + table.first_slot, count * capacity)
    bucket, place = slots // capacity, slots % capacity
    word = constants["scores_word"] + constants["slot_words"] * place
    pin = jnp.uint32(1 << 30)
    pins = state.index.at[bucket, word + 1].get(mode="fill", fill_value=0) & pin
    index = state.index.at[bucket, word].set(clocks[:, 0], mode="drop")
    high = jnp.minimum(clocks[:, 1], pin - 1) | pins
    index = index.at[bucket, word + 1].set(high, mode="drop")
    return dataclasses.replace(state, index=index)


def without_nonfinite(
    table: TableSpec,
    state: TableState,
    ids: jax.Array,
    written: Mapping[str, jax.Array],
) -> tuple[jax.Array, TableState]:
    """Replaces the ids of rows that are not finite by padding, and counts them.

    ``written`` has whole rows: devices with some of the columns decide alike.
    """
    flags = [
        jnp.isfinite(x).all(axis=tuple(range(1, x.ndim)))
        for name, x in written.items()
        if name not in ("scores", "clocks")
    ]
    finite = jnp.stack(flags).all(axis=0)
    by_row = (ids.shape[0],) + (1,) * (ids.ndim - 1)
    padding = ~jnp.zeros((), ids.dtype)
    is_id = (ids != padding).any(axis=tuple(range(1, ids.ndim)))
    new = add_to_counter(state, table.first_row, "nonfinite", jnp.sum(is_id & ~finite))
    return jnp.where(finite.reshape(by_row), ids, padding), new


def touched(
    new: Mapping[str, TableState], old: Mapping[str, TableState]
) -> dict[str, TableState]:
    """The states after lookups of serving: no training, and no row came or left."""
    result = {name: _not_a_lookup(state, old[name]) for name, state in new.items()}
    for name, state in result.items():
        tier, before = state.tier, old[name].tier
        if tier is not None and before is not None:
            tier = dataclasses.replace(tier, held=before.held)
            result[name] = dataclasses.replace(state, tier=tier)
    return result


def _not_a_lookup(new: TableState, old: TableState) -> TableState:
    """Loading rows is not training: counts of lookups and of their ids stay.

    The clock advances. A row with the clock of the next lookup would count as used by
    that lookup. A row with the clock of the last would be missing in a delta.
    """
    names = ("lookups", "hits", "misses", "not_admitted")
    stays = np.zeros(new.counters.shape[1], bool)
    stays[[_ffi.code("counters", name) for name in names]] = True
    stays[moment_places()] = True  # no residual is of such a lookup
    # One choice, and not a write for each: a GPU launches a kernel, XLA compiles one.
    counters = jnp.where(stays[:, None], old.counters, new.counters)
    return dataclasses.replace(new, counters=counters)


def _clock_after(
    table: TableSpec, state: TableState, slots: jax.Array, scores: jax.Array
) -> TableState:
    """No score may lie in the future: the clock moves up to the latest given one.

    That of a row that is written over in the same call counts too. Otherwise restored
    rows would outlive rows used since, and a lookup whose clock happens to be in their
    scores would take them for its own.
    """
    number = _ffi.code("counters", "clock")
    rows = table.own_counters
    clock = state.counters[rows][0, number]
    given = jnp.where((slots >= 0)[:, None], scores, jnp.uint32(0))
    if table.score_strategy in PACKED:
        given = given.at[:, 1].set(clock[1])  # the high word is not time
    both = jnp.concatenate([given, clock[None]])
    high = jnp.max(both[:, 1])
    low = jnp.max(jnp.where(both[:, 1] == high, both[:, 0], jnp.uint32(0)))
    latest = jnp.stack([low, high])
    counters = state.counters.at[rows, number].set(latest)
    return dataclasses.replace(state, counters=counters)


def same_clock(
    table: TableSpec, state: TableState, axes: tuple[str, ...], here: Any
) -> TableState:
    """The latest clock of the shards that have the table; inside shard_map.

    Args:
      table: as a shard sees it.
      state: of this shard.
      axes: of the mesh.
      here: bool[], whether this shard has the table.
    """
    number = _ffi.code("counters", "clock")
    first, rows = table.first_row, table.own_counters
    low, high = jnp.where(here, state.counters[first, number], jnp.uint32(0))
    latest = jax.lax.pmax(high, axes)
    low = jax.lax.pmax(jnp.where(high == latest, low, jnp.uint32(0)), axes)
    clock = jnp.stack([low, latest])
    counters = state.counters.at[rows, number].set(clock)
    return dataclasses.replace(state, counters=counters)


def checked(
    table: AnyTable, layout: FeatureLayout, new: NewRows
) -> dict[str, jax.Array]:
    """The arrays to write, by name, in the shapes that scatter takes."""
    n = layout.num_ids
    unknown = set(new.optimizer_state) - set(table.states)
    if unknown:
        raise ValueError(
            f"Table '{table.name}' has no optimizer state {sorted(unknown)}; it has "
            f"{list(table.states)}."
        )
    shapes = {"values": (table.dim,)} | {k: s.shape for k, s in table.states.items()}
    dtypes = {name: spec.dtype for name, spec in table.states.items()}
    written = {}
    for name, array in {"values": new.rows, **new.optimizer_state}.items():
        array = jnp.asarray(array)
        expected = (*layout.ids_shape, *shapes[name])
        if array.shape != expected:
            raise ValueError(
                f"Table '{table.name}': '{name}' has shape {array.shape}, but for "
                f"these ids it must be {expected}."
            )
        dtype = dtypes.get(name, "float32")
        written[name] = array.astype(dtype).reshape(n, *shapes[name])
    if new.scores is not None:
        if table.score_strategy is ScoreStrategy.CUSTOMIZED:
            return written | _given_words(table, layout, new.scores)
        words = _score_words(table, layout.ids_shape, new.scores)
        written["scores"] = words.reshape(n, 2)
    return written


def _given_words(
    table: AnyTable, layout: FeatureLayout, scores: Any
) -> dict[str, jax.Array]:
    """The scores of a customized table, as users give them.

    Rows from files bring their clocks behind them: uint32[..., 4].
    """
    n, shape = layout.num_ids, layout.ids_shape
    if np.shape(scores) == (*shape, 4) and scores.dtype == np.uint32:
        words = jnp.asarray(scores).reshape(n, 4)
        return {"scores": words[:, :2], "clocks": words[:, 2:]}
    words = jnp.stack(score_words(scores, f"Table '{table.name}'", shape), axis=-1)
    return {"scores": words.reshape(n, 2)}


def _score_words(table: AnyTable, ids_shape: tuple[int, ...], scores: Any) -> jax.Array:
    """Scores as words, within what a live row may have (core/score.h).

    Numbers that are known are checked; traced ones are moved to the nearest bound.
    """
    high_limit = _ffi.constants()["most_packed"]  # above it are bits of a mark
    if table.score_strategy not in PACKED:
        high_limit -= 1  # a clock needs room to run below them
    if isinstance(scores, np.ndarray) and scores.dtype in (np.uint64, np.int64):
        bad = (scores < 1) | (scores >= (high_limit + 1) << 32)
        if bad.any():
            raise ValueError(
                f"Table '{table.name}': {int(bad.sum())} scores are not in "
                f"[1, {(high_limit + 1) << 32}); pass scores as export returns them, "
                "or leave them out to score the rows as new."
            )
        return jnp.asarray(words_of(scores))
    shape, dtype = np.shape(scores), getattr(scores, "dtype", None)
    if dtype != jnp.uint32 or shape != (*ids_shape, 2):
        raise TypeError(
            f"Table '{table.name}': scores are {dtype}{list(shape)}, but must be numpy "
            "uint64, one for each id, or uint32[..., 2] (low, high): pass them as "
            "export returns them."
        )
    words = jnp.asarray(scores)
    high = jnp.minimum(words[..., 1], jnp.uint32(high_limit))
    empty = (high == 0) & (words[..., 0] == 0)
    low = jnp.where(empty, jnp.uint32(1), words[..., 0])
    return jnp.stack([low, high], axis=-1)
