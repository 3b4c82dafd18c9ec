# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Rows from a file into a table, a batch at a time."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb import _ffi, _ids
from jax_dynemb.ops._state import TableState, cleared_state
from jax_dynemb.stored._hash import bucket_of
from jax_dynemb.table import Exported, Tables
from jax_dynemb.table._export import words_of
from jax_dynemb.table._stats import counter_values

_BATCH_BYTES = 1 << 26
# Counted once in the whole table; every other counter is the same in each row of the
# counter array (core/table_ref.h).
_EVENTS = ("rows", "inserted", "evicted", "refused", "lost_updates")


def insert_chunks(
    coll: Tables,
    name: str,
    state: TableState,
    chunks: Iterable[Exported],
    *,
    optimizer: bool = True,
    scores: bool = True,
) -> TableState:
    """Stores rows in a table.

    Args:
      coll: has the table.
      name: of the table.
      state: of this table; it is given away.
      chunks: the rows; states that the table does not keep are passed over.
      optimizer: False lets all optimizer states of new rows start anew.
      scores: False scores the rows as new.

    Returns:
      The table's new state. No more than one batch is on the device beside it.
    """
    config = coll.tables[name]
    kept = list(config.states) if optimizer else []
    row_bytes = 4 * config.dim * (1 + len(kept)) + 16
    most = 1 << max(7, (_BATCH_BYTES // row_bytes).bit_length() - 1)
    size = min(most, 1 << 16, 1 << (config.num_slots - 1).bit_length())
    for batch in _batches(chunks, size):
        ids: Any = (
            batch.keys.astype(np.int32)
            if config.key_dtype == "int32"
            else words_of(batch.keys.view(np.uint64))
        )
        states = {
            each: batch.optimizer_state[each]
            for each in kept
            if each in batch.optimizer_state
        }
        words = words_of(batch.scores) if scores else None
        state = _insert(coll, name, state, ids, batch.rows, states, words)
    return state


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=2)
def _insert(
    coll: Tables,
    name: str,
    state: TableState,
    ids: jax.Array,
    rows: jax.Array,
    states: dict[str, jax.Array],
    scores: jax.Array | None,
) -> TableState:
    return coll.insert(
        {name: state},
        {name: ids},
        {name: rows},
        optimizer_state={name: states},
        scores=None if scores is None else {name: scores},
    )[name]


def _batches(chunks: Iterable[Exported], size: int) -> Iterator[Exported]:
    """The same rows in arrays of one length, so that one program serves all.

    The last one is filled with padding.
    """
    waiting: list[Exported] = []
    count = 0
    for chunk in chunks:
        start = 0
        while start < len(chunk.keys):
            stop = min(len(chunk.keys), start + size - count)
            waiting.append(part(chunk, slice(start, stop)))
            count += stop - start
            start = stop
            if count == size:
                yield joined(waiting)
                waiting, count = [], 0
    if count:
        yield _padded(joined(waiting), size)


def part(chunk: Exported, which: Any) -> Exported:
    """Some rows of a chunk; ``which`` indexes its arrays."""
    return Exported(
        keys=chunk.keys[which],
        rows=chunk.rows[which],
        scores=chunk.scores[which],
        optimizer_state={k: v[which] for k, v in chunk.optimizer_state.items()},
    )


def joined(chunks: list[Exported]) -> Exported:
    """Chunks one after the other."""
    if len(chunks) == 1:
        return chunks[0]
    return Exported(
        keys=np.concatenate([each.keys for each in chunks]),
        rows=np.concatenate([each.rows for each in chunks]),
        scores=np.concatenate([each.scores for each in chunks]),
        optimizer_state={
            name: np.concatenate([each.optimizer_state[name] for each in chunks])
            for name in chunks[0].optimizer_state
        },
    )


def _padded(chunk: Exported, size: int) -> Exported:
    missing = size - len(chunk.keys)

    def longer(array: np.ndarray, value: int = 0) -> np.ndarray:
        widths = [(0, missing)] + [(0, 0)] * (array.ndim - 1)
        return np.pad(array, widths, constant_values=value)

    return Exported(
        keys=longer(chunk.keys, _ids.PADDING),
        rows=longer(chunk.rows),
        scores=longer(chunk.scores, 1),
        optimizer_state={k: longer(v) for k, v in chunk.optimizer_state.items()},
    )


def keep_best(chunks: Iterable[Exported], num_buckets: int) -> Iterator[Exported]:
    """Leaves out the rows that a table with fewer buckets has no room for.

    Of the rows that would share a bucket those with the highest scores stay (of equal
    ones those with the higher keys), as if they had been evicted.

    Args:
      chunks: in order of bucket, as a table stores them; the order of hashes is then
        the same in both tables, so a new bucket is complete once a later one begins.
      num_buckets: of the new table.
    """
    open_: list[Exported] = []
    for chunk in chunks:
        if len(chunk.keys) == 0:
            continue
        buckets = bucket_of(chunk.keys, num_buckets)
        later = buckets == buckets.max()
        if open_ and bucket_of(open_[0].keys[:1], num_buckets)[0] == buckets.max():
            open_.append(chunk)
            continue
        yield _best(joined([*open_, part(chunk, ~later)]), num_buckets)
        open_ = [part(chunk, later)]
    if open_:
        yield _best(joined(open_), num_buckets)


def _best(chunk: Exported, num_buckets: int) -> Exported:
    buckets = bucket_of(chunk.keys, num_buckets)
    keys = chunk.keys.view(np.uint64)
    order = np.lexsort((~keys, ~chunk.scores, buckets))
    ordered = buckets[order]
    first = np.searchsorted(ordered, ordered)
    room = _ffi.constants()["bucket_capacity"]
    return part(chunk, order[np.arange(len(order)) - first < room])


def clear_table(coll: Tables, name: str, state: TableState) -> TableState:
    """The table without rows, in the same memory; ``state`` is given away."""
    places = jax.tree.map(lambda array: array.sharding, state)
    clear = jax.jit(
        cleared_state, static_argnums=0, donate_argnums=1, out_shardings=places
    )
    return clear(coll.tables[name], state)


def set_counters(state: TableState, numbers: Mapping[str, int]) -> TableState:
    """Writes some counters of a table, by name."""
    current = counter_values(state)
    names = _ffi.constants()["counters"]
    words = np.array(state.counters)
    whole = words.view(np.uint64)[..., 0]
    for name, number in numbers.items():
        if name not in current:
            continue  # of a program that counted something else
        column = names.index(name)
        whole[:, column] = 0 if name in _EVENTS else np.uint64(number)
        whole[0, column] = np.uint64(number)
    counters = jax.device_put(words, state.counters.sharding)
    return TableState(
        index=state.index,
        values=state.values,
        optimizer=state.optimizer,
        counters=jnp.asarray(counters),
        extra=state.extra,
    )
