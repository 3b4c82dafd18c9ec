# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Hypothesis strategies for ids: few values, so that they meet often."""

import functools

import numpy as np
from hypothesis import strategies as st

from keys import keys_of_bucket

PADDING = -1


@functools.cache
def crowd(num_buckets: int = 2) -> list[int]:
    """Keys that fight for the first and the last bucket of a small table."""
    low = keys_of_bucket(0, num_buckets, 150)
    high = keys_of_bucket(num_buckets - 1, num_buckets, 150, start=-(10**12))
    return low + high


def keys(num_buckets: int = 2) -> st.SearchStrategy[int]:
    """One id: often from the crowd, at times padding or an extreme."""
    return st.one_of(
        st.sampled_from(crowd(num_buckets)),
        st.just(PADDING),
        st.sampled_from([0, 1, 2**63 - 1, -(2**63), -5, 2**32, 2**32 - 1]),
    )


def key_lists(size: int, num_buckets: int = 2) -> st.SearchStrategy[np.ndarray]:
    """int64[size]; one size means one compiled program."""
    drawn = st.lists(keys(num_buckets), max_size=size)

    def padded(values: list[int]) -> np.ndarray:
        out = np.full(size, PADDING, np.int64)
        out[: len(values)] = values
        return out

    return drawn.map(padded)


def crowded_batch(seed: int, size: int, num_buckets: int = 2) -> np.ndarray:
    """int64[size] full of keys of the crowd, from a seed that hypothesis draws."""
    rng = np.random.default_rng(seed)
    values = rng.choice(np.array(crowd(num_buckets)), size)
    return np.where(rng.random(size) < 0.1, PADDING, values)
