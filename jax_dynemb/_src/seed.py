# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Derives the seed of a table's rows from the user's seed and the table's name."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, UInt32

from jax_dynemb._src.kind_of import kind_of

_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15


def name_hash(name: str) -> int:
    """Hashes the name's UTF-8 bytes by FNV-1a, 64 bits."""
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = (value ^ byte) * 0x100000001B3 & _MASK
    return value


def seed_words(seed: Any) -> UInt32[Array, "2"]:
    """Splits the user's seed, an int or 32-bit scalar, into (low, high) words."""
    if isinstance(seed, (int, np.integer)):
        whole = int(seed) & _MASK
        return jnp.asarray(np.array([whole & 0xFFFFFFFF, whole >> 32], np.uint32))
    dtype, shape = getattr(seed, "dtype", None), getattr(seed, "shape", None)
    if dtype is None or shape != () or not jnp.issubdtype(dtype, jnp.integer):
        raise TypeError(
            f"seed must be an int or an integer scalar, not {kind_of(seed)}. Of a key "
            "of jax.random, jax.random.bits(key) makes one."
        )
    low = jnp.asarray(seed).astype(jnp.uint32).reshape(())
    return jnp.stack([low, jnp.zeros((), jnp.uint32)])


def table_seed(words: UInt32[Array, "2"], name: str) -> UInt32[Array, "2"]:
    """Derives the 64-bit seed of one table, as (low, high) words.

    A row then depends on the table's name, not on its place among the tables.
    """
    step = _GOLDEN * (1 + name_hash(name)) & _MASK
    with jax.enable_x64(True):
        value = jax.lax.bitcast_convert_type(words, jnp.uint64) + _uint64(step)
        for multiplier in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
            value = value ^ (value >> _uint64(33))
            value = value * _uint64(multiplier)
        value = value ^ (value >> _uint64(33))
        return jax.lax.bitcast_convert_type(value, jnp.uint32)


def _uint64(value: int) -> Array:
    return jnp.asarray(np.uint64(value))
