# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Rows that stay for some lookups, and rows that were evicted, read on the host."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src import ops
from jax_dynemb._src.engines.shard.stored_slots import stored_slots
from jax_dynemb._src.ops import Ring, TableState, states_of_rows
from jax_dynemb._src.rows import Exported, joined
from jax_dynemb._src.spec import TableSpec


def hold_rows(
    table: TableSpec, state: TableState, ids: jax.Array, lookups: int
) -> TableState:
    """Keeps rows from eviction; of one table, on one shard.

    Args:
      table: its spec.
      state: its arrays.
      ids: flat; those that are not stored are passed over.
      lookups: static, how many lookups to come.
    """
    slots, state = stored_slots(table, state, ids)
    return ops.hold(table, state, slots, lookups)


def read_rings(table: TableSpec, rings: Sequence[Ring]) -> Exported:
    """Reads the departed rows of some shards of a table; waits for the device.

    Args:
      table: the spec of a shard.
      rings: of the shards, in order.

    Returns:
      Rows in the order in which they left each shard. States that no update has
      written yet have their initial values.
    """
    return joined([_read_ring(table, ring) for ring in rings])


def _read_ring(table: TableSpec, ring: Ring) -> Exported:
    notes = np.asarray(ring.notes)
    copied = _ffi.code("ring_words", "copied")
    count = min(int(notes[0, copied]), table.ring_rows)
    # Most rings are empty most of the time: only the notes are read then.
    words = ring.records.shape[1]
    records = np.asarray(ring.records)[:count] if count else np.zeros((0, words), "<u4")
    parts = [
        np.ascontiguousarray(records[:, begin : begin + size])
        for begin, size in table.record_parts
    ]
    states = {
        name: part.view(spec.dtype).reshape(count, *spec.shape)
        for (name, spec), part in zip(table.states.items(), parts[1:], strict=True)
    }
    dtype = jax.numpy.dtype(table.param_dtype)
    pairs = np.ascontiguousarray(notes[1 : 1 + count, :4]).view(np.uint64)
    return Exported(
        keys=pairs[:, 0].view(np.int64),
        rows=parts[0].view(dtype)[:, : table.dim],
        scores=pairs[:, 1].copy(),
        optimizer_state=states_of_rows(
            {name: spec.initial for name, spec in table.states.items()}, states
        ),
    )
