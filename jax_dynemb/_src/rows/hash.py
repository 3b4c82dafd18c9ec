# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The hash of core/hash.h for whole arrays on the host."""

from __future__ import annotations

import numpy as np

from jax_dynemb._src import ffi as _ffi

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_SHIFT = np.uint64(33)


def fmix64(keys: np.ndarray, hash_seed: int = 0) -> np.ndarray:
    """Hashes a table's keys: uint64[n] from int64[n] keys.

    Without a seed it is the finaliser of MurmurHash3, which DynamicEmb has too, but
    for the highest bit.
    """
    hashes = np.ascontiguousarray(keys).view(np.uint64).copy()
    for multiplier in _ffi.hash_factors(hash_seed):
        hashes ^= hashes >> _SHIFT
        hashes *= np.uint64(multiplier)
    hashes ^= hashes >> _SHIFT
    return hashes


def bucket_of(keys: np.ndarray, num_buckets: int, hash_seed: int) -> np.ndarray:
    """Returns each key's bucket: the high 64 bits of hash * num_buckets."""
    hashes = fmix64(keys, hash_seed)
    count = np.uint64(num_buckets)  # below 2**32, so the products below fit
    high, low = hashes >> _HALF, hashes & _LOW
    return (high * count + (low * count >> _HALF)) >> _HALF
