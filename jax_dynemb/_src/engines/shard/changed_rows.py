# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Copies what changed in a table on the device, without a wait for the host."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src import ops
from jax_dynemb._src.engines.shard.export_rows import index_only
from jax_dynemb._src.engines.shard.scores import PACKED
from jax_dynemb._src.kept_jit import kept_jit
from jax_dynemb._src.ops import TableState
from jax_dynemb._src.row_formats import LARGEST_CODES, scaled_codes
from jax_dynemb._src.spec import TableSpec


class ChangedRows(NamedTuple):
    """Rows of one shard that lookups used since a clock, in buffers of their own.

    Attributes:
      keys: uint32[room, 2].
      rows: [room, dim]: floats, or int8 with ``scales``.
      scales: float32[room] of int8 rows; else None.
      count: int32[1], how many rows changed. Only ``room`` of more are here.
    """

    keys: jax.Array
    rows: jax.Array
    scales: jax.Array | None
    count: jax.Array


class CopiedTable(NamedTuple):
    """Says how the changed rows of a shard are copied.

    Attributes:
      table: of the shard.
      room: of the buffers, in rows.
      dtype: "float32", "bfloat16", or "int8" with a scale for each row.
    """

    table: TableSpec
    room: int
    dtype: str

    @classmethod
    def of(cls, table: TableSpec, room: int, dtype: str) -> CopiedTable:
        """Bounds the room by the slots of the shard."""
        ops.refuse_packed([table], "Publisher")
        return cls(table, min(room, table.local_slots), dtype)


@kept_jit(0)
def copy_changed_rows(
    tables: tuple[CopiedTable, ...], states: tuple[TableState, ...], since: jax.Array
) -> list[ChangedRows]:
    """Starts to copy what changed in shards; the next call may donate their states.

    ``copy_changed_rows.prepare`` compiles it, for the types of arrays.

    Args:
      tables: of the shards, which lie on one device.
      states: their arrays.
      since: uint32[n, 2], of each the clock of the first lookup that counts, above 0.
    """
    found: list[ChangedRows] = []
    for place, (copied_table, state) in enumerate(zip(tables, states, strict=True)):
        words = since[place]
        if found:  # in turn, since each lists its slots in memory of its own
            words, _ = jax.lax.optimization_barrier((words, found[-1].count))
        found.append(_changed_in(copied_table, state, words))
    return found


def _changed_in(
    copied_table: CopiedTable, state: TableState, since: jax.Array
) -> ChangedRows:
    table, room, dtype = copied_table
    packed = table.score_strategy in PACKED
    least = jnp.zeros_like(since) if packed else since
    first = jnp.zeros(1, jnp.int32)
    keys, scores, slots, count = ops.export_batch(
        index_only(table), state.index, first, table.local_buckets, least
    )
    if packed:  # scores have the low word of the clock only
        place = _ffi.code("counters", "clock")
        now = state.counters[table.first_row, place, 0]
        recent = now - scores[:, 0] <= now - since[0]
        pinned = (scores[:, 1] >> 30) & 1 == 1
        used = (recent | pinned) & (jnp.arange(len(slots)) < count[0])
        count = used.sum(dtype=jnp.int32)[None]
        order = jnp.nonzero(used, size=room, fill_value=0)[0]
        keys, slots = keys[order], slots[order]
    keys = keys[:room]
    live = jnp.arange(room) < count[0]
    slots = jnp.where(live, slots[:room], 0) + jnp.int32(table.first_slot)
    if table.tier is None:
        rows = state.values[slots]
    else:
        rows, _ = ops.gather_rows(table, state, slots)
    if dtype != "int8":
        return ChangedRows(keys, rows.astype(dtype), None, count)
    codes, scales = scaled_codes(rows, LARGEST_CODES["int8"], jnp)
    return ChangedRows(keys, codes, scales, count)


@jax.jit
def copied(arrays: tuple[jax.Array | None, ...]) -> tuple[jax.Array | None, ...]:
    """Copies arrays; jit alone would return its arguments themselves."""
    return jax.tree.map(jnp.copy, arrays)


class HostRows(NamedTuple):
    """``ChangedRows`` on the host: keys int64[n] and the stored form of their rows."""

    keys: np.ndarray
    rows: np.ndarray
    scales: np.ndarray | None
    count: int


def to_host(changed: ChangedRows) -> HostRows:
    """Waits for the copy. ``count`` may be above the number of rows that are here."""
    found = jax.device_get(changed)
    count = int(found.count[0])
    n = min(count, len(found.keys))
    keys = np.ascontiguousarray(found.keys[:n]).view(np.int64).reshape(-1)
    scales = None if found.scales is None else found.scales[:n]
    return HostRows(keys, found.rows[:n], scales, count)
