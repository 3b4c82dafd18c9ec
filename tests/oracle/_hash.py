# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Computes the hash of a key, its bucket and the seed of its table.

Plain Python integers: they do not overflow, so every modulus is written out.
"""

import functools

MASK64 = 2**64 - 1
GOLDEN_RATIO = 0x9E3779B97F4A7C15


@functools.lru_cache(maxsize=1 << 17)  # tests hash the same few keys again and again
def fmix64(
    key: int, first: int = 0xFF51AFD7ED558CCD, second: int = 0xC4CEB9FE1A85EC53
) -> int:
    """The 64-bit finaliser of MurmurHash3, a bijection of 64-bit words."""
    key &= MASK64
    key ^= key >> 33
    key = key * first & MASK64
    key ^= key >> 33
    key = key * second & MASK64
    return key ^ key >> 33


def hash_of(key: int, hash_seed: int = 0) -> int:
    """Hashes a table's key: `fmix64` with multipliers that the seed changes."""
    first = 0xFF51AFD7ED558CCD ^ (fmix64(hash_seed) << 1 & MASK64)
    second = 0xC4CEB9FE1A85EC53 ^ (fmix64(hash_seed * GOLDEN_RATIO) << 1 & MASK64)
    return fmix64(key, first, second)


def fnv1a64(data: bytes) -> int:
    """Computes the 64-bit FNV-1a hash of a byte string."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & MASK64
    return value


def bucket_of(key: int, num_buckets: int, hash_seed: int = 0) -> int:
    """The only bucket in which `key` may live: the high bits of its hash."""
    return hash_of(key, hash_seed) * num_buckets >> 64


def hash_rank(key: int, hash_seed: int = 0) -> int:
    """Ranks new keys: where a bucket cannot take all, the smallest rank wins."""
    return hash_of(key, hash_seed) & MASK64 >> 1


def table_seed(seed: int, name: str) -> int:
    """Derives the 64-bit seed of a table's rows from the user's seed and its name."""
    return fmix64(seed + GOLDEN_RATIO * (1 + fnv1a64(name.encode())))
