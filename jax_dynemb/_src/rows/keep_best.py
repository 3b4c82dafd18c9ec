# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The rows that stay where a table is filled again with fewer buckets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.ids import PADDING
from jax_dynemb._src.rows.exported import Exported, joined, part
from jax_dynemb._src.rows.hash import bucket_of
from jax_dynemb._src.rows.use_counts import PIN, leaving_order


def keep_best(chunks: Iterable[Exported], config: TableConfig) -> Iterator[Exported]:
    """Leaves out the rows that a table with fewer buckets has no room for.

    Of the rows that would share a bucket, those with the highest scores stay. Of equal
    scores, the higher keys stay. The others count as evicted. Chunks come in order of
    bucket, as a table stores them. The order of hashes is the same in both tables, so a
    new bucket is complete once a later one begins.
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
    """Leaves out rows like ``keep_best`` where the hash has another seed.

    Any row may be in any bucket. So all keys and scores (int64[n], uint64[n]) are
    looked at first, about 60 bytes of host memory a row.
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
    scores = chunk.scores
    if chunk.pinned is not None:
        scores = scores | np.where(chunk.pinned, PIN, np.uint64(0))
    order, fits = _ranked(chunk.keys, scores, config, chunk.clocks)
    return part(chunk, order[fits])


def _ranked(
    keys: np.ndarray,
    scores: np.ndarray,
    config: TableConfig,
    clocks: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Rows by bucket, the best first; and which of these their bucket has room for."""
    buckets = _buckets(keys, config)
    leaving = leaving_order(scores, config.lfu_halflife or 0)
    later = () if clocks is None else (~clocks,)
    order = np.lexsort((~keys.view(np.uint64), *later, ~leaving, buckets))
    ordered = buckets[order]
    first = np.searchsorted(ordered, ordered)
    room = _ffi.constants()["bucket_capacity"]
    return order, np.arange(len(order)) - first < room


def _buckets(keys: np.ndarray, config: TableConfig) -> np.ndarray:
    return bucket_of(keys, config.num_buckets, config.hash_seed)
