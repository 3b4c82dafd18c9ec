# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A larger table from a smaller one: every bucket becomes several.

The high bits of a hash choose the bucket. With ``factor`` times as many buckets, the
keys of bucket b live in the buckets from ``factor * b`` on. A row keeps its place in
its bucket, and nothing moves between shards.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, UInt32

from jax_dynemb import _ffi
from jax_dynemb._spec import TableSpec
from jax_dynemb.config import TableConfig
from jax_dynemb.engines.shard._counters import EVENTS
from jax_dynemb.ops import (
    TableState,
    bucket_of,
    check_state,
    empty_index,
    grown_log,
    hash_words,
    refuse_packed,
)


def larger(table: TableConfig, capacity: int) -> TableConfig:
    """The config with the fewest times as many buckets that hold ``capacity`` rows."""
    if capacity < table.num_slots:
        raise ValueError(
            f"Table '{table.name}' has {table.num_slots} rows already; grow takes the "
            f"new number of rows, more than that, not {capacity}. To make a table "
            "smaller restore a checkpoint into another TableConfig."
        )
    factor = -(-capacity // table.num_slots)
    if factor == 1:
        return table
    while True:
        # The number of buckets is rounded, see buckets_for: not every multiple is one.
        slots = factor * table.num_slots
        config = dataclasses.replace(table, capacity=slots)
        if config.num_slots == slots:
            return config
        factor += 1


def grown_state(table: TableSpec, factor: int, state: TableState) -> TableState:
    """The arrays of a shard with ``factor`` times as many buckets.

    Args:
      table: before, as the shard sees it.
      factor: 2 or more.
      state: of the shard.
    """
    refuse_packed([table], "grow")
    if table.tier is not None:
        raise NotImplementedError(
            f"Table '{table.name}' has a tier and cannot grow: save a checkpoint and "
            "restore it into a TableConfig of a larger capacity."
        )
    check_state(table, state)

    def repeated(rows: jax.Array) -> jax.Array:
        # In all new buckets of an old one; where a key is not they are never read.
        size = table.num_slots // table.num_buckets
        of_buckets = rows.reshape(table.local_buckets, 1, size, *rows.shape[1:])
        shape = (table.local_buckets, factor, *of_buckets.shape[2:])
        return jnp.broadcast_to(of_buckets, shape).reshape(-1, *rows.shape[1:])

    grown = dataclasses.replace(table, num_buckets=factor * table.num_buckets)
    return dataclasses.replace(
        state,
        index=_split(state.index, table, factor),
        values=repeated(state.values),
        optimizer={name: repeated(x) for name, x in state.optimizer.items()},
        counters=_counters(state.counters, grown.counter_rows),
        sketch=_grown_sketch(state.sketch, table, factor),
        removed=grown_log(table, grown, state.removed),
    )


def _grown_sketch(
    sketch: jax.Array | None, table: TableSpec, factor: int
) -> jax.Array | None:
    """Counts of a bucket for the buckets that it becomes, so each key finds its own."""
    if sketch is None:
        return None
    if not table.counts_keys:
        return jnp.repeat(sketch, factor, 0)
    words = _ffi.constants()["bucket_words"]
    of_each = table.sketch_words // words
    counter = dataclasses.replace(table, num_buckets=of_each * table.num_buckets)
    return _split(sketch.reshape(-1, words), counter, factor).reshape(
        -1, table.sketch_words
    )


def _split(
    index: UInt32[Array, "buckets 544"], table: TableSpec, factor: int
) -> UInt32[Array, "more 544"]:
    """The index in which each key is in its new bucket, at its old place."""
    begin, step = (_ffi.constants()[n] for n in ("keys_word", "slot_words"))
    keys = index[:, begin:].reshape(index.shape[0], -1, step)[..., :2]
    # Its number in the whole table; the old number is a multiple below.
    hashes = hash_words(keys, table.hash_seed)
    bucket = bucket_of(*hashes, table.num_buckets * factor)
    child = jnp.arange(factor, dtype=jnp.uint32).reshape(1, -1, 1)
    mine = (bucket % jnp.uint32(factor))[:, None, :] == child
    # A key and its score are four words; digests are bytes, four in a word.
    bytes_kept = jnp.where(mine, jnp.uint8(0xFF), jnp.uint8(0))
    bytes_kept = bytes_kept.reshape(*mine.shape[:2], -1, 4)
    entries_kept = jnp.where(mine, jnp.uint32(0xFFFFFFFF), jnp.uint32(0))
    entries_kept = jnp.repeat(entries_kept, step, axis=2)
    digests_kept = jax.lax.bitcast_convert_type(bytes_kept, jnp.uint32)
    kept = jnp.concatenate([digests_kept, entries_kept], axis=2)
    split = (index[:, None, :] & kept) | (empty_index(1)[:, None, :] & ~kept)
    return split.reshape(-1, index.shape[1])


def _counters(counters: jax.Array, rows: int) -> jax.Array:
    """More rows, for a table that may be cut into more shards."""
    times = rows // counters.shape[0]
    names = _ffi.constants()["counters"]
    is_event = jnp.array([name in EVENTS for name in names])
    first = (jnp.arange(rows) % times == 0)[:, None]
    # A row's slot has another number from now on, for those who know it from a lookup.
    left = _ffi.code("counters", "left")
    counters = counters.at[:, left].set(jnp.array([1, 0], jnp.uint32))
    repeated = jnp.repeat(counters, times, axis=0)
    return jnp.where((is_event[None] & ~first)[:, :, None], jnp.uint32(0), repeated)
