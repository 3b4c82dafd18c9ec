# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Bags in a flat array: where they begin, and flat from padded and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from jax_dynemb._src.torchrec.arrays import padding_like, taken, xp


def offsets_from(lengths: Any) -> Any:
    """Where each bag begins, and where the last one ends; int[bags + 1]."""
    module = xp(lengths)
    total = module.cumsum(lengths, dtype=lengths.dtype)
    return module.concatenate([module.zeros(1, lengths.dtype), total])


def positions(lengths: Any, capacity: int) -> tuple[Any, Any]:
    """Finds the bag of each entry, and its place in there: int[capacity] twice.

    Entries behind the last bag have the number ``bags``.
    """
    module = xp(lengths)
    offsets = offsets_from(lengths)
    entry = np.arange(capacity, dtype=np.int32)
    bag = module.searchsorted(offsets[1:], entry, side="right").astype(np.int32)
    return bag, (entry - module.take(offsets, bag)).astype(np.int32)


def to_padded(values: Any, lengths: Any, size: int, padding: Any = None) -> Any:
    """Makes bags of equal size, [bags, size, ...]: their first entries, filled up.

    ``padding`` of None is -1 for ids and 0 for floats.
    """
    place = np.arange(size, dtype=np.int32)
    index = offsets_from(lengths)[:-1, None] + place
    live = (place < lengths[:, None]) & (index < values.shape[0])
    return taken(values, index, live, padding_like(values, padding))


def from_padded(values: Any, lengths: Any, capacity: int) -> Any:
    """Reverses ``to_padded`` into ``capacity`` entries; what is left is padding."""
    bags, size = values.shape[:2]
    bag, place = positions(lengths, capacity)
    flat = values.reshape(bags * size, *values.shape[2:])
    live = (bag < bags) & (place < size)
    return taken(flat, bag * size + place, live, padding_like(values))


def entries_of(lengths: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Lists the entries of chosen bags, one bag after the other; on the host.

    A bag may come several times. Returns int[sum of lengths[index]].
    """
    begins, chosen = np.cumsum(lengths) - lengths, lengths[index]
    ends = np.cumsum(chosen)
    first = np.repeat(begins[index] - (ends - chosen), chosen)
    return first + np.arange(int(chosen.sum()))
