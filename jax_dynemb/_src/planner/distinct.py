# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""How many different ids a batch is expected to have."""

from __future__ import annotations

import functools
import math

import numpy as np

BINS = 256  # of ranks, equally wide on a logarithmic scale


@functools.lru_cache(maxsize=4096)
def expected_distinct(draws: int, keys: int, skew: float) -> float:
    """Computes the mean number of different ids among ``draws`` of ``keys``.

    The key of rank r has the frequency ``r ** -skew`` (Zipf); 0: all are as frequent.
    """
    if draws <= 0:
        return 0.0
    if skew == 0 or keys == 1:
        return -keys * math.expm1(draws * math.log1p(-1 / keys)) if keys > 1 else 1.0
    edges = np.unique(np.rint(np.geomspace(1, keys + 1, BINS)))
    width = np.diff(edges)
    middle = np.sqrt(edges[:-1] * np.maximum(edges[1:] - 1, edges[:-1]))
    frequency = middle**-skew
    chance = frequency / (width * frequency).sum()
    missing = np.exp(draws * np.log1p(-np.minimum(chance, 0.999)))
    return float((width * (1 - missing)).sum())
