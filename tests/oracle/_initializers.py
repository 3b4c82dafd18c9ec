# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Initial rows, a function of (seed, key, column) and of nothing else."""

import statistics
from typing import Any

import numpy as np

from ._philox import philox4x32

F32 = np.float32
STANDARD_NORMAL = statistics.NormalDist()


def random_words(seed: int, keys: np.ndarray, dim: int) -> np.ndarray:
    """Draws one 32-bit random word for each key and column: uint32[n, dim]."""
    blocks = (dim + 3) // 4  # a call of the generator gives four columns
    counter = np.zeros((len(keys), blocks, 4), np.uint32)
    counter[..., 0] = (keys & np.uint64(0xFFFFFFFF))[:, None]
    counter[..., 1] = (keys >> np.uint64(32))[:, None]
    counter[..., 2] = np.arange(blocks)
    words = philox4x32(counter, (seed & 0xFFFFFFFF, seed >> 32))
    return words.reshape(len(keys), blocks * 4)[:, :dim]


def initial_rows(initializer: Any, seed: int, keys: np.ndarray, dim: int) -> np.ndarray:
    """Draws the rows that unseen keys start with: float32[n, dim].

    Every operation is rounded to float32 by itself. So these are the exact bits for all
    kinds but the two normal ones: their inverse distribution function is float64 here.
    """
    return KINDS[initializer.kind](initializer, seed, keys, dim)


def _uniform(initializer: Any, seed: int, keys: np.ndarray, dim: int) -> np.ndarray:
    words = random_words(seed, keys, dim)
    unit = (words >> np.uint32(8)).astype(F32) * F32(2**-24)
    lo, hi = F32(initializer.lo), F32(initializer.hi)
    return lo + (hi - lo) * unit


def _normal(initializer: Any, seed: int, keys: np.ndarray, dim: int) -> np.ndarray:
    p = _open_unit(random_words(seed, keys, dim))
    return F32(initializer.mean) + F32(initializer.stddev) * _inverse_cdf(p)


def _truncated_normal(
    initializer: Any, seed: int, keys: np.ndarray, dim: int
) -> np.ndarray:
    mean, stddev = initializer.mean, initializer.stddev
    lower, upper = initializer.lower, initializer.upper
    p_lo = F32(STANDARD_NORMAL.cdf((lower - mean) / stddev))
    p_hi = F32(STANDARD_NORMAL.cdf((upper - mean) / stddev))
    p = p_lo + (p_hi - p_lo) * _open_unit(random_words(seed, keys, dim))
    rows = F32(mean) + F32(stddev) * _inverse_cdf(p)
    return np.clip(rows, F32(lower), F32(upper))


def _constant(initializer: Any, seed: int, keys: np.ndarray, dim: int) -> np.ndarray:
    return np.full((len(keys), dim), initializer.value, F32)


def _debug(initializer: Any, seed: int, keys: np.ndarray, dim: int) -> np.ndarray:
    return np.repeat((keys % np.uint64(100_000)).astype(F32)[:, None], dim, axis=1)


def _open_unit(words: np.ndarray) -> np.ndarray:
    """Words to the middles of 2^23 equal parts of (0, 1): never 0, never 1."""
    return ((words >> np.uint32(9)).astype(F32) + F32(0.5)) * F32(2**-23)


def _inverse_cdf(p: np.ndarray) -> np.ndarray:
    return np.vectorize(STANDARD_NORMAL.inv_cdf, otypes=[F32])(p)


KINDS = {
    "uniform": _uniform,
    "normal": _normal,
    "truncated_normal": _truncated_normal,
    "constant": _constant,
    "debug": _debug,
}
