# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Ids and numbers of 64 bits as pairs of words; hashes and owners (core/hash.h)."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int32, UInt32

from jax_dynemb._src import ffi as _ffi

_ONES = 0xFFFFFFFF
Words = UInt32[Array, "*shape 2"]
Word = UInt32[Array, "*shape"]


def as_words(ids: jax.Array) -> Words:
    """Ids of any accepted dtype as (low, high); 32-bit ones as their 64-bit value."""
    if ids.dtype.itemsize == 8:
        return jax.lax.bitcast_convert_type(ids, jnp.uint32)
    if ids.dtype == jnp.uint32 and ids.ndim == 2:
        return ids
    low = jax.lax.bitcast_convert_type(ids, jnp.uint32)
    high = jnp.zeros_like(low)
    if ids.dtype == jnp.int32:
        high = jnp.where(ids < 0, jnp.uint32(_ONES), high)
    return jnp.stack([low, high], axis=-1)


def padding(shape: tuple[int, ...]) -> Words:
    """-1 in every place."""
    return jnp.full((*shape, 2), _ONES, jnp.uint32)


def is_padding(words: Words) -> Bool[Array, "*shape"]:
    """Which ids are -1."""
    return (words == jnp.uint32(_ONES)).all(axis=-1)


def is_reserved(words: Words) -> Bool[Array, "*shape"]:
    """Finds ids from -4 to -2, which get no row."""
    low, high = words[..., 0], words[..., 1]
    is_last = high == jnp.uint32(_ONES)
    return is_last & (low >= jnp.uint32(_ONES - 3)) & ~is_padding(words)


def hash_words(words: Words, hash_seed: int) -> tuple[Word, Word]:
    """Returns the low and the high word of the hash that the kernels use."""
    return hash_by(words, hash_factors([hash_seed])[0])


def hash_factors(hash_seeds: Sequence[int]) -> np.ndarray:
    """uint32[n, 2, 2] of tables: two multipliers of the hash, each as (low, high)."""
    factors = [_ffi.hash_factors(seed) for seed in hash_seeds]
    return np.array(factors, np.uint64)[..., None].view(np.uint32)


def hash_by(words: Words, factors: np.ndarray | jax.Array) -> tuple[Word, Word]:
    """Hashes keys of several tables; ``factors`` is uint32[*shape, 2, 2]."""
    low, high = words[..., 0], words[..., 1]
    for n in range(2):
        low = low ^ (high >> 1)  # x ^= x >> 33
        low, high = _multiply(low, high, factors[..., n, 0], factors[..., n, 1])
    return low ^ (high >> 1), high


def owner_of(
    low: Word, high: Word, buckets: int, local_buckets: int
) -> Int32[Array, "*shape"]:
    """Returns the shard of a key from its hash; the last may have fewer buckets."""
    if buckets % local_buckets == 0:  # larger buckets, one for each shard
        return bucket_of(low, high, buckets // local_buckets).astype(jnp.int32)
    bucket = bucket_of(low, high, buckets)
    return (bucket // jnp.uint32(local_buckets)).astype(jnp.int32)


def bucket_of(low: Word, high: Word, buckets: int | Word) -> Word:
    """Chooses the bucket by the high bits of the hash: ``hash * buckets >> 64``."""
    # high * buckets + the carry of low * buckets, without its low word.
    factor = jnp.asarray(buckets, jnp.uint32)
    carry = _multiply_high(low, factor)
    top, bottom = _multiply_high(high, factor), high * factor
    return top + (bottom + carry < bottom).astype(jnp.uint32)


def _multiply(
    low: Word, high: Word, f_low: np.ndarray | Word, f_high: np.ndarray | Word
) -> tuple[Word, Word]:
    """The low 64 bits of the product of two numbers of 64 bits."""
    f_low, f_high = jnp.asarray(f_low), jnp.asarray(f_high)
    top = _multiply_high(low, f_low) + low * f_high + high * f_low
    return low * f_low, top


def _multiply_high(a: Word, factor: int | Word) -> Word:
    """The high 32 bits of the product of two words."""
    factor = jnp.asarray(factor, jnp.uint32)
    f_low, f_high = factor & jnp.uint32(0xFFFF), factor >> 16
    a_low, a_high = a & jnp.uint32(0xFFFF), a >> 16
    middle = a_high * f_low + (a_low * f_low >> 16)
    other = a_low * f_high + (middle & jnp.uint32(0xFFFF))
    return a_high * f_high + (middle >> 16) + (other >> 16)


def add_to_words(words: jax.Array, events: jax.Array) -> jax.Array:
    """Adds integers below 2**32 to numbers of 64 bits, uint32[..., 2]."""
    low, high = words[..., 0], words[..., 1]
    total = low + events.astype(jnp.uint32)
    return jnp.stack([total, high + (total < low).astype(jnp.uint32)], axis=-1)
