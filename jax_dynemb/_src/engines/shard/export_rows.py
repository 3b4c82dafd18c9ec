# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Streams what a table holds, or what changed in it, as numpy arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src import ops
from jax_dynemb._src.config import ScoreStrategy
from jax_dynemb._src.engines.shard.pins import split_pins
from jax_dynemb._src.engines.shard.scores import used_since, words_of
from jax_dynemb._src.initializers import zeros
from jax_dynemb._src.kept_jit import kept_jit
from jax_dynemb._src.ops import TableState, check_state, states_of_rows
from jax_dynemb._src.optim import none
from jax_dynemb._src.rows import PIN, Exported
from jax_dynemb._src.spec import TableSpec

_CHUNK_BYTES = 1 << 28


class Query(NamedTuple):
    """Which rows ``Tables.export`` streams; see there.

    Attributes:
      min_score: rows with a lower score are left out.
      since: rows that no lookup used since are left out, unless it is None.
      known_keys: int64[n], the keys that a replica holds, or None.
      chunk_buckets: buckets read at a time; about 256 MB of rows if None.
    """

    min_score: int = 0
    since: int | None = None
    known_keys: np.ndarray | None = None
    chunk_buckets: int | None = None


class _Live(NamedTuple):
    """The live slots of some buckets."""

    keys: np.ndarray
    scores: np.ndarray
    slots: np.ndarray
    pinned: np.ndarray
    clocks: np.ndarray | None = None  # of a customized table


# The arrays of a table, or of each of its shards with the config that a shard sees.
Shards = Sequence[tuple[TableSpec, TableState]]


def export(shards: Shards, query: Query) -> Iterator[Exported]:
    """See ``Tables.export``."""
    min_score, since, known_keys, chunk_buckets = query
    for table, state in shards:
        check_state(table, state)
    if known_keys is not None:
        gone = _removed(shards, known_keys)
        yield _rows_of(*shards[0], _nothing())._replace(removed=gone)
    for table, state in shards:
        for live in _live(table, state, chunk_buckets, min_score):
            wanted = live.scores >= np.uint64(min_score)
            if since is not None:
                used = used_since(table, state, live, since)
                wanted &= used | live.pinned  # a pin leaves no other trace
            if not wanted.all():
                kept = live._asdict().items()
                live = live._replace(**{n: x[wanted] for n, x in kept if x is not None})
            if len(live.keys):
                yield _rows_of(table, state, live)


def export_index(shards: Shards) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Keys int64[n] and scores uint64[n] of the live rows, without the rows.

    A score has the bit of a pinned row.
    """
    for table, state in shards:
        for live in _live(table, state, None, 0):
            yield live.keys, live.scores | np.where(live.pinned, PIN, np.uint64(0))


def _removed(shards: Shards, known_keys: np.ndarray) -> np.ndarray:
    """Returns the known keys that the table does not hold."""
    known = np.unique(np.asarray(known_keys, np.int64))
    stored = np.zeros(len(known), bool)
    for keys, _ in export_index(shards):
        place = np.searchsorted(known, keys)
        inside = place < len(known)
        place, keys = place[inside], keys[inside]
        stored[place[known[place] == keys]] = True
    return known[~stored]


def _live(
    table: TableSpec, state: TableState, chunk_buckets: int | None, min_score: int
) -> Iterator[_Live]:
    """Keys, scores and slots, range by range; the next range is read ahead."""
    ops.refuse_packed([table], "export")
    buckets = max(1, min(chunk_buckets or _default_chunk(table), table.local_buckets))
    threshold = jnp.asarray(words_of([min_score])[0])
    alone = index_only(table)
    if table.has_custom_scores:  # which the host compares
        threshold = jnp.zeros_like(threshold)
    started = None
    for first in [*range(0, table.local_buckets, buckets), None]:
        previous, started = started, None
        if first is not None:
            place = jnp.array([first], jnp.int32)
            started = _index_range(alone, buckets, state.index, place, threshold)
        if previous is not None:
            keys, scores, slots, count, given = jax.device_get(previous)
            n = int(count[0])
            scores, pinned = split_pins(_words(scores)[:n])
            live = _Live(_words(keys)[:n].view(np.int64), scores, slots[:n], pinned)
            if given is not None:
                live = live._replace(scores=_words(given)[:n], clocks=scores)
            yield live


def index_only(table: TableSpec) -> TableSpec:
    """Returns a spec that tells where the index of a table lies, and nothing else.

    It is equal for all tables of a size: these share one compiled program.
    """
    return TableSpec(
        name="",
        dim=1,
        num_buckets=table.num_buckets,
        initializer=zeros(),
        eval_initializer=zeros(),
        optimizer=none(),
        score_strategy=ScoreStrategy.CUSTOMIZED
        if table.has_custom_scores
        else ScoreStrategy.STEP,
        evicts=False,
        pooling=None,
        param_dtype="float32",
        dtype="float32",
        key_dtype="int64",
        nonfinite="propagate",
        hash_seed=0,
        shards=table.shards,
        block=table.block,
    )


@kept_jit(0, 1)
def _index_range(
    table: TableSpec,
    num_buckets: int,
    index: jax.Array,
    first: jax.Array,
    min_score: jax.Array,
) -> tuple[jax.Array | None, ...]:
    """Calls ``export_batch``, and adds the custom scores of a customized table."""
    found = ops.export_batch(table, index, first, num_buckets, min_score)
    if not table.has_custom_scores:
        return (*found, None)
    slots = found[2] + table.first_slot
    capacity = _ffi.constants()["bucket_capacity"]
    bucket, place = slots // capacity, slots % capacity
    word = _ffi.constants()["bucket_words"] + 2 * place
    words = [index.at[bucket, word + n].get(mode="fill", fill_value=0) for n in (0, 1)]
    return (*found, jnp.stack(words, axis=-1))


def _rows_of(table: TableSpec, state: TableState, live: _Live) -> Exported:
    """Reads the rows of some slots; only these travel to the host."""
    n = len(live.slots)
    padded = np.zeros(1 << max(7, (n - 1).bit_length()), np.int32)
    padded[:n] = live.slots + np.int32(table.first_slot)
    slots = jnp.asarray(padded)
    if table.tier is None:
        arrays = {name: _take(array, slots) for name, array in state.optimizer.items()}
        taken = _take(state.values, slots), arrays
    else:
        taken = _take_tiered(table, state, slots)
    rows, states = jax.device_get(taken)
    return Exported(
        keys=live.keys,
        rows=rows[:n],
        scores=live.scores,
        optimizer_state=states_of_rows(
            {name: spec.initial for name, spec in table.states.items()},
            {name: array[:n] for name, array in states.items()},
        ),
        pinned=live.pinned,
        clocks=live.clocks,
    )


@jax.jit
def _take(array: jax.Array, slots: jax.Array) -> jax.Array:
    """Reads rows of one array: a program of its shape serves all tables and states."""
    return array[slots]


@kept_jit(0)
def _take_tiered(
    table: TableSpec, state: TableState, slots: jax.Array
) -> tuple[jax.Array, dict[str, jax.Array]]:
    return ops.gather_rows(table, state, slots)


def _nothing() -> _Live:
    keys, scores = np.empty(0, np.int64), np.empty(0, np.uint64)
    return _Live(keys, scores, np.empty(0, np.int32), np.empty(0, bool))


def _default_chunk(table: TableSpec) -> int:
    widths = [int(np.prod(s.shape, dtype=int)) for s in table.states.values()]
    row_bytes = 4 * (table.dim + sum(widths)) + 20
    bucket_bytes = row_bytes * _ffi.constants()["bucket_capacity"]
    return max(1, _CHUNK_BYTES // bucket_bytes)


def _words(pairs: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(pairs).view(np.uint64).reshape(-1)
