# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The counters of tables as plain numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from jax_dynemb import _ffi
from jax_dynemb.config import TableConfig
from jax_dynemb.ops._bucket_rows import fullest_buckets
from jax_dynemb.ops._state import TableState
from jax_dynemb.sharding._hosts import on_host
from jax_dynemb.sharding._placement import Placement
from jax_dynemb.table._blocks import by_arrays

# Counted in a shard's first row (core/table_ref.h).
EVENTS = (
    "rows",
    "inserted",
    "evicted",
    "refused",
    "lost_updates",
    "malformed_lengths",
    "nonfinite",
)
_SHOWN = (*EVENTS[1:], "step", "lookups")


def stats(
    table: TableConfig, counters: Mapping[str, int], fullest: int
) -> dict[str, int | float]:
    """See ``Tables.stats``; of one table.

    Args:
      table: its config.
      counters: of it, by name.
      fullest: rows of its fullest bucket.
    """
    result: dict[str, int | float] = {
        "rows": counters["rows"],
        "capacity": table.num_slots,
        "load_factor": counters["rows"] / table.num_slots,
        "fullest_bucket": fullest,
        "mean_bucket": counters["rows"] / table.num_buckets,
    }
    result |= {name: counters[name] for name in _SHOWN}
    if table.on_full == "error" and counters["refused"] > 0:
        raise RuntimeError(
            f"Table '{table.name}' refused {counters['refused']} ids: their buckets "
            f"are full ({counters['rows']} of {table.num_slots} rows are taken). Raise "
            "capacity, or use on_full='evict' so that old rows make room."
        )
    return {f"{table.name}/{name}": value for name, value in result.items()}


def fullest_on_one_device(
    placed: Iterable[TableConfig], state: Mapping[str, TableState]
) -> dict[str, int]:
    """The rows of the fullest bucket by table; waits for the device.

    Args:
      placed: the tables with their blocks.
      state: the tables.
    """
    ranges: dict[str, list[tuple[int, int]]] = {}
    names = []
    for place, tables in by_arrays(placed).items():
        for table in tables:
            first = 0 if table.block is None else table.block.first_bucket
            ranges.setdefault(place, []).append((first, first + table.num_buckets))
            names.append(table.name)
    static = tuple((place, tuple(some)) for place, some in ranges.items())
    most = fullest_buckets(static, {place: state[place].index for place in ranges})
    return dict(zip(names, np.asarray(most).tolist(), strict=True))


def fullest_on_mesh(
    placement: Placement, counted: Mapping[str, np.ndarray]
) -> dict[str, int]:
    """The same for tables on a mesh, from what ``count_rows`` returns."""
    return {
        table.name: int(counted[stack.name][stack.owners(table.name), 1].max())
        for stack in placement.stacks
        for table in stack.tables
    }


def counter_values(state: TableState, own: slice = slice(None)) -> dict[str, int]:
    """All counters of a table; waits for the device.

    Events are the sum over all shards; other numbers are the same in each of them.

    Args:
      state: its arrays.
      own: the table's rows of their counters.
    """
    words = np.ascontiguousarray(on_host(state.counters)[own])
    rows = words.view(np.uint64).reshape(words.shape[0], -1)
    names = _ffi.constants()["counters"]
    totals = {
        name: sum(column) if name in EVENTS else column[0]
        for name, column in zip(names, rows.T.tolist(), strict=True)
    }
    totals["rows"] %= 1 << 64  # a part of it may be below zero
    return totals
