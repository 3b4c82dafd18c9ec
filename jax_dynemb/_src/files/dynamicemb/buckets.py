# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""How large a DynamicEmb table must be so that none of its buckets overflows.

Its loaders drop rows of an overfull bucket without a word. A key lives in bucket
``(hash % capacity) // 128`` there, so the capacity is tried out on the real keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from jax_dynemb._src.rows import fmix64

BUCKET = 128
_HASH_BITS = np.uint64(0x7FFF_FFFF_FFFF_FFFF)
# Up to here every capacity is tried; above, only some of the promising ones.
_EXACT_ROWS = 1 << 17
# Where so many buckets are expected to overflow, trying is a waste: none does with a
# probability of exp(-40), or exp(-3) where a trial takes long.
_HOPELESS = 40.0
_UNLIKELY = 3.0


def lossless_capacity(blocks: Callable[[], Iterator[np.ndarray]], num_keys: int) -> int:
    """Returns the smallest num_embeddings that loses none of the keys.

    It is a multiple of 128. ``blocks`` starts to read distinct keys, int64[n] each.
    Above 131,072 keys not every capacity is tried, and the result may be a few per cent
    larger than the smallest. It is always one that loses nothing.
    """
    buckets = max(1, -(-num_keys // BUCKET))
    exact = num_keys <= _EXACT_ROWS
    step = 1 if exact else buckets // 1024
    while _expected_overfull(num_keys, buckets) > (_HOPELESS if exact else _UNLIKELY):
        buckets += step
    while _overflows(blocks(), buckets):
        buckets += step
    return buckets * BUCKET


def _overflows(blocks: Iterator[np.ndarray], buckets: int) -> bool:
    counts = np.zeros(buckets, np.int64)
    for keys in blocks:
        places = (fmix64(keys) & _HASH_BITS) % np.uint64(buckets * BUCKET)
        places //= np.uint64(BUCKET)
        counts += np.bincount(places.astype(np.int64), minlength=buckets)
        if counts.max() > BUCKET:
            return True
    return False


def _expected_overfull(keys: int, buckets: int) -> float:
    """Buckets with more than 128 of randomly placed keys (Poisson)."""
    mean = keys / buckets
    if mean == 0.0:
        return 0.0
    tail = 0.0
    for k in range(BUCKET + 1, BUCKET + 400):
        tail += math.exp(k * math.log(mean) - mean - math.lgamma(k + 1))
    return buckets * tail
