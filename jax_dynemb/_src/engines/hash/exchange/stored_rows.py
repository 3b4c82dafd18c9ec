# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Which tables peers read rows out of, and where those lie.

An owner then copies no row before it travels. It sends slots, and the rows of those ids
that have none. Whatever changes the tables next waits until all peers have read them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

import jax
import jax.numpy as jnp

from jax_dynemb._src.engines.hash.exchange.device_batch import DeviceBatch
from jax_dynemb._src.ops import Placed, StoredRows, StoredTable, TableState
from jax_dynemb._src.spec import TableSpec

# With a million ids that two H200s share, a step takes 8 % less for rows of 128 bytes.
# For rows of 32 it takes 5 % more: the owner's buffer has those side by side.
_LEAST_BYTES = 128


def tables_in_place(
    batch: DeviceBatch, runs: Sequence[int], placed: Placed | None, arrays: int
) -> list[bool]:
    """Says of which tables peers read the rows where they are stored.

    Args:
      batch: the features.
      runs: numbers of the runs that peers read into the places of their ids.
      placed: what a call does for them.
      arrays: how many a device has on the wire.
    """
    tables, dtypes = batch.exchange.tables, batch.exchange.dtypes
    if placed is None or not placed.is_one_call(arrays, len(_arrays_of(tables))):
        return [False] * len(tables)
    others = (run for r, run in enumerate(batch.runs) if r not in runs)
    buffered = {t for run in others for t in run.tables}
    return [
        t not in buffered and _is_as_sent(table, dtype)
        for t, (table, dtype) in enumerate(zip(tables, dtypes, strict=True))
    ]


def _is_as_sent(table: TableSpec, dtype: str) -> bool:
    """Whether a row is stored as it is sent, and is worth a read of its own."""
    is_whole = table.tier is None and table.row_format is None
    row_bytes = table.dim * jnp.dtype(dtype).itemsize
    return is_whole and table.param_dtype == dtype and row_bytes >= _LEAST_BYTES


def _arrays_of(tables: Iterable[TableSpec]) -> list[str]:
    return list(dict.fromkeys(table.state_name for table in tables))


def stored_rows(
    batch: DeviceBatch,
    in_place: Sequence[bool],
    states: Mapping[str, TableState],
    slots: jax.Array,
) -> StoredRows:
    """Locates the rows of what this device received as an owner.

    Args:
      batch: the features.
      in_place: by table, whether its rows are read where they are stored.
      states: of this device, as the lookup left them.
      slots: that it found, table by table.
    """
    exchange = batch.exchange
    names = _arrays_of(itertools.compress(exchange.tables, in_place))
    first_places = itertools.accumulate(exchange.counts[:-1], initial=0)
    tables = [
        StoredTable(
            names.index(table.state_name), place, table.first_slot, table.local_slots
        )
        if is_stored
        else StoredTable(0, place, 0, 0)  # no slot is one of it
        for table, place, is_stored in zip(
            exchange.tables, first_places, in_place, strict=True
        )
    ]
    return StoredRows([states[name].values for name in names], slots, tables)
