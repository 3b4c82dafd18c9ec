# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Finds keys that hash where a test wants them."""

from oracle import bucket_of


def keys_of_bucket(
    bucket: int, num_buckets: int, count: int, start: int = 0, hash_seed: int = 0
) -> list:
    """Lists the first `count` keys from `start` on that live in one bucket."""
    keys: list[int] = []
    key = start
    while len(keys) < count:
        if bucket_of(key, num_buckets, hash_seed) == bucket:
            keys.append(key)
        key += 1
    return keys


def key_of_hash(hashed: int) -> int:
    """The key, as a signed number, that has this hash in a table without a seed."""
    for factor in (0xC4CEB9FE1A85EC53, 0xFF51AFD7ED558CCD):
        hashed ^= hashed >> 33
        hashed = hashed * pow(factor, -1, 2**64) % 2**64
    hashed ^= hashed >> 33
    return hashed - 2**64 if hashed >> 63 else hashed
