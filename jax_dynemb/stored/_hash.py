# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The hash of core/hash.h for whole arrays on the host."""

from __future__ import annotations

import numpy as np

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_SHIFT = np.uint64(33)
_MULTIPLIERS = np.array([0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53], np.uint64)


def fmix64(keys: np.ndarray) -> np.ndarray:
    """The finaliser of MurmurHash3: uint64[n] from int64[n] keys.

    It is the hash of this library and, without its highest bit, of DynamicEmb.
    """
    hashes = np.ascontiguousarray(keys).view(np.uint64).copy()
    for multiplier in _MULTIPLIERS:
        hashes ^= hashes >> _SHIFT
        hashes *= multiplier
    hashes ^= hashes >> _SHIFT
    return hashes


def bucket_of(keys: np.ndarray, num_buckets: int) -> np.ndarray:
    """The bucket that each key lives in: the high 64 bits of hash * num_buckets."""
    hashes = fmix64(keys)
    count = np.uint64(num_buckets)  # below 2**32, so the products below fit
    high, low = hashes >> _HALF, hashes & _LOW
    return (high * count + (low * count >> _HALF)) >> _HALF
