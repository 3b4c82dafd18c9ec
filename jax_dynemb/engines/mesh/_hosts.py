# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Small numbers of all shards on every host."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb.config import TableConfig
from jax_dynemb.engines.mesh._placement import Placement
from jax_dynemb.engines.mesh._stacks import Stack
from jax_dynemb.ops import TableState, bucket_rows, on_host

_EXCHANGE = ("exchange_capacity", "exchange_peak", "exchange_overflows")


def table_counters(stack: Stack, table: str, state: TableState) -> TableState:
    """Returns a state whose counters are those of one table, in NumPy."""
    rows = first_counter_rows(stack, table)
    counters: Any = on_host(state.counters)[rows]
    return dataclasses.replace(state, counters=counters)


def first_counter_rows(stack: Stack, table: str) -> slice:
    """Finds the rows of counters that belong to the first copy of a table."""
    if stack.sharding == "row_wise":
        return counter_rows(stack, table)
    return slice(0, stack.local.counter_rows)


def counter_rows(stack: Stack, table: str) -> slice:
    """Finds the rows of counters that belong to a table, copies included."""
    if len(stack.tables) == 1:
        return slice(None)
    rows, place = stack.local.counter_rows * stack.width, stack.block_of(table)
    return slice(place * rows, (place + 1) * rows)


def fullest_buckets(
    placement: Placement, counted: Mapping[str, np.ndarray]
) -> dict[str, int]:
    """Finds the rows of the fullest bucket by table in what ``by_stack`` returns."""
    return {
        table.name: int(counted[stack.name][stack.owners(table.name), 1].max())
        for stack in placement.stacks
        for table in stack.tables
    }


def exchange_stats(
    placement: Placement,
    table: TableConfig,
    counted: Mapping[str, np.ndarray],
    counters: Mapping[str, int],
) -> dict[str, int | float]:
    """Computes ``Tables.stats`` of a table whose rows are on single shards.

    Args:
      placement: of the collection.
      table: one of its tables.
      counted: what ``by_stack`` returns.
      counters: of the table, by name.
    """
    stack = placement.stack_of(table.name)
    if stack.sharding != "row_wise":
        return {}
    rows = counted[stack.name][stack.owners(table.name), 0]
    result: dict[str, int | float] = {name: counters[name] for name in _EXCHANGE}
    result["fullest_shard"] = int(rows.max()) / stack.local.local_slots
    return {f"{table.name}/{name}": value for name, value in result.items()}


def count_rows(placement: Placement, indexes: Mapping[str, jax.Array]) -> jax.Array:
    """Counts rows in the index, so that it is right after a restore too.

    Args:
      placement: of the collection.
      indexes: by the name of the arrays.

    Returns:
      int32[shards, arrays, 2] on the devices: the rows of each shard, and those of its
      fullest bucket. Arrays are in order of their names.
    """
    specs = placement.state_specs(placement.stacks)
    of_indexes = {name: spec.index for name, spec in specs.items()}
    run = placement.mapped(_counts, (of_indexes,), placement.split)
    return run(dict(indexes))


def by_stack(placement: Placement, counts: np.ndarray) -> dict[str, np.ndarray]:
    """Names what ``count_rows`` has counted: int32[shards, 2] by name of the arrays."""
    names = sorted(stack.name for stack in placement.stacks)
    return dict(zip(names, counts.transpose(1, 0, 2), strict=True))


def _counts(indexes: Mapping[str, jax.Array]) -> jax.Array:
    counts = []
    for name in sorted(indexes):
        rows = bucket_rows(indexes[name])
        counts.append(jnp.stack([rows.sum(), rows.max()]))
    return jnp.stack(counts)[None]
