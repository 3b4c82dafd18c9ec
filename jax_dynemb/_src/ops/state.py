# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The arrays of one table."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Shaped, UInt32

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.ops.host import placed_like_untraced
from jax_dynemb._src.ops.keys import add_to_words
from jax_dynemb._src.ops.lineage import lineage_places, run_places
from jax_dynemb._src.ops.packed_rows import refuse_packed
from jax_dynemb._src.ops.removed import empty_log, overwritten_log
from jax_dynemb._src.ops.tier_state import (
    TierState,
    empty_tier,
    expected_tier,
    given_tier,
)
from jax_dynemb._src.shown import Shown
from jax_dynemb._src.spec import TableSpec

_HUGE_PAGE = 1 << 21  # bytes


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=[
        "index",
        "values",
        "optimizer",
        "counters",
        "extra",
        "sketch",
        "tier",
        "removed",
    ],
    meta_fields=["name"],
)
@dataclasses.dataclass(frozen=True, repr=False)
class TableState(Shown):
    """Holds one table: ordinary arrays, to be donated, never reshaped or sliced.

    Attributes:
      index: uint32[num_buckets, 544]; a bucket is 128 digests (bytes, 0 = empty), 128
        keys and 128 scores (64 bits each). Of a customized table 128 custom scores
        follow, uint32[num_buckets, 800].
      values: param_dtype[num_slots, dim], the rows. Packed ones (``row_format``) are
        uint8[num_slots, bytes of a row].
      optimizer: per-row optimizer states by name, float32[num_slots, dim] or
        bfloat16, float32[num_slots] or int32[num_slots]. Read them with
        ``Tables.export``: those of a row that was never updated are not written yet,
        and a mark stands in their place.
      counters: uint32[rows, 61, 2]: 64-bit numbers as (low, high) words, see
        ``stats``. A row for each shard that the table may be cut into. A shard's
        first row counts events and has its latest moments (core/lineage.h); all
        other numbers are equal in each row.
      extra: what an optax optimizer stores once for the table.
      sketch: uint32[num_buckets, words], how often ids without a row have occurred,
        where the table admits ids by frequency (core/admission.h); else None. Counted
        exactly, the words are buckets of their keys (core/exact_counter.h).
      tier: of a table with ``TableConfig(tier=...)``, where its rows lie. Its values
        and optimizer states hold the rows in device memory only, in an order of their
        own.
      removed: uint32[rows, 1 + n, 2], a ring of removed keys beside each row of the
        counters: how many were ever written, then the latest n (core/removals.h).
        None without ``log_removed``.
      name: static, of these arrays in a state; "" where it is not known. Arrays of
        another table of equal shapes are refused by it at no cost.
    """

    index: UInt32[Array, "buckets words"]
    values: Shaped[Array, "slots width"]
    optimizer: dict[str, Shaped[Array, "slots ..."]]
    counters: UInt32[Array, "rows counters 2"]
    extra: tuple[Any, ...] = ()
    sketch: UInt32[Array, "buckets words"] | None = None
    tier: TierState | None = None
    removed: UInt32[Array, "rows entries 2"] | None = None
    name: str = ""


def empty_state(
    config: TableSpec, seed: UInt32[Array, "2"], run: UInt32[Array, "3 2"]
) -> TableState:
    """Make a table without rows; see ``empty_arrays``."""
    return empty_arrays([config], [seed], run)


def empty_arrays(
    tables: Sequence[TableSpec],
    seeds: Sequence[UInt32[Array, "2"]],
    run: UInt32[Array, "3 2"],
) -> TableState:
    """Makes the arrays that some tables share in this order, without rows."""
    first = tables[0]
    width, dtype = first.stored_row
    buckets = sum(table.local_buckets for table in tables)
    slots = sum(table.device_rows for table in tables)
    states = {
        name: repeated(jnp.zeros(spec.shape, spec.array_dtype), slots)
        for name, spec in first.states.items()
    }
    pairs = zip(tables, seeds, strict=True)
    counters = [_first_counters(table, seed, run) for table, seed in pairs]
    return TableState(
        index=empty_index(buckets, first.index_words),
        values=repeated(jnp.zeros(width, dtype), slots),
        optimizer=states,
        counters=counters[0] if len(counters) == 1 else jnp.concatenate(counters),
        extra=first.optimizer.extra(first.dim),
        sketch=empty_sketch(first, buckets),
        tier=None if first.tier is None else empty_tier(first),
        removed=empty_log(first),
        name=first.state_name,
    )


def only_rows(state: TableState) -> TableState:
    """Leaves out all arrays but those of keys, rows and counters."""
    return dataclasses.replace(
        state, optimizer={}, extra=(), sketch=None, removed=None, tier=None
    )


def cleared_state(config: TableSpec, state: TableState) -> TableState:
    """Removes the rows of a table; its seed, columns, clock and lineage stay.

    Rows and optimizer states may keep what they hold: a slot gets its first values
    when a key is stored in it. So only the index is new. The table counts as one that
    has evicted, so an update by an earlier lookup compares keys. Later lookups are
    later than any mark, so a delta since a mark has all rows that they stored.
    """
    refuse_packed([config], "clear")
    counters = _cleared_counters(state.counters[config.own_counters])
    index = empty_index(config.local_buckets, config.index_words)
    sketch = empty_sketch(config, config.local_buckets)
    if config.block is not None:
        first = config.block.first_bucket
        index = jax.lax.dynamic_update_slice(state.index, index, (first, 0))
        if sketch is not None and state.sketch is not None:
            at = (first, 0)
            sketch = jax.lax.dynamic_update_slice(state.sketch, sketch, at)
        counters = state.counters.at[config.own_counters].set(counters)
    removed = None if state.removed is None else overwritten_log(state.removed)
    extra = config.optimizer.extra(config.dim)
    fresh = index, extra, sketch  # the rest is made of what was there
    old = state.index, state.extra, state.sketch
    index, extra, sketch = placed_like_untraced(fresh, old)
    return dataclasses.replace(
        state,
        index=index,
        counters=counters,
        extra=extra,
        sketch=sketch,
        removed=removed,
    )


def empty_sketch(config: TableSpec, buckets: int) -> jax.Array | None:
    """The counter of some buckets of a table; None if it has none."""
    words = config.sketch_words
    if config.counts_keys:
        of_each = words // _ffi.constants()["bucket_words"]
        return empty_index(buckets * of_each).reshape(buckets, words)
    return None if words == 0 else jnp.zeros((buckets, words), jnp.uint32)


def check_state(config: TableSpec, state: TableState) -> None:
    """Refuses the state of another table, before a call that would destroy it."""
    if not isinstance(state, TableState):
        raise TypeError(
            f"Table '{config.name}': the state must be a TableState, as init returns "
            f"it, not {type(state).__name__}."
        )
    if config.part != "whole":
        return  # part of a state that was compared as a whole
    expected = array_shapes(config)
    given = {
        "index": state.index,
        "values": state.values,
        "counters": state.counters,
        **state.optimizer,
    }
    if state.sketch is not None:
        given["sketch"] = state.sketch
    if state.tier is not None:
        given |= given_tier(state.tier)
    if state.removed is not None:
        given["removed"] = state.removed
    for name in expected.keys() | given.keys():
        array, wanted = given.get(name), expected.get(name)
        found = None if array is None else (tuple(array.shape), array.dtype.name)
        if found != wanted:
            raise ValueError(
                f"Table '{config.name}': this state belongs to another config: "
                f"'{name}' is {_spelled(found)}, expected {_spelled(wanted)}. "
                "Pass the state that this Tables made, or make Tables from the configs "
                "that the state was made with."
            )


@functools.lru_cache(maxsize=1024)  # callers must not change what it returns
def array_shapes(config: TableSpec) -> dict[str, tuple[tuple[int, ...], str]]:
    """Lists shapes and dtypes of a shard's arrays, but for what is stored once."""
    constants = _ffi.constants()
    buckets, rows = config.local_buckets, config.counter_rows
    if config.block is not None:
        buckets, rows = config.block.num_buckets, config.block.counter_rows
    slots, words = buckets * constants["bucket_capacity"], config.index_words
    if config.tier is not None:
        slots = config.device_rows
    counters = (rows, len(constants["counters"]), 2)
    width, dtype = config.stored_row
    arrays: dict[str, tuple[tuple[int, ...], str]] = {
        "index": ((buckets, words), "uint32"),
        "values": ((slots, width), dtype),
        "counters": (counters, "uint32"),
    }
    if config.sketch_words > 0:
        arrays["sketch"] = ((buckets, config.sketch_words), "uint32")
    if config.tier is not None:
        arrays |= expected_tier(config)
    if config.ring_size > 0:
        arrays["removed"] = ((rows, 1 + config.ring_size, 2), "uint32")
    for name, spec in config.states.items():
        arrays[name] = ((slots, *spec.shape), spec.array_dtype)
    return arrays


def _spelled(array: tuple[tuple[int, ...], str] | None) -> str:
    return "absent" if array is None else f"{array[1]}{list(array[0])}"


def empty_index(
    num_buckets: int, words: int | None = None
) -> UInt32[Array, "buckets words"]:
    """Makes an index without digests, with keys of all ones and scores of zero."""
    constants = _ffi.constants()
    end = constants["bucket_words"]
    words = end if words is None else words
    column = jnp.arange(words) - constants["keys_word"]  # of the first entry
    is_key = (column >= 0) & (column % constants["slot_words"] < 2)
    is_key &= jnp.arange(words) < end
    bucket = jnp.where(is_key, jnp.uint32(0xFFFFFFFF), jnp.uint32(0))
    return repeated(bucket, num_buckets)


def repeated(row: jax.Array, count: int) -> jax.Array:
    """Returns [count, ...], equal rows; on a CPU a large array is in huge pages.

    XLA writes an array before anyone can choose its pages (cpu/loops/huge_pages.h).
    """
    shape = (count, *row.shape)

    def plain(row: jax.Array) -> jax.Array:
        return jnp.broadcast_to(row, shape)

    def in_huge_pages(row: jax.Array) -> jax.Array:
        result = jax.ShapeDtypeStruct(shape, row.dtype)
        return _ffi.call("repeat_row", [result], [row], {})[0]

    if count * row.nbytes < _HUGE_PAGE:
        return plain(row)
    return jax.lax.platform_dependent(row, cpu=in_huge_pages, default=plain)


def states_of_rows(
    initial: Mapping[str, float], states: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Returns optimizer states as floats that people can read; bfloat16 as float32.

    A new row's states are written by its first update (core/row.h): a mark stands in
    the first column until then, and reads as ``initial``, or 0.
    """
    marked = [_is_marked(array) for array in states.values() if array.ndim > 1]
    new: Any = functools.reduce(np.logical_or, marked, np.False_)
    states = {
        name: array.astype(np.float32) if array.dtype.itemsize == 2 else array
        for name, array in states.items()
    }
    if not new.any():
        return states
    return {
        name: np.where(
            new if array.ndim == 1 else new[:, None],
            array.dtype.type(initial.get(name, 0.0)),
            array,
        )
        for name, array in states.items()
    }


def _is_marked(array: np.ndarray) -> Any:
    constants = _ffi.constants()
    if array.dtype.itemsize == 2:
        return array[:, 0].view(np.uint16) == constants["unwritten_half_state"]
    return array[:, 0] == np.float32(constants["unwritten_state"])


def add_to_counter(
    state: TableState, row: int, name: str, events: jax.Array
) -> TableState:
    """Adds a non-negative scalar to a 64-bit number in one row of the counters."""
    entry = (row, _ffi.code("counters", name))
    words = add_to_words(state.counters[entry], events)
    return dataclasses.replace(state, counters=state.counters.at[entry].set(words))


def _cleared_counters(own: jax.Array) -> jax.Array:
    """Keeps of counters uint32[rows, n, 2] what ``cleared_state`` says."""
    names = ("seed", "first_column", "clock")
    stays = np.zeros(own.shape[1], bool)
    stays[[*(_ffi.code("counters", name) for name in names), *run_places()]] = True
    stays[lineage_places()] = True
    fresh = np.zeros(own.shape[1:], np.uint32)
    fresh[_ffi.code("counters", "left")] = 1, 0
    return jnp.where(stays[:, None], own, fresh)


def _first_counters(
    config: TableSpec, seed: UInt32[Array, "2"], run: UInt32[Array, "3 2"]
) -> UInt32[Array, "rows counters 2"]:
    names = _ffi.constants()["counters"]
    counters = jnp.zeros((config.counter_rows, len(names), 2), jnp.uint32)
    counters = counters.at[:, _ffi.code("counters", "seed")].set(seed)
    return counters.at[:, np.array(run_places())].set(run)
