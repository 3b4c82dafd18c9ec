# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Sets of keys as ascending arrays.

``np.unique`` puts integers into a hash table since NumPy 2.3, and ``np.isin``,
``np.setdiff1d`` and ``np.union1d`` call it. Of a million keys that takes twenty times
as long as to sort them.
"""

from __future__ import annotations

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
