# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The counters of tables as plain numbers."""

from __future__ import annotations

import numpy as np

from jax_dynemb import _ffi
from jax_dynemb.config import TableConfig
from jax_dynemb.ops._state import TableState

_SHOWN = ("inserted", "evicted", "refused", "lost_updates", "step", "lookups")


def stats(table: TableConfig, state: TableState) -> dict[str, int | float]:
    """See ``Tables.stats``; of one table."""
    counters = counter_values(state)
    result: dict[str, int | float] = {
        "rows": counters["rows"],
        "capacity": table.num_slots,
        "load_factor": counters["rows"] / table.num_slots,
    }
    result |= {name: counters[name] for name in _SHOWN}
    if table.on_full == "error" and counters["refused"] > 0:
        raise RuntimeError(
            f"Table '{table.name}' refused {counters['refused']} ids: their buckets "
            f"are full ({counters['rows']} of {table.num_slots} rows are taken). Raise "
            "capacity, or use on_full='evict' so that old rows make room."
        )
    return {f"{table.name}/{name}": value for name, value in result.items()}


def counter_values(state: TableState) -> dict[str, int]:
    """All counters of a table, summed over shards; waits for the device."""
    words = np.ascontiguousarray(np.asarray(state.counters))
    totals = words.view(np.uint64).reshape(words.shape[0], -1).sum(axis=0)
    names = _ffi.constants()["counters"]
    return {name: int(total) for name, total in zip(names, totals, strict=True)}
