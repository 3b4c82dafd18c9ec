# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Counters of ids without a row, made on the host as core/ lays them out."""

from __future__ import annotations

import numpy as np

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.admission import Frequency
from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.ids import PADDING
from jax_dynemb._src.rows.hash import bucket_of, fmix64

_ROWS = 4  # of a sketch
_LAST_RESERVED = -4
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_LOW, _HALF = np.uint64(0xFFFF_FFFF), np.uint64(32)
_AGES = 0x3FFF_FFFF  # lookups that a score of core/exact_counter.h tells apart
_MOST = 2**31 - 1


def counter_of(
    config: TableConfig, keys: np.ndarray, counts: np.ndarray, lookups: int
) -> tuple[np.ndarray, int]:
    """Makes the counter of a table, uint32[num_buckets, words], from counts by key.

    Keys are int64[n], distinct; ones that are counted exactly had the latest lookup.
    Also returns how many keys, those with the lowest counts, found no room in it.
    """
    rule = config.admission
    assert isinstance(rule, Frequency)
    kept = ((keys > PADDING) | (keys < _LAST_RESERVED)) & (counts > 0)
    keys, counts = keys[kept], np.minimum(counts[kept], _MOST)
    if rule.counts_keys:
        return _exact(config, rule, keys, counts, lookups)
    return _sketch(config, rule, keys, counts), 0


def counts_of(counter: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Reads keys int64[n], ascending, and their counts int64[n] from a counter."""
    constants = _ffi.constants()
    index = np.ascontiguousarray(counter).reshape(-1, constants["bucket_words"])
    first, step = constants["keys_word"], constants["slot_words"]
    words = np.stack([index[:, first::step], index[:, first + 1 :: step]], axis=-1)
    keys = words.view(np.int64).reshape(-1)
    counts = index[:, constants["scores_word"] :: step].reshape(-1).astype(np.int64)
    there = keys != PADDING  # the score of an admitted key stays
    keys, counts = keys[there], counts[there]
    order = np.argsort(keys)
    return keys[order], counts[order]


def _exact(
    config: TableConfig,
    rule: Frequency,
    keys: np.ndarray,
    counts: np.ndarray,
    lookups: int,
) -> tuple[np.ndarray, int]:
    constants = _ffi.constants()
    words, room = constants["bucket_words"], constants["bucket_capacity"]
    buckets = config.num_buckets * (rule.block_words or 0) // words
    hashes = fmix64(keys, config.hash_seed)
    number = bucket_of(keys, buckets, config.hash_seed).astype(np.int64)
    given = len(keys)
    order = np.lexsort((keys, -counts, number))
    place = np.arange(len(keys)) - np.searchsorted(number[order], number[order])
    order, place = order[place < room], place[place < room]
    keys, counts, hashes, number = (x[order] for x in (keys, counts, hashes, number))
    index = np.zeros((buckets, words), np.uint32)
    first, step = constants["keys_word"], constants["slot_words"]
    index[:, first::step] = index[:, first + 1 :: step] = 0xFFFF_FFFF
    digests = np.maximum(hashes & np.uint64(0xFF), np.uint64(1)).astype(np.uint8)
    index.view(np.uint8).reshape(buckets, -1)[number, place] = digests
    at = first + step * place
    bits = keys.view(np.uint64)
    index[number, at], index[number, at + 1] = bits & _LOW, bits >> _HALF
    at = constants["scores_word"] + step * place
    index[number, at], index[number, at + 1] = counts, lookups % _AGES + 1
    return index.reshape(config.num_buckets, -1), given - len(order)


def _sketch(
    config: TableConfig, rule: Frequency, keys: np.ndarray, counts: np.ndarray
) -> np.ndarray:
    """Adds occurrences as ``SketchCounters`` of core/admission.h does."""
    bits, width = rule.counter_bits, _width(rule.block_words or 0, rule.counter_bits)
    sums = np.zeros((config.num_buckets, _ROWS, width), np.int64)
    bucket = bucket_of(keys, config.num_buckets, config.hash_seed).astype(np.int64)
    hashes = fmix64(keys, config.hash_seed)
    mixed = [fmix64(hashes.view(np.int64)), fmix64((hashes + _GOLDEN).view(np.int64))]
    for row in range(_ROWS):
        random = mixed[row // 2] >> np.uint64(32 * (row % 2)) & _LOW
        column = (random * np.uint64(width) >> _HALF).astype(np.int64)
        at = (bucket * _ROWS + row) * width + column
        np.add.at(sums.reshape(-1), at, counts)
    return _packed(sums, bits)


def resized_sketch(
    sketch: np.ndarray, bits: int, config: TableConfig
) -> np.ndarray | None:
    """Makes the sketch of a table from that of another capacity or size.

    A counter becomes the highest of those that its keys may have had before. So a key
    counts as often as it did or more often, and is admitted early or in time. Returns
    uint32[buckets, words]; None if one number of buckets is no multiple of the other.
    """
    rule, buckets = config.admission, config.num_buckets
    assert isinstance(rule, Frequency)
    before = len(sketch)
    if max(before, buckets) % min(before, buckets):
        return None
    counters = _unpacked(sketch, bits)
    if buckets < before:
        parts = counters.reshape(buckets, -1, *counters.shape[1:])
        counters = parts.max(axis=1)
    old, new = counters.shape[2], _width(rule.block_words or 0, rule.counter_bits)
    column = np.arange(new, dtype=np.int64)
    first, last = column * old // new, ((column + 1) * old - 1) // new
    counters = np.maximum.reduceat(
        np.concatenate([counters, counters[..., -1:]], axis=2),
        np.stack([first, last + 1], axis=1).reshape(-1),
        axis=2,
    )[..., ::2]
    packed = _packed(counters, rule.counter_bits)
    return np.repeat(packed, buckets // min(before, buckets), axis=0)


def _width(words: int, bits: int) -> int:
    """Counters in a row of a block."""
    return words // _ROWS * (32 // bits)


def _packed(counters: np.ndarray, bits: int) -> np.ndarray:
    most = (1 << bits) - 1
    small = np.minimum(counters, most).astype(np.uint8 if bits == 8 else np.uint16)
    return np.ascontiguousarray(small.reshape(len(small), -1)).view(np.uint32)


def _unpacked(sketch: np.ndarray, bits: int) -> np.ndarray:
    kind = np.uint8 if bits == 8 else np.uint16
    counters = np.ascontiguousarray(sketch).view(kind)
    return counters.reshape(len(sketch), _ROWS, -1)
