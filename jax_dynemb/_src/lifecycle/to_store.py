# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Moves rows between a table and a store, between two steps."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.engines import States
from jax_dynemb._src.rows import PIN, Exported, bucket_of, leaving_order
from jax_dynemb._src.rows import part as part_of
from jax_dynemb._src.stores import Layout, Store
from jax_dynemb._src.table import Tables

_PADDING = -1


class Moved(NamedTuple):
    """Counts the rows that moved between a table and a store.

    Attributes:
      rows: that moved.
      stayed: keys int64[n] of rows that found no room, and are where they were.
    """

    rows: int
    stayed: np.ndarray


def evict_to_store(
    coll: Tables,
    state: States,
    table: str,
    store: Store,
    *,
    count: int | None = None,
    below: int | None = None,
    keys: Any = None,
    step: int = 0,
) -> tuple[States, Moved]:
    """Moves rows out of a table into a store, with scores and optimizer states.

    Rows are put first and erased from the table afterwards, so every row is always in
    one of the two. It reads the whole table, so call it seldom, for many rows.

    Args:
      coll: the tables.
      state: of them; the table's arrays are donated.
      table: which one.
      store: of that table's rows.
      count: the rows with the lowest scores, that many.
      below: all rows with a lower score.
      keys: int64[n], the rows of these ids.
      step: of the training.

    Returns:
      The new state; and what moved. Rows that the store refused stay in the table.

    Raises:
      ValueError: not exactly one of count, below and keys; or a store for other rows.
    """
    _check_store(coll, table, store)
    given = [each for each in (count, below, keys) if each is not None]
    if len(given) != 1:
        raise ValueError("give one of count=, below= and keys=: which rows shall leave")
    leaving = _leaving(coll, state, table, count, below, keys)
    gone: list[np.ndarray] = []
    stayed: list[np.ndarray] = []
    for chunk in coll.export(state, table) if len(leaving) else ():
        some = part_of(chunk, np.isin(chunk.keys, leaving))
        stored = store.put(some.keys, store.layout.pack(some), step)
        gone.append(some.keys[stored])
        stayed.append(some.keys[~stored])
    erased = _joined(gone)
    delta = _removal(coll.tables[table], erased)
    new = coll.apply_delta(state, table, [delta]) if len(erased) else state
    return new, Moved(len(erased), _joined(stayed))


def fetch_from_store(
    coll: Tables, state: States, table: str, store: Store, ids: Any
) -> tuple[States, Moved]:
    """Moves rows of some ids out of a store back into their table.

    Call it before the lookup of these ids, which would make new rows of them. Rows are
    inserted first and discarded from the store afterwards. No row of the table is
    evicted: a row whose bucket is full stays in the store. An id that has a row in the
    table keeps that one, and the store's stays until the next eviction replaces it.

    It reads the keys and scores of the table, 16 bytes a slot.

    Args:
      coll: the tables.
      state: of them; the table's arrays are donated.
      table: which one.
      store: of that table's rows.
      ids: int64[...] of a batch; -1 is padding. Ids without a row in the store are
        passed over.

    Returns:
      The new state; and what moved.

    Raises:
      RuntimeError: the table did not take every row; the store has them still.
      ValueError: a store for other rows.
    """
    _check_store(coll, table, store)
    wanted = np.unique(np.asarray(ids, np.int64))
    found, packed = store.get(wanted := wanted[wanted != _PADDING])
    wanted, packed = wanted[found], packed[found]
    if not len(wanted):
        return state, Moved(0, wanted)
    fits = _has_room(wanted, *_index(coll, state, table), coll.tables[table])
    before = coll.stats(state)[f"{table}/rows"]
    new = coll.apply_delta(
        state, table, [store.layout.unpack(wanted[fits], packed[fits])]
    )
    came = coll.stats(new)[f"{table}/rows"] - before
    if came != fits.sum():
        raise RuntimeError(
            f"table '{table}' took {came} of {fits.sum()} rows, all of which are still "
            "in the store: restore the last checkpoint"
        )
    store.discard(wanted[fits])
    return new, Moved(int(came), wanted[~fits])


def _check_store(coll: Tables, table: str, store: Store) -> None:
    config = coll.engine.catalog.dynamic_table(table, "a store")
    Layout.of(config).check_same_table(store.layout, f"the store of table '{table}'")


def _leaving(
    coll: Tables,
    state: States,
    table: str,
    count: int | None,
    below: int | None,
    keys: Any,
) -> np.ndarray:
    """Keys of the rows that shall leave."""
    if keys is not None:
        return np.asarray(keys, np.int64)
    known, scores = _index(coll, state, table)
    is_free = (scores & PIN) == 0  # not pinned
    known, scores = known[is_free], scores[is_free]
    if below is not None:
        return known[scores < np.uint64(below)]
    # Where scores are equal the lowest keys go first, as in a full bucket.
    order = leaving_order(scores, coll.tables[table].lfu_halflife or 0)
    return known[np.lexsort((known.view(np.uint64), order))[:count]]


def _index(coll: Tables, state: States, table: str) -> tuple[np.ndarray, np.ndarray]:
    """Keys int64[n] and scores uint64[n] of a table."""
    pieces = list(coll.engine.index(state, table))
    scores = [scores for _, scores in pieces]
    return _joined([keys for keys, _ in pieces]), np.concatenate(
        [np.empty(0, np.uint64), *scores]
    )


def _has_room(
    keys: np.ndarray, present: np.ndarray, _: np.ndarray, config: TableConfig
) -> np.ndarray:
    """Which keys can be inserted without the eviction of another."""
    room = _ffi.constants()["bucket_capacity"]
    taken = np.bincount(
        bucket_of(present, config.num_buckets, config.hash_seed).astype(np.int64),
        minlength=config.num_buckets,
    )
    new = ~np.isin(keys, present)
    buckets = bucket_of(keys, config.num_buckets, config.hash_seed).astype(np.int64)
    order = np.lexsort((~new, buckets))  # new ones first, to count them
    ordered = buckets[order]
    rank = np.arange(len(order)) - np.searchsorted(ordered, ordered)
    fits = np.zeros(len(keys), bool)
    fits[order] = rank + taken[ordered] < room
    return fits & new


def _removal(config: TableConfig, keys: np.ndarray) -> Exported:
    layout = Layout.of(config)
    none = np.empty(0, np.int64)
    empty = layout.unpack(none, np.empty((0, layout.row_bytes), np.uint8))
    return empty._replace(removed=keys)


def _joined(pieces: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.empty(0, np.int64), *pieces])
