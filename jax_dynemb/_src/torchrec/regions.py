# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Moves one packed array to regions of static size, one a key, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jax_dynemb._src.torchrec.arrays import padding_like, taken, xp
from jax_dynemb._src.torchrec.layout import Layout, starts

# Sums above it may not fit into 32 bits; those below do, for all that floats round.
_WRAPS = 3e9


def counts_of(lengths: Any, strides: Sequence[int]) -> Any:
    """Entries of each key; int32[F]."""
    bags = starts(strides)
    if len(set(strides)) == 1 and strides[0]:
        return lengths.reshape(len(strides), -1).sum(axis=1, dtype=np.int32)
    total = _from_zero(lengths, np.int32)
    return total[bags[1:]] - total[bags[:-1]]


def copied(array: np.ndarray, counts: np.ndarray, layout: Layout) -> np.ndarray:
    """Entries of each key into its region; on the host, where all of them fit."""
    room = np.empty((int(layout.starts[-1]), *array.shape[1:]), array.dtype)
    padding, begins = padding_like(array), starts(counts.tolist())
    for k, start in enumerate(layout.starts[:-1]):
        end = start + counts[k]
        room[start:end] = array[begins[k] : begins[k + 1]]
        room[end : layout.starts[k + 1]] = padding
    return room


def _offsets(lengths: Any, entries: int) -> Any:
    """Where each bag begins and the last one ends; none behind ``entries``, int32."""
    module = xp(lengths)
    exact, near = _sums(module.maximum(lengths, 0))
    inside = module.minimum(exact, np.uint32(entries))
    return module.where(near > _WRAPS, np.uint32(entries), inside).astype(np.int32)


def _sums(lengths: Any) -> tuple[Any, Any]:
    """Sums all lengths before each bag: words, which wrap, and floats, which tell."""
    module = xp(lengths)
    if lengths.dtype.itemsize == 8:
        lengths = module.minimum(lengths, 2**32 - 1)
    words, floats = lengths.astype(np.uint32), lengths.astype(np.float32)
    return _from_zero(words, np.uint32), _from_zero(floats, np.float32)


def _from_zero(x: Any, dtype: Any) -> Any:
    module = xp(x)
    total = module.cumsum(x, dtype=dtype)
    return module.concatenate([module.zeros(1, dtype), total])


def gathered(
    arrays: Sequence[Any], lengths: Any, layout: Layout
) -> tuple[list[Any], Any, Any]:
    """Makes regions by one gather an array, where counts are data.

    Arrays have the entries of all keys one after the other. Returns them in regions;
    the lengths, cut to what is there; and uint32[F], how many entries of each key did
    not fit. A negative length counts as one; 3e9 entries and more count as 2**32 - 1.
    """
    module, bags = xp(lengths, *arrays), layout.bag_starts
    offsets = _offsets(lengths, arrays[0].shape[0])
    begins, ends = offsets[bags[:-1]], offsets[bags[1:]]
    kept = module.minimum(ends - begins, np.asarray(layout.capacities, np.int32))
    region = np.repeat(np.arange(len(layout.keys)), layout.capacities)
    place = np.arange(layout.starts[-1]) - layout.starts[region]
    place = place.astype(np.int32)
    index, live = begins[region] + place, place < kept[region]
    moved = [taken(array, index, live, padding_like(array)) for array in arrays]
    own = np.repeat(np.arange(len(layout.keys)), layout.strides)
    cut = module.minimum(offsets[1:] - begins[own], kept[own])
    before = module.minimum(offsets[:-1] - begins[own], kept[own])
    claimed, near = _sums(module.where(lengths < 0, 1, lengths))
    missing = claimed[bags[1:]] - claimed[bags[:-1]] - kept.astype(np.uint32)
    wraps = near[bags[1:]] - near[bags[:-1]] > _WRAPS
    missing = module.where(wraps, np.uint32(2**32 - 1), missing)
    return moved, (cut - before).astype(np.int32), missing


def packed(arrays: Sequence[Any], lengths: Any, layout: Layout) -> list[Any]:
    """Puts entries of all keys one after the other, in arrays of the same size."""
    module = xp(lengths, *arrays)
    counts = counts_of(lengths, layout.strides)
    ends = module.cumsum(counts).astype(np.int32)
    size = int(layout.starts[-1])
    entry = np.arange(size, dtype=np.int32)
    key = module.searchsorted(ends, entry, side="right")
    key = module.minimum(key, len(layout.keys) - 1)
    first = layout.starts[:-1].astype(np.int32)
    index = entry - (ends - counts)[key] + module.asarray(first)[key]
    live = entry < ends[-1]
    return [taken(array, index, live, padding_like(array)) for array in arrays]
