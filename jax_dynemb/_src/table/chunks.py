# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Chunks of rows into a table, in batches of one length so that few programs do it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import jax
import numpy as np

from jax_dynemb._src import ids as _ids
from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.engines.shard import counter_values, words_of
from jax_dynemb._src.kept_jit import kept_jit
from jax_dynemb._src.ops import TableState
from jax_dynemb._src.rows import Exported, joined, padded, part
from jax_dynemb._src.table.row_operations import RowOperations, insert_kept

_BATCH_BYTES = 1 << 26
# Of one array: malloc returns larger ones to the system, which clears their pages.
_ARRAY_BYTES = 1 << 24


def insert_chunks(
    coll: RowOperations,
    name: str,
    state: TableState,
    chunks: Iterable[Exported],
    *,
    optimizer: bool = True,
    scores: bool = True,
) -> TableState:
    """Stores rows in a table; at most one batch is on the device beside it.

    ``state`` is donated; states that the table does not keep are passed over. False for
    ``optimizer`` resets states of new rows; for ``scores``, scores them as new.
    """
    config = coll.tables[name]
    kept = list(config.states) if optimizer else []
    row_bytes = 4 * config.dim * (1 + len(kept)) + 16
    most = min(_BATCH_BYTES // row_bytes, _ARRAY_BYTES // (4 * config.dim))
    most = 1 << max(7, most.bit_length() - 1)
    size = min(most, 1 << 16, 1 << (config.num_slots - 1).bit_length())
    for batch in _batches(chunks, size):
        states = {
            each: batch.optimizer_state[each]
            for each in kept
            if each in batch.optimizer_state
        }
        words = _score_words(config, batch) if scores else None
        for ids in id_arrays(config, batch.keys):
            # One batch is stored while the next is made, no more: each holds memory.
            jax.block_until_ready(state.counters)
            state = _insert(coll, name, state, ids, batch.rows, states, words)
        state = _with_pins(coll, name, state, batch)
    return state


def _score_words(config: TableConfig, batch: Exported) -> np.ndarray:
    """Scores as ``insert`` takes them; with clocks behind them where there are such."""
    words = words_of(batch.scores)
    if batch.clocks is None or config.score_strategy != "customized":
        return words
    return np.concatenate([words, words_of(batch.clocks)], axis=1)


def _with_pins(
    coll: RowOperations, name: str, state: TableState, batch: Exported
) -> TableState:
    """Pins the rows of a batch that are pinned in its source, and no others."""
    if batch.pinned is None:
        return state
    for pins, keys in (
        (True, batch.keys[batch.pinned]),
        (False, batch.keys[~batch.pinned]),
    ):
        if pins or _has_pins(coll, name, state):
            state = _by_keys(coll, name, state, keys, pins)
    return state


def _has_pins(coll: RowOperations, name: str, state: TableState) -> bool:
    counted = coll.hash_engine.with_own_counters({coll.state_name(name): state}, name)
    return counter_values(counted)["pinned"] > 0


def erase_keys(
    coll: RowOperations, name: str, state: TableState, keys: np.ndarray
) -> TableState:
    """Removes keys from a table; donates ``state``."""
    return _by_keys(coll, name, state, keys, None)


def _by_keys(
    coll: RowOperations,
    name: str,
    state: TableState,
    keys: np.ndarray,
    pins: bool | None,
) -> TableState:
    """Pins rows or lets them go, or with None removes them; donates ``state``."""
    size = 1 << 16
    for start in range(0, len(keys), size):
        some = keys[start : start + size]
        length = 1 << max(7, (len(some) - 1).bit_length())
        padded = np.full(length, _ids.PADDING, np.int64)
        padded[: len(some)] = some
        for ids in id_arrays(coll.tables[name], padded):
            state = _change(coll, name, pins, state, ids)
    return state


@kept_jit(0, 1, donated=(2,))
def _insert(
    coll: RowOperations,
    name: str,
    state: TableState,
    ids: jax.Array,
    rows: jax.Array,
    states: dict[str, jax.Array],
    scores: jax.Array | None,
) -> TableState:
    return insert_kept(coll, name, state, ids, rows, states, scores)


@kept_jit(0, 1, 2, donated=(3,))
def _change(
    coll: RowOperations, name: str, pins: bool | None, state: TableState, ids: jax.Array
) -> TableState:
    arrays = coll.state_name(name)
    change = coll.erase if pins is None else coll.pin if pins else coll.unpin
    return change({arrays: state}, {name: ids})[arrays]


def id_arrays(config: TableConfig, keys: np.ndarray) -> Iterator[np.ndarray]:
    """Keys as the table's ids; those that the array can not express are padding.

    The keys of a 32-bit table came from int32 or from uint32 ids.
    """
    if config.key_dtype == "int64":
        yield words_of(keys.view(np.uint64))
        return
    wide = keys > np.iinfo(np.int32).max
    yield np.where(wide, _ids.PADDING, keys).astype(np.int32)
    if wide.any():
        yield np.where(wide, keys, np.iinfo(np.uint32).max).astype(np.uint32)


def _batches(chunks: Iterable[Exported], size: int) -> Iterator[Exported]:
    """Yields the same rows in arrays of one length; the last is padded."""
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
        yield padded(joined(waiting), size)
