# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Sets of keys as ascending arrays.

``np.unique`` puts integers into a hash table since NumPy 2.3, and ``np.isin``,
``np.setdiff1d`` and ``np.union1d`` call it. Of a million keys that takes twenty times
as long as to sort them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def distinct(*keys: np.ndarray) -> np.ndarray:
    """Returns the keys of all arrays, each once: int64[n], ascending."""
    # A stable sort merges what ascends already, as most of these arrays do.
    ordered = np.sort(np.concatenate(keys), kind="stable")
    first = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered if first.all() else ordered[first]


def among(keys: np.ndarray, ordered: np.ndarray) -> np.ndarray:
    """bool[n]: which keys are in an ascending array; fastest if they ascend too."""
    if len(ordered) == 0:
        return np.zeros(len(keys), bool)
    place = np.searchsorted(ordered, keys)
    return ordered[np.minimum(place, len(ordered) - 1)] == keys


def last_holders(arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Finds the last array that holds each key.

    One sort takes far less time than to add array after array to those before.

    Returns:
      The keys of all arrays, each once: int64[n], ascending. And int64[n], the numbers
      of the arrays.
    """
    if not arrays:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    keys = np.concatenate(arrays)
    order = np.argsort(keys, kind="stable")
    holders = np.repeat(np.arange(len(arrays)), [len(each) for each in arrays])[order]
    keys = keys[order]
    last = np.ones(len(keys), bool)
    np.not_equal(keys[1:], keys[:-1], out=last[:-1])
    return keys[last], holders[last]


def held_last(
    keys: np.ndarray, number: int, holders: tuple[np.ndarray, np.ndarray]
) -> np.ndarray:
    """bool[n]: which keys of an array no later one of ``last_holders`` holds."""
    known, last = holders
    return last[np.searchsorted(known, keys)] == number
