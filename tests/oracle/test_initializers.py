# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Initial rows of the oracle: their distribution, and on what they depend."""

import statistics
from typing import Any

import numpy as np
import pytest

import jax_dynemb as jde
from oracle import initial_rows, philox4x32

KEYS = np.arange(1, 4001, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
SEED = 0x0123456789ABCDEF


def rows(initializer: Any, keys: np.ndarray = KEYS, dim: int = 8) -> np.ndarray:
    out = initial_rows(initializer, SEED, keys, dim)
    assert out.dtype == np.float32 and out.shape == (len(keys), dim)
    return out


def test_a_column_is_one_word_of_the_generator():
    key = 0xFEDCBA9876543210
    got = rows(jde.initializers.uniform(0.0, 1.0), np.array([key], np.uint64), 6)
    for column in range(6):
        counter = np.array([0x76543210, 0xFEDCBA98, column // 4, 0], np.uint32)
        word = philox4x32(counter, (0x89ABCDEF, 0x01234567))[column % 4]
        assert got[0, column] == np.float32(int(word) >> 8) / np.float32(2**24)


def test_uniform():
    x = rows(jde.initializers.uniform(-0.25, 0.5))
    assert x.min() >= -0.25 and x.max() < 0.5
    assert abs(x.mean() - 0.125) < 0.01
    assert abs(x.std() - 0.75 / 12**0.5) < 0.01


def test_normal():
    x = rows(jde.initializers.normal(stddev=2.0, mean=3.0))
    assert abs(x.mean() - 3) < 0.05 and abs(x.std() - 2) < 0.05
    below = (x < 3 - 2).mean()
    assert abs(below - statistics.NormalDist().cdf(-1)) < 0.01


def test_truncated_normal():
    initializer = jde.initializers.truncated_normal(
        stddev=2.0, mean=1.0, lower=0.0, upper=2.0
    )
    x = rows(initializer)
    assert x.min() >= 0 and x.max() <= 2
    assert abs(x.mean() - 1) < 0.02
    assert len(np.unique(x)) > 0.9 * x.size  # clipping alone would pile up at the ends


@pytest.mark.parametrize(
    ("initializer", "expected"),
    [
        (jde.initializers.zeros(), 0.0),
        (jde.initializers.constant(1.5), 1.5),
    ],
)
def test_constants(initializer: Any, expected: float):
    assert (rows(initializer) == expected).all()


def test_debug_is_the_key():
    keys = np.array([0, 7, 99_999, 100_000, 2**64 - 5], np.uint64)
    expected = [0, 7, 99_999, 0, (2**64 - 5) % 100_000]
    assert rows(jde.initializers.debug(), keys, 2)[:, 1].tolist() == expected


def test_a_row_depends_on_seed_and_key_alone():
    uniform = jde.initializers.uniform(-1.0, 1.0)
    x = rows(uniform)
    np.testing.assert_array_equal(rows(uniform, KEYS[::-1])[::-1], x)
    np.testing.assert_array_equal(rows(uniform, KEYS, 5), x[:, :5])
    assert (initial_rows(uniform, SEED + 1, KEYS, 8) != x).mean() > 0.99
