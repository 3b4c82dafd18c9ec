# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""How many rows each bucket of an index has."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int32, UInt32

from jax_dynemb._src import ffi as _ffi

Ranges = tuple[tuple[str, tuple[tuple[int, int], ...]], ...]


def bucket_rows(index: UInt32[Array, "buckets words"]) -> Int32[Array, " buckets"]:
    """Counts the digests that are not 0; a digest is a byte, four in a word."""
    words = index[:, : _ffi.constants()["keys_word"]]
    low_bits = words & jnp.uint32(0x7F7F7F7F)
    # The highest bit of each byte; no sum of low bits reaches the next byte.
    taken = (low_bits + jnp.uint32(0x7F7F7F7F) | words) & jnp.uint32(0x80808080)
    return jax.lax.population_count(taken).astype(jnp.int32).sum(axis=1)


def keys_of_index(
    index: UInt32[Array, "buckets words"],
) -> tuple[UInt32[Array, "buckets 128"], UInt32[Array, "buckets 128"]]:
    """Returns the low and the high words of the keys of all slots."""
    return _words_of_entries(index, "keys_word")


def scores_of_index(
    index: UInt32[Array, "buckets words"],
) -> tuple[UInt32[Array, "buckets 128"], UInt32[Array, "buckets 128"]]:
    """Returns low and high words of scores; customized tables have clocks there."""
    return _words_of_entries(index, "scores_word")


def custom_scores_of_index(
    index: UInt32[Array, "buckets words"],
) -> tuple[UInt32[Array, "buckets 128"], UInt32[Array, "buckets 128"]]:
    """Returns the same of the scores of a customized table (core/custom_score.h)."""
    given = index[:, _ffi.constants()["bucket_words"] :]
    return given[:, 0::2], given[:, 1::2]


def _words_of_entries(index: jax.Array, first: str) -> tuple[jax.Array, jax.Array]:
    constants = _ffi.constants()
    begin, end = constants[first], constants["bucket_words"]
    step = constants["slot_words"]
    return index[:, begin:end:step], index[:, begin + 1 : end : step]


@functools.partial(jax.jit, static_argnums=0)
def fullest_buckets(
    ranges: Ranges, indexes: Mapping[str, UInt32[Array, "buckets words"]]
) -> Int32[Array, " tables"]:
    """Counts the rows of each table's fullest bucket; ``ranges`` are of its buckets."""
    most = []
    for name, of_tables in ranges:
        rows = bucket_rows(indexes[name])
        most += [rows[first:end].max() for first, end in of_tables]
    return jnp.stack(most)
