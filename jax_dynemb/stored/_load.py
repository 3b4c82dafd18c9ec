# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A table that is filled again: what stays, and its counters."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

import jax
import numpy as np

from jax_dynemb import _ffi
from jax_dynemb._ids import PADDING
from jax_dynemb.config import TableConfig
from jax_dynemb.engines.shard import counter_values, joined, part
from jax_dynemb.ops import TableState, on_host
from jax_dynemb.stored._hash import bucket_of
from jax_dynemb.table import Exported, Tables

# Counted once in the whole table; every other counter is the same in each row of the
# counter array (core/table_ref.h).
_EVENTS = ("rows", "inserted", "evicted", "refused", "lost_updates")


def keep_best(chunks: Iterable[Exported], config: TableConfig) -> Iterator[Exported]:
    """Leaves out the rows that a table with fewer buckets has no room for.

    Of the rows that would share a bucket those with the highest scores stay (of equal
    ones those with the higher keys), as if they had been evicted.

    Args:
      chunks: in order of bucket, as a table stores them; the order of hashes is then
        the same in both tables, so a new bucket is complete once a later one begins.
      config: of the new table, whose hash has the same seed.
    """
    open_: list[Exported] = []
    for chunk in chunks:
        if len(chunk.keys) == 0:
            continue
        buckets = _buckets(chunk.keys, config)
        later = buckets == buckets.max()
        if open_ and _buckets(open_[0].keys[:1], config)[0] == buckets.max():
            open_.append(chunk)
            continue
        yield _best(joined([*open_, part(chunk, ~later)]), config)
        open_ = [part(chunk, later)]
    if open_:
        yield _best(joined(open_), config)


def keep_best_elsewhere(
    chunks: Iterable[Exported],
    index: Iterable[tuple[np.ndarray, np.ndarray]],
    config: TableConfig,
) -> Iterator[Exported]:
    """The same where the hash has another seed: any row may be in any bucket.

    So all keys and scores are looked at first, about 60 bytes of host memory a row.

    Args:
      chunks: in any order.
      index: keys int64[n] and scores uint64[n] of the same rows.
      config: of the new table.
    """
    without_place = _without_place(index, config)
    for chunk in chunks:
        place = np.searchsorted(without_place, chunk.keys)
        at_place = without_place[np.minimum(place, len(without_place) - 1)]
        yield part(chunk, at_place != chunk.keys)


def _without_place(
    index: Iterable[tuple[np.ndarray, np.ndarray]], config: TableConfig
) -> np.ndarray:
    """The keys that their buckets have no room for, in order; and padding."""
    pieces = [*index, (np.array([], np.int64), np.array([], np.uint64))]
    keys, scores = map(np.concatenate, zip(*pieces, strict=True))
    del pieces
    order, fits = _ranked(keys, scores, config)
    return np.sort(np.append(keys[order[~fits]], PADDING))


def _best(chunk: Exported, config: TableConfig) -> Exported:
    order, fits = _ranked(chunk.keys, chunk.scores, config)
    return part(chunk, order[fits])


def _ranked(
    keys: np.ndarray, scores: np.ndarray, config: TableConfig
) -> tuple[np.ndarray, np.ndarray]:
    """Rows by bucket, the best first; and which of these their bucket has room for."""
    buckets = _buckets(keys, config)
    order = np.lexsort((~keys.view(np.uint64), ~scores, buckets))
    ordered = buckets[order]
    first = np.searchsorted(ordered, ordered)
    room = _ffi.constants()["bucket_capacity"]
    return order, np.arange(len(order)) - first < room


def _buckets(keys: np.ndarray, config: TableConfig) -> np.ndarray:
    return bucket_of(keys, config.num_buckets, config.hash_seed)


def clear_table(coll: Tables, name: str, state: TableState) -> TableState:
    """The table without rows, in the same memory; ``state`` is given away."""
    places = jax.tree.map(lambda array: array.sharding, state)
    clear = jax.jit(
        _cleared, static_argnums=(0, 1), donate_argnums=2, out_shardings=places
    )
    return clear(coll, name, state)


def _cleared(coll: Tables, name: str, state: TableState) -> TableState:
    arrays = coll.state_name(name)
    return coll.engine.clear({arrays: state}, (name,))[arrays]


def set_counters(
    state: TableState, numbers: Mapping[str, int], rows: slice = slice(None)
) -> TableState:
    """Writes some counters of a table, by name; ``rows`` of the array are its own."""
    current = counter_values(state, rows)
    names = _ffi.constants()["counters"]
    words = np.array(on_host(state.counters))
    whole = words.view(np.uint64)[..., 0][rows]
    for name, number in numbers.items():
        if name not in current:
            continue  # of a program that counted something else
        column = names.index(name)
        whole[:, column] = 0 if name in _EVENTS else np.uint64(number)
        whole[0, column] = np.uint64(number)
    counters = jax.make_array_from_callback(
        words.shape, state.counters.sharding, words.__getitem__
    )
    return dataclasses.replace(state, counters=counters)
