# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The counters of tables as plain numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import jax.numpy as jnp
import numpy as np

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.engines.shard.warnings import refuse_losses, warn_of_losses
from jax_dynemb._src.ops import TableState, on_host, placed_like

# Counted in a shard's first row (core/table_ref.h).
EVENTS = (
    "rows",
    "inserted",
    "evicted",
    "refused",
    "lost_updates",
    "malformed_lengths",
    "nonfinite",
    "hits",
    "misses",
    "not_admitted",
    "erased",
    "removed_by_rule",
    "pinned",
    "evicted_young",
)
_SHOWN = (*EVENTS[1:], "step", "lookups")


class CountedArrays(NamedTuple):
    """Holds what ``Tables.stats`` reads of a state, by the name of the arrays.

    Attributes:
      index: the rows, which are counted.
      counters: of the tables.
      tier: counters of tiers, None without one.
    """

    index: dict[str, Any]
    counters: dict[str, Any]
    tier: dict[str, Any]

    @classmethod
    def of(cls, state: Mapping[str, TableState]) -> Self:
        """Selects them.

        Args:
          state: some tables: arrays, or their types.
        """
        tiers = {name: each.tier for name, each in state.items()}
        return cls(
            {name: each.index for name, each in state.items()},
            {name: each.counters for name, each in state.items()},
            {name: tier and tier.counters for name, tier in tiers.items()},
        )


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
    warn_of_losses(table, counters)
    refuse_losses(table, counters)
    return {f"{table.name}/{name}": value for name, value in result.items()}


def counter_values(state: TableState, own: Any = slice(None)) -> dict[str, int]:
    """All counters of a table; waits for the device.

    Events are the sum over all shards; other numbers are the same in each of them.

    Args:
      state: its arrays.
      own: the table's rows of their counters.
    """
    return counter_totals(on_host(state.counters)[own])


def joined_counters(counters: np.ndarray, rows: int) -> np.ndarray:
    """Gives a table other rows of counters: events are summed in the first.

    Args:
      counters: uint32[n, counters, 2] on the host; earlier versions had fewer of them.
      rows: how many it shall have.
    """
    words = np.ascontiguousarray(counters).view(np.uint64)[..., 0]
    names = _ffi.constants()["counters"][: words.shape[1]]
    events = np.array([name in EVENTS for name in names])
    result = np.repeat(words[:1], rows, axis=0)
    left = _ffi.code("counters", "left")  # of each shard
    result[:, left] = words[:, left].max()
    result[:, events] = 0
    result[0, events] = words[:, events].sum(axis=0)  # wraps, as parts may be below 0
    return result[..., None].view(np.uint32)


def counter_totals(counters: np.ndarray) -> dict[str, int]:
    """Sums the rows of a table's counters, see ``counter_values``.

    Args:
      counters: uint32[rows, counters, 2] on the host, those of one table.
    """
    words = np.ascontiguousarray(counters)
    rows = words.view(np.uint64).reshape(words.shape[0], -1)
    names = _ffi.constants()["counters"]
    totals = {
        name: sum(column) if name in EVENTS else column[0]
        for name, column in zip(names, rows.T.tolist(), strict=True)
    }
    # A part of the rows, or of the hits, may be below zero.
    return {name: number % (1 << 64) for name, number in totals.items()}


def set_counters(
    state: TableState, numbers: Mapping[str, int], rows: Any = slice(None)
) -> TableState:
    """Writes some counters of a table; traced or not.

    Args:
      state: its arrays.
      numbers: below 2**64, by name; those of a program that counted something else are
        passed over.
      rows: of the array of counters, those of the table, a slice or their numbers.
        Events are written in the first, other numbers in each.
    """
    names = _ffi.constants()["counters"]
    words = np.zeros(state.counters.shape, np.uint32)
    is_set, of_table = np.zeros(words.shape, bool), np.arange(words.shape[0])[rows]
    for name in numbers.keys() & {*names}:
        column = names.index(name)
        is_set[rows, column] = True
        own = of_table[:1] if name in EVENTS else of_table
        words[own, column] = np.array([numbers[name]], np.uint64).view(np.uint32)
    old = state.counters
    # Elementwise, which a mesh with explicit axes takes as it is.
    counters = placed_like(jnp.where(is_set, words, old), old)
    return dataclasses.replace(state, counters=counters)
