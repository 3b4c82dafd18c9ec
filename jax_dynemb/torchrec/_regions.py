# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Moves one packed array to regions of static size, one a key, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jax_dynemb.torchrec._arrays import padding_like, taken, xp
from jax_dynemb.torchrec._layout import Layout, starts


def counts_of(lengths: Any, strides: Sequence[int]) -> Any:
    """Entries of each key; int32[F]."""
    bags = starts(strides)
    if len(set(strides)) == 1 and strides[0]:
        return lengths.reshape(len(strides), -1).sum(axis=1, dtype=np.int32)
    module = xp(lengths)
    total = module.cumsum(lengths, dtype=np.int32)
    total = module.concatenate([module.zeros(1, np.int32), total])
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


def gathered(
    arrays: Sequence[Any], lengths: Any, layout: Layout
) -> tuple[list[Any], Any, Any]:
    """The same by one gather an array, where counts are data.

    Args:
      arrays: [n, ...], entries of all keys one after the other.
      lengths: int[bags]; negative ones count as 0.
      layout: the regions.

    Returns:
      The arrays in regions; the lengths, cut to what is there; and uint32[F], how many
      entries of each key did not fit.
    """
    module = xp(lengths, *arrays)
    lengths = module.maximum(lengths, 0).astype(np.int32)
    counts = counts_of(lengths, layout.strides)
    begins = module.concatenate([module.zeros(1, np.int32), module.cumsum(counts)])
    entries = arrays[0].shape[0]
    there = module.clip(entries - begins[:-1], 0, counts)
    kept = module.minimum(there, np.asarray(layout.capacities, np.int32))
    region = np.repeat(np.arange(len(layout.keys)), layout.capacities)
    place = np.arange(layout.starts[-1]) - layout.starts[region]
    place = place.astype(np.int32)
    index, live = begins[region] + place, place < kept[region]
    moved = [taken(array, index, live, padding_like(array)) for array in arrays]
    own = np.repeat(np.arange(len(layout.keys)), layout.strides)
    ends = module.cumsum(lengths) - begins[own]
    cut = module.minimum(ends, kept[own])
    before = module.minimum(ends - lengths, kept[own])
    return moved, (cut - before).astype(np.int32), (counts - kept).astype(np.uint32)


def packed(arrays: Sequence[Any], lengths: Any, layout: Layout) -> list[Any]:
    """Entries of all keys one after the other, in arrays of the same size.

    Args:
      arrays: in regions.
      lengths: int[bags].
      layout: the regions.
    """
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
