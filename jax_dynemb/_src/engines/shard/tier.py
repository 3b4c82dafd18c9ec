# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Reports on tiered tables on the host."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src import ops
from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.kept_jit import kept_jit
from jax_dynemb._src.ops import TableState
from jax_dynemb._src.spec import TableSpec

_log = logging.getLogger("jax_dynemb.tiers")


def without_homes(state: TableState) -> TableState:
    """Returns the same state without its home records, if it has any."""
    if state.tier is None:
        return state
    tier = dataclasses.replace(state.tier, homes=None)  # pyright: ignore[reportArgumentType]
    return dataclasses.replace(state, tier=tier)


def tier_stats(
    table: TableConfig, counters: np.ndarray | None, rows: slice = slice(None)
) -> dict[str, int | float]:
    """See ``Tables.stats``; the part about a table's tier, empty where it has none.

    Args:
      table: its config.
      counters: uint32[rows, counters, 2] on the host.
      rows: those of the table.
    """
    if counters is None:
        return {}
    words = np.ascontiguousarray(counters[rows])
    sums = words.view(np.uint64).reshape(words.shape[0], -1).sum(axis=0)
    names = _ffi.constants()["tier_counters"]
    numbers: dict[str, int | float] = dict(zip(names, sums.tolist(), strict=True))
    hits, misses = numbers.pop("hits"), numbers.pop("misses")
    numbers["hbm_hit_rate"] = hits / max(1, hits + misses)
    record = 4e-9 * TableSpec.of(table).record_words
    read = ("promoted", "prefetched", "bypassed", "updated_home")
    numbers["bus_gigabytes_in"] = record * sum(numbers[name] for name in read)
    numbers["bus_gigabytes_out"] = record * numbers["written_back"]
    if table.tier is not None and table.tier.ring_rows == 0:
        for name in ("departed", "ring_full", "held"):
            del numbers[name]
    elif numbers["ring_full"]:
        _say_full(table, int(numbers["ring_full"]))
    return {f"{table.name}/{name}": number for name, number in numbers.items()}


# How many newcomers had found a full ring when it was said last, by table.
_said: dict[str, int] = {}


def _say_full(table: TableConfig, refused: int) -> None:
    if refused <= _said.get(table.name, 0):
        return
    _said[table.name] = refused
    assert table.tier is not None
    _log.warning(
        "Table '%s': %d ids got no row, since %d evicted rows waited for its store. "
        "Train through jde.tiers.prefetch_rows, which takes them; or raise ring_rows "
        "to those of one step.",
        table.name,
        refused,
        table.tier.ring_rows,
    )


_CHUNK_BYTES = 1 << 28


def rows_in_order(
    shards: Sequence[tuple[TableSpec, TableState]],
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Reads rows and optimizer states of all slots, as an untiered table has them.

    Args:
      shards: of one tiered table, in order.

    Returns:
      param_dtype[slots, dim], and each state by name.
    """
    pieces = []
    for table, state in shards:
        most = max(1, _CHUNK_BYTES // (4 * table.record_words))
        chunk = min(most, table.local_slots)
        for first in range(0, table.local_slots, chunk):
            slots = jnp.arange(first, first + chunk, dtype=jnp.int32)
            last = table.local_slots - first
            read = jax.device_get(_read(table, state, slots))
            pieces.append(jax.tree.map(lambda x, n=last: x[:n], read))
    return jax.tree.map(lambda *parts: np.concatenate(parts), *pieces)


@kept_jit(0)
def _read(
    table: TableSpec, state: TableState, slots: jax.Array
) -> tuple[jax.Array, dict[str, jax.Array]]:
    return ops.gather_rows(table, state, slots)


def records_of(
    table: TableSpec, values: np.ndarray, states: Mapping[str, np.ndarray]
) -> np.ndarray:
    """Joins rows and optimizer states to home records, uint32[slots, words]."""
    records = np.zeros((values.shape[0], table.record_words), np.uint32)
    row_bytes = records.view(np.uint8)
    arrays = [values, *(states[name] for name in table.states)]
    for array, (begin, _) in zip(arrays, table.record_parts, strict=True):
        flat = np.ascontiguousarray(array).reshape(values.shape[0], -1).view(np.uint8)
        row_bytes[:, 4 * begin : 4 * begin + flat.shape[1]] = flat
    return records
