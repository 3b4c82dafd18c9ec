# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""What a table holds, as numpy arrays, chunk by chunk."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb import _ffi
from jax_dynemb.config import TableConfig
from jax_dynemb.ops import _rows
from jax_dynemb.ops._state import TableState, check_state

_CHUNK_BYTES = 1 << 28


class Exported(NamedTuple):
    """Some live rows of a table, in no particular order.

    Attributes:
      keys: int64[n].
      rows: param_dtype[n, dim].
      scores: uint64[n], see core/score.h.
      optimizer_state: float32[n, dim] or float32[n] by name.
    """

    keys: np.ndarray
    rows: np.ndarray
    scores: np.ndarray
    optimizer_state: dict[str, np.ndarray]


@functools.partial(jax.jit, static_argnums=(0, 1))
def _chunk(
    table: TableConfig,
    num_buckets: int,
    state: TableState,
    first: jax.Array,
    min_score: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array, dict[str, jax.Array]]:
    keys, scores, slots, count = _rows.export_batch(
        table, state.index, first, num_buckets, min_score
    )
    place = jnp.maximum(slots, 0)
    states = {name: array[place] for name, array in state.optimizer.items()}
    return count, keys, state.values[place], scores, states


def export(
    table: TableConfig, state: TableState, min_score: int, chunk_buckets: int | None
) -> Iterator[Exported]:
    """See ``Tables.export``."""
    check_state(table, state)
    buckets = chunk_buckets or _default_chunk(table)
    buckets = max(1, min(buckets, table.local_buckets))
    threshold = jnp.asarray(words_of([min_score])[0])
    for first in range(0, table.local_buckets, buckets):
        count, keys, rows, scores, states = jax.device_get(
            _chunk(table, buckets, state, jnp.array([first], jnp.int32), threshold)
        )
        n = int(count[0])
        if n == 0:
            continue
        yield Exported(
            keys=_words(keys)[:n].view(np.int64),
            rows=rows[:n],
            scores=_words(scores)[:n],
            optimizer_state={name: array[:n] for name, array in states.items()},
        )


def _default_chunk(table: TableConfig) -> int:
    widths = [int(np.prod(s.shape, dtype=int)) for s in table.states.values()]
    row_bytes = 4 * (table.dim + sum(widths)) + 20
    bucket_bytes = row_bytes * _ffi.constants()["bucket_capacity"]
    return max(1, _CHUNK_BYTES // bucket_bytes)


def _words(pairs: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(pairs).view(np.uint64).reshape(-1)


def words_of(numbers: object) -> np.ndarray:
    """uint32[n, 2] from uint64 numbers."""
    array = np.ascontiguousarray(np.asarray(numbers, np.uint64))
    return array.view(np.uint32).reshape(-1, 2)
