# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Imports into tables that are cleared; rows without a place are refused or told of."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import jax
import numpy as np

from jax_dynemb._src.engines import States
from jax_dynemb._src.engines.shard import counter_values, set_counters
from jax_dynemb._src.ops import TableState, extended_numbers, is_shared, new_run
from jax_dynemb._src.rows import Exported, Keys, roomy_capacity, without_place
from jax_dynemb._src.table import Tables, insert_chunks


class Imported(NamedTuple):
    """Holds what an import returns.

    Attributes:
      state: the tables.
      counters: admission counts by table, where the files have them: (keys int64[m],
        frequencies int64[m]).
      notes: a sentence for everything that is not as it was written.
    """

    state: States
    counters: dict[str, tuple[np.ndarray, np.ndarray]]
    notes: tuple[str, ...]


def check_room(coll: Tables, found: Mapping[str, Keys], allow_drop: bool) -> None:
    """Refuses rows without a place before any table is touched; names a capacity.

    ``found`` starts to read the keys of a table's rows; ``allow_drop`` checks nothing.
    """
    for name, keys in {} if allow_drop else found.items():
        config = coll.tables[name]
        lost = without_place(keys, config.num_buckets, config.hash_seed)
        if lost:
            rows = sum(map(len, keys()))
            raise ValueError(
                f"{no_place(name, lost, rows, config.num_slots)} Declare the table "
                f"with capacity={roomy_capacity(keys, config)}, or pass "
                "allow_drop=True to leave out what finds none."
            )


def no_place(name: str, lost: int, rows: int, slots: int) -> str:
    """Says how many rows of a table would be lost."""
    return (
        f"Table '{name}': {lost} of {rows} rows would find no place in their bucket; "
        f"the table has {slots} slots."
    )


def warn_of_loss(sentence: str) -> list[str]:
    """Says what was lost in a warning and in the log; returns it for the notes."""
    logging.getLogger("jax_dynemb.files").warning(sentence)
    warnings.warn(sentence, stacklevel=3)
    return [sentence]


def lost_rows(name: str, rows: int, read: int) -> list[str]:
    """Warns if a table has fewer rows than were read for it; returns the warning."""
    if rows >= read:
        return []
    return warn_of_loss(
        f"Table '{name}': {read - rows} of {read} rows found no place in their bucket, "
        "had a key twice, or have the id that padding_id names. Raise capacity."
    )


def clear_table(coll: Tables, name: str, state: TableState) -> TableState:
    """Removes all rows of a table, in the same memory; ``state`` is donated.

    Rows of another run follow, so the clock and the lineage start again.
    """
    places = jax.tree.map(lambda array: array.sharding, state)
    clear = jax.jit(
        _cleared, static_argnums=(0, 1), donate_argnums=2, out_shardings=places
    )
    rows = coll.hash_engine.counter_rows(name)
    lineage = extended_numbers({}, new_run(is_shared(state.counters)))
    return set_counters(clear(coll, name, state), {"clock": 0} | lineage, rows)


def fill_table(
    coll: Tables, state: States, name: str, chunks: Iterable[Exported], **options: bool
) -> int:
    """Replaces the rows of a table in ``state``; returns how many it has then."""
    arrays = coll.state_name(name)
    empty = clear_table(coll, name, state[arrays])
    state[arrays] = insert_chunks(coll, name, empty, chunks, **options)
    return counter_values(coll.hash_engine.with_own_counters(state, name))["rows"]


def _cleared(coll: Tables, name: str, state: TableState) -> TableState:
    arrays = coll.state_name(name)
    return coll.engine.clear({arrays: state}, (name,))[arrays]
