# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The rows of a tiered table that grows: each is copied once, to its new home.

Frames of the larger table begin empty. The rows of both tables are in host memory
together while it grows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src import ops
from jax_dynemb._src.engines.shard.grow import child_of, split_spec
from jax_dynemb._src.kept_jit import kept_jit
from jax_dynemb._src.ops import TableState
from jax_dynemb._src.spec import TableSpec

_CHUNK_BYTES = 1 << 28  # of rows in device memory


def with_grown_homes(
    table: TableSpec,
    factor: int,
    before: TableState,
    after: TableState,
    move: Callable[[TableState, jax.Array, Any, int], jax.Array],
) -> TableState:
    """Makes the home records of the larger table, and copies the rows there.

    Args:
      table: before, as a shard sees it.
      factor: how many times as many buckets it gets.
      before: its arrays, or those of all shards; unchanged.
      after: what ``grown_state`` made of them.
      move: ``moved_rows`` of these shards, as a program. It takes the smaller table,
        the new homes, which are donated, the first bucket, and how many.
    """
    new = ops.with_homes(split_spec(table, factor), after)
    assert new.tier is not None
    bucket = 4 * table.record_words * _ffi.constants()["bucket_capacity"]
    chunk = min(table.local_buckets, max(1, _CHUNK_BYTES // bucket))
    homes = new.tier.homes
    for first in range(0, table.local_buckets, chunk):
        homes = move(before, homes, np.int32(first), chunk)
    tier = dataclasses.replace(new.tier, homes=homes)
    return dataclasses.replace(new, tier=tier)


def moved_rows(
    table: TableSpec,
    factor: int,
    before: TableState,
    homes: jax.Array,
    first: jax.Array,
    count: int,
) -> jax.Array:
    """Copies the rows of some buckets of a shard to the homes of the larger table.

    Args:
      table: before, as the shard sees it.
      factor: how many times as many buckets it gets.
      before: its arrays.
      homes: of the larger table.
      first: int32[], the first bucket; near the end those before it are copied again.
      count: of buckets; static.

    Returns:
      The homes.
    """
    size = _ffi.constants()["bucket_capacity"]
    first = jnp.minimum(first, table.local_buckets - count)
    index = jax.lax.dynamic_slice_in_dim(before.index, first, count)
    child = child_of(index, table, factor).astype(jnp.int32)
    bucket = first + jnp.arange(count, dtype=jnp.int32)[:, None]
    place = jnp.arange(size, dtype=jnp.int32)[None, :]
    old = (bucket * size + place).reshape(-1)
    new = ((bucket * factor + child) * size + place).reshape(-1)
    values, states = ops.gather_rows(table, before, old)
    return ops.put_records(split_spec(table, factor), homes, new, values, states)


moved_on_one_device = kept_jit(0, 1, 5, donated=(3,))(moved_rows)
