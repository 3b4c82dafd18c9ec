# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Distinct numbers of a batch, against NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_dynemb._src import ops

MOST = 2**32 - 1


def draw(kind, n, limit, rng):
    if kind == "uniform":
        numbers = rng.integers(0, limit, n)
    elif kind == "skewed":
        numbers = np.minimum(rng.zipf(1.2, n) - 1, limit - 1)
    elif kind == "one":
        numbers = np.full(n, limit - 1)
    else:
        assert kind == "none"
        numbers = rng.integers(limit, MOST + 1, n)
    numbers[rng.random(n) < 0.05] = MOST
    numbers[rng.random(n) < 0.05] = limit
    return numbers.astype(np.uint32)


def check(found, numbers, limit, prefixes, suffixes):
    n = len(numbers)
    values = np.unique(numbers[numbers < limit])
    count = len(values)
    assert found.count.tolist() == [count]
    padded = np.zeros(n, np.uint32)
    padded[:count] = values
    np.testing.assert_array_equal(found.values, padded)
    place = np.searchsorted(values, numbers)
    inverse = np.where(numbers < limit, place, -1)
    np.testing.assert_array_equal(found.inverse, inverse)
    keys = np.where(numbers < limit, numbers, MOST)
    positions = np.argsort(keys, kind="stable")
    np.testing.assert_array_equal(found.positions, positions)
    np.testing.assert_array_equal(found.ranks, inverse[positions])
    starts = np.searchsorted(values // suffixes, np.arange(prefixes + 1))
    np.testing.assert_array_equal(found.starts, starts)
    of_suffix = np.full(n, -1)
    own = values // suffixes < prefixes
    of_suffix[:count] = np.where(own, (values % suffixes).astype(np.int64), -1)
    np.testing.assert_array_equal(found.of_suffix, of_suffix)


@pytest.mark.parametrize("kind", ["uniform", "skewed", "one", "none"])
@pytest.mark.parametrize(
    ("n", "prefixes", "suffixes"),
    [
        (1, 1, 1),
        (40, 7, 5),
        (5000, 44_000, 250),
        (70_000, 90, 30),
        (300_000, 44_000, 250),
        (1000, 65_536, 65_535),
    ],
)
def test_as_in_numpy(platform, n, prefixes, suffixes, kind):
    rng = np.random.default_rng(n)
    limit = prefixes * suffixes
    numbers = draw(kind, n, limit, rng)
    run = jax.jit(ops.distinct, static_argnames=("limit", "prefixes", "suffixes"))
    found = run(numbers, limit=limit, prefixes=prefixes, suffixes=suffixes)
    check(found, numbers, limit, prefixes, suffixes)


@pytest.mark.parametrize("limit", [0, 1, 128, 255, 256, 2**16, 2**24, 2**31, MOST])
def test_any_limit(platform, limit):
    """Numbers at both sides of it, and prefixes that do not exist."""
    rng = np.random.default_rng(limit)
    near = rng.integers(max(0, limit - 9), min(limit + 9, MOST) + 1, 3000)
    numbers = np.where(rng.random(3000) < 0.5, near, rng.integers(0, MOST + 1, 3000))
    numbers = numbers.astype(np.uint32)
    found = ops.distinct(jnp.asarray(numbers), limit=limit, prefixes=9, suffixes=14)
    check(found, numbers, limit, 9, 14)


def test_without_numbers(platform):
    none = jnp.zeros(0, jnp.uint32)
    found = ops.distinct(none, limit=9, prefixes=3, suffixes=3)
    assert found.count.tolist() == [0] and found.starts.tolist() == [0] * 4


def test_without_prefixes(platform):
    numbers = np.array([8, 3, 8, 9, 0], np.uint32)
    found = ops.distinct(jnp.asarray(numbers), limit=9, prefixes=0, suffixes=1)
    check(found, numbers, 9, 0, 1)


def test_numbers_that_are_none(platform):
    numbers = jnp.arange(9, dtype=jnp.uint32)
    for limit, suffixes in ((-1, 3), (2**32, 3), (9, 0)):
        with pytest.raises(Exception, match="limit|suffixes|bounds|convert"):
            found = ops.distinct(numbers, limit=limit, prefixes=3, suffixes=suffixes)
            jax.block_until_ready(found)
