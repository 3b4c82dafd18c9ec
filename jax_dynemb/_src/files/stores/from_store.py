# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of stores into tables."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping

import numpy as np

from jax_dynemb._src.admission import Frequency
from jax_dynemb._src.config import ScoreStrategy, TableConfig
from jax_dynemb._src.engines import States
from jax_dynemb._src.engines.shard import counter_values
from jax_dynemb._src.files.live import Imported, check_room, clear_table, lost_rows
from jax_dynemb._src.files.stores.to_store import check_stores
from jax_dynemb._src.rows import Exported, bucket_of
from jax_dynemb._src.stores import Store
from jax_dynemb._src.table import Tables, insert_chunks

_AT_ONCE = 1 << 16


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
        arrays, config = coll.state_name(name), coll.tables[name]
        keys = _in_order(store.keys(), config)
        scores = config.score_strategy != ScoreStrategy.NO_EVICTION  # numbers of rows
        new[arrays] = insert_chunks(
            coll,
            name,
            clear_table(coll, name, new[arrays]),
            _chunks(store, keys),
            scores=scores,
        )
        rows = counter_values(coll.hash_engine.counted(new, name))["rows"]
        notes += lost_rows(name, rows, len(keys))
        if isinstance(config.admission, Frequency):
            notes.append(
                f"Table '{name}': a store has no counts of ids without a row: they are "
                "counted from 0."
            )
    return Imported(new, {}, tuple(notes))


def _keys(store: Store) -> list[np.ndarray]:
    return [store.keys()]


def _chunks(store: Store, keys: np.ndarray) -> Iterator[Exported]:
    for begin in range(0, len(keys), _AT_ONCE):
        some = keys[begin : begin + _AT_ONCE]
        found, packed = store.get(some)
        yield store.layout.unpack(some[found], packed[found])


def _in_order(keys: np.ndarray, config: TableConfig) -> np.ndarray:
    """Sorts keys by bucket, so that rows are written where others have just been."""
    buckets = bucket_of(keys, config.num_buckets, config.hash_seed)
    return keys[np.argsort(buckets, kind="stable")]
