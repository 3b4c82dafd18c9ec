# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""One call of each operation of a hash table, as a step of a chain."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jax_dynemb as jde
from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src import ops
from jax_dynemb._src.ops import prepare
from jax_dynemb._src.spec import TableSpec

SLOTS_ONLY = "find_or_insert, slots only"
UNIQUE = "insert_or_assign, unique ids"


def step(coll: jde.Tables, operation: str) -> Any:
    """Returns the jitted `tables, ids, rows -> tables, output`."""
    (name,) = coll.tables

    def call(state: Any, ids: jax.Array, rows: jax.Array) -> tuple[Any, Any]:
        if operation == "find":
            output, _, state = coll.find(state, {name: ids})
        elif operation == "find_or_insert":
            output, _, state = coll.lookup(state, {name: ids})
        elif operation in ("insert_or_assign", UNIQUE):
            unique, output = operation == UNIQUE, ()
            state = coll.insert(state, {name: ids}, {name: rows}, unique_ids=unique)
        elif operation == SLOTS_ONLY:
            output, state = _slots(coll, state, ids)
        else:
            raise ValueError(f"unknown operation {operation!r}")
        return state, output

    return jax.jit(call, donate_argnums=0)


def _slots(coll: jde.Tables, state: Any, ids: jax.Array) -> tuple[jax.Array, Any]:
    """Lookup without rows: where each id is, or where it is put."""
    (config,) = coll.tables.values()
    layout, given = prepare(config, config.name, ids)
    layout = dataclasses.replace(layout, pooling="no_rows")
    zero = jnp.zeros((1, 2), jnp.uint32)
    (output,), new, _ = ops.lookup(
        [TableSpec.of(config)], state, [(layout, given)], zero
    )
    return output["slots"], new


class ExportStep:
    """Reads one range of buckets after the other, with their rows.

    Attributes:
      slots: of one range.
    """

    def __init__(self, config: jde.TableConfig, slots: int):
        """Reads about `slots` slots in a call."""
        spec = TableSpec.of(config)
        bucket = _ffi.constants()["bucket_capacity"]
        buckets = min(config.num_buckets, max(1, slots // bucket))
        self.slots = buckets * bucket
        starts = range(0, config.num_buckets - buckets + 1, buckets)
        self._starts = [jnp.array([first], jnp.int32) for first in starts]
        self._min_score = jnp.zeros(2, jnp.uint32)

        def export(state: Any, first: jax.Array, min_score: jax.Array) -> Any:
            keys, scores, slots, count = ops.export_batch(
                spec, state.index, first, buckets, min_score
            )
            return keys, scores, state.values[jnp.maximum(slots, 0)], count

        self._export = jax.jit(export)

    def __call__(self, carry: tuple[Any, np.int64]) -> tuple[Any, Any]:
        """Reads the next range; the carry is the table and the number of the call."""
        state, number = carry
        first = self._starts[int(number) % len(self._starts)]
        return (state, number + 1), self._export(state, first, self._min_score)
