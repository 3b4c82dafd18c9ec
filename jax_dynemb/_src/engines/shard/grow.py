# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A larger table from a smaller one: every bucket becomes several.

The high bits of a hash choose the bucket. With ``factor`` times as many buckets, the
keys of bucket b live in the buckets from ``factor * b`` on. A row keeps its place in
its bucket. Nothing moves between shards here; see engines/hash/layouts.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, UInt32

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.engines.shard.counters import EVENTS
from jax_dynemb._src.is_whole import is_whole
from jax_dynemb._src.ops import (
    TableState,
    TierState,
    bucket_of,
    check_state,
    empty_index,
    grown_log,
    hash_words,
    keys_of_index,
    refuse_packed,
)
from jax_dynemb._src.spec import TableSpec
from jax_dynemb._src.store_tier import with_room


def grown_spec(table: TableSpec, factor: int) -> TableSpec:
    """Makes the spec of a table with ``factor`` times as many buckets."""
    return dataclasses.replace(table, num_buckets=factor * table.num_buckets)


def split_spec(table: TableSpec, factor: int) -> TableSpec:
    """Makes the spec of that table while each shard has what its own buckets became.

    It is ``grown_spec`` where shards have equally many buckets.
    """
    buckets = factor * table.shards * table.local_buckets
    return dataclasses.replace(table, num_buckets=buckets)


def larger(table: TableConfig, capacity: int) -> TableConfig:
    """The config with the fewest times as many buckets that hold ``capacity`` rows."""
    if not is_whole(capacity):
        raise TypeError(
            f"grow: the capacity of table '{table.name}' must be an int, not "
            f"{capacity!r}."
        )
    if capacity < table.num_slots:
        raise ValueError(
            f"Table '{table.name}' has {table.num_slots} rows already; grow takes the "
            f"new number of rows, more than that, not {capacity}. For a smaller "
            "table restore a checkpoint into another TableConfig with allow_drop=True."
        )
    factor = -(-capacity // table.num_slots)
    if factor == 1:
        return table
    while True:
        # The number of buckets is rounded, see buckets_for: not every multiple is one.
        slots = factor * table.num_slots
        config = with_room(table, slots)
        if config.num_slots == slots:
            return config
        factor += 1


def grown_state(table: TableSpec, factor: int, state: TableState) -> TableState:
    """The arrays of a shard with ``factor`` times as many buckets.

    Args:
      table: before, as the shard sees it.
      factor: 2 or more.
      state: of the shard.

    Returns:
      The arrays; those of a tiered table have no homes yet, see ``grown_homes``.
    """
    refuse_packed([table], "grow")
    check_state(table, state)
    grown = grown_spec(table, factor)

    def repeated(rows: jax.Array) -> jax.Array:
        if table.tier is None:
            return repeated_slots(table, factor, rows)
        # Frames hold other buckets' rows then, and begin empty.
        return jnp.zeros((grown.device_rows, *rows.shape[1:]), rows.dtype)

    return dataclasses.replace(
        state,
        index=_split(state.index, table, factor),
        values=repeated(state.values),
        optimizer={name: repeated(x) for name, x in state.optimizer.items()},
        counters=_counters(state.counters, grown.counter_rows),
        tier=_grown_tier(table, grown, state.tier),
        sketch=_grown_sketch(state.sketch, table, factor),
        removed=grown_log(table, grown, state.removed),
    )


def repeated_slots(table: TableSpec, factor: int, rows: jax.Array) -> jax.Array:
    """Repeats what slots have in all new buckets of an old one.

    Where a key is not they are never read.
    """
    size = table.num_slots // table.num_buckets
    of_buckets = rows.reshape(table.local_buckets, 1, size, *rows.shape[1:])
    shape = (table.local_buckets, factor, *of_buckets.shape[2:])
    return jnp.broadcast_to(of_buckets, shape).reshape(-1, *rows.shape[1:])


def _grown_tier(
    table: TableSpec, grown: TableSpec, tier: TierState | None
) -> TierState | None:
    """The arrays of a tier whose frames are empty, without homes."""
    if tier is None:
        return None
    factor = grown.num_buckets // table.num_buckets
    first, last = (_ffi.constants()[f"{name}_location"] for name in ("fresh", "met"))
    fresh = (tier.location >= first) & (tier.location <= last)
    at_home = jnp.where(fresh, tier.location, jnp.int32(0))
    held = tier.held
    return dataclasses.replace(
        tier,
        location=repeated_slots(table, factor, at_home),
        owners=jnp.zeros((grown.local_buckets, grown.frames), jnp.uint32),
        homes=None,
        counters=_of_more_rows(tier.counters, grown.counter_rows),
        held=None if held is None else repeated_slots(table, factor, held),
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
    index: UInt32[Array, "buckets words"], table: TableSpec, factor: int
) -> UInt32[Array, "more words"]:
    """The index in which each key is in its new bucket, at its old place."""
    step = _ffi.constants()["slot_words"]
    child = jnp.arange(factor, dtype=jnp.uint32).reshape(1, -1, 1)
    mine = child_of(index, table, factor)[:, None, :] == child
    # A key and its score are four words; digests are bytes, four in a word.
    bytes_kept = jnp.where(mine, jnp.uint8(0xFF), jnp.uint8(0))
    bytes_kept = bytes_kept.reshape(*mine.shape[:2], -1, 4)
    entries_kept = jnp.where(mine, jnp.uint32(0xFFFFFFFF), jnp.uint32(0))
    entries_kept = jnp.repeat(entries_kept, step, axis=2)
    digests_kept = jax.lax.bitcast_convert_type(bytes_kept, jnp.uint32)
    words = index.shape[1]
    given = (words - _ffi.constants()["bucket_words"]) // mine.shape[2]
    given_kept = jnp.repeat(jnp.where(mine, jnp.uint32(0xFFFFFFFF), 0), given, axis=2)
    kept = jnp.concatenate([digests_kept, entries_kept, given_kept], axis=2)
    split = (index[:, None, :] & kept) | (empty_index(1, words)[:, None, :] & ~kept)
    return split.reshape(-1, words)


def child_of(
    index: UInt32[Array, "buckets words"], table: TableSpec, factor: int
) -> UInt32[Array, "buckets 128"]:
    """Says in which of the ``factor`` buckets of its old one each key belongs."""
    keys = jnp.stack(keys_of_index(index), axis=-1)
    # The bucket's number in the whole table; the old number is a multiple below.
    hashes = hash_words(keys, table.hash_seed)
    return bucket_of(*hashes, table.num_buckets * factor) % jnp.uint32(factor)


def _counters(counters: jax.Array, rows: int) -> jax.Array:
    """More rows, for a table that may be cut into more shards."""
    names = _ffi.constants()["counters"]
    is_event = jnp.array([name in EVENTS for name in names])
    # A row's slot has another number from now on, for those who know it from a lookup.
    left = _ffi.code("counters", "left")
    counters = counters.at[:, left].set(jnp.array([1, 0], jnp.uint32))
    repeated = jnp.repeat(counters, rows // counters.shape[0], axis=0)
    counted_once = _of_more_rows(counters, rows)
    return jnp.where(is_event[None, :, None], counted_once, repeated)


def _of_more_rows(counters: jax.Array, rows: int) -> jax.Array:
    """Each row followed by zeros, so that sums over all rows stay."""
    times = rows // counters.shape[0]
    first = (jnp.arange(rows) % times == 0)[:, None, None]
    return jnp.where(first, jnp.repeat(counters, times, axis=0), jnp.uint32(0))
