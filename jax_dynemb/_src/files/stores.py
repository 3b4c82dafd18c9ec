# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of live tables into stores, and back."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from jax_dynemb._src.admission import Frequency
from jax_dynemb._src.config import ScoreStrategy, TableConfig
from jax_dynemb._src.engines import States
from jax_dynemb._src.files.live import (
    Imported,
    check_room,
    check_whole,
    collection_of,
    fill_table,
    lost_rows,
)
from jax_dynemb._src.rows import bucket_of
from jax_dynemb._src.stores import Layout, Store, rows_of_store
from jax_dynemb._src.table import Tables


def to_store(
    coll: Any,
    state: States | None = None,
    stores: Mapping[str, Store] | None = None,
    *,
    since: Mapping[str, int] | None = None,
    mirror: bool = False,
    step: int = 0,
) -> dict[str, int]:
    """Writes the rows of tables, their scores and optimizer states into stores.

    The tables stay as they are. ``commit`` of each store makes the rows last.

    Args:
      coll: the tables; or a module with one collection, such as ``model.sparse``.
      state: their state; None of a module, which has it.
      stores: by table.
      since: by table, what ``coll.get_score`` said when the rows were last written.
        Only rows that a lookup or an insert used since are written. A table that is
        not named is written whole.
      mirror: also discards rows whose ids the table no longer has. Without it they stay
        in the store.
      step: of the training.

    Returns:
      By table, how many rows were written.

    Raises:
      RuntimeError: a store has no room for a row; the others are written.
      ValueError: there is no such table, a store is for rows of another one, or other
        processes hold a part of the table.

    Example:
      >>> marks = coll.get_score(state)  # doctest: +SKIP
      >>> jde.export.to_store(coll, state, {"cat": log})  # doctest: +SKIP
      >>> log.commit("step-100")  # doctest: +SKIP
    """
    coll, state = collection_of("to_store", coll, state)
    stores = {} if stores is None else stores
    check_stores(coll, stores)
    written = dict.fromkeys(stores, 0)
    for name, store in stores.items():
        check_whole(coll, state, name)
        mark = (since or {}).get(name)
        known = store.keys() if mirror else None
        for chunk in coll.export(state, name, since=mark, known_keys=known):
            if chunk.removed is not None:
                store.discard(chunk.removed)
            if not len(chunk.keys):
                continue
            stored = store.put(chunk.keys, store.layout.pack(chunk), step)
            written[name] += int(stored.sum())
            if not stored.all():
                raise RuntimeError(
                    f"The store of table '{name}' has no room: it refused "
                    f"{int((~stored).sum())} of {len(stored)} rows. Raise "
                    "disk_gigabytes; the table still has every row."
                )
    return written


def check_stores(coll: Tables, stores: Mapping[str, Store] | Iterable[str]) -> None:
    """Raises unless each store is for a table of the collection, and not another's."""
    if not isinstance(stores, Mapping):
        raise TypeError("stores go by table: {'cat': store}, one for each table")
    for name, store in stores.items():
        config = coll.engine.catalog.dynamic_table(name, "a store")
        Layout.of(config).check_same(store.layout, f"the store of table '{name}'")


def from_store(
    coll: Tables,
    stores: Mapping[str, Store],
    state: States | None = None,
    *,
    allow_drop: bool = False,
) -> Imported:
    """Fills tables with the rows of stores: scores and optimizer states, too.

    The tables may have other capacities than those that wrote the rows, and lie on any
    mesh. Counters of events start at 0.

    Args:
      coll: the tables.
      stores: by table; the others stay as they are.
      state: to be filled: rows of the tables are replaced, and their arrays donated.
        New if None.
      allow_drop: leave out rows that find no place in a smaller table, with a warning.

    Returns:
      The state, and a note for each table that had no room for a row, or that counts
      ids without a row: stores have no counts.

    Raises:
      DamagedFileError: a row is not what was put. The tables were cleared before.
      ValueError: there is no such table, or a store is for rows of another one. Or a
        table has too few slots for the rows. The state lives on.
    """
    check_stores(coll, stores)
    keys_of = {n: functools.partial(_keys, store) for n, store in stores.items()}
    check_room(coll, keys_of, allow_drop)
    new, notes = dict(coll.init(0) if state is None else state), []
    for name, store in stores.items():
        config = coll.tables[name]
        keys = _in_order(store.keys(), config)
        scores = config.score_strategy != ScoreStrategy.NO_EVICTION  # numbers of rows
        chunks = rows_of_store(store, keys)
        rows = fill_table(coll, new, name, chunks, scores=scores)
        notes += lost_rows(name, rows, len(keys))
        if isinstance(config.admission, Frequency):
            notes.append(
                f"Table '{name}': a store has no counts of ids without a row: they are "
                "counted from 0."
            )
    return Imported(new, {}, tuple(notes))


def _keys(store: Store) -> list[np.ndarray]:
    return [store.keys()]


def _in_order(keys: np.ndarray, config: TableConfig) -> np.ndarray:
    """Sorts keys by bucket, so that rows are written where others have just been."""
    buckets = bucket_of(keys, config.num_buckets, config.hash_seed)
    return keys[np.argsort(buckets, kind="stable")]
