# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Large arrays of new tables hold what small ones do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_dynemb._src.ops.state import empty_index, repeated


@pytest.mark.parametrize("count", [3, 700_001])  # below and above a huge page
@pytest.mark.parametrize(
    "row",
    [
        np.zeros(5, np.float32),
        np.zeros(3, jnp.bfloat16),
        np.array([1, 2, 255], np.uint8),
        np.float32(0.25),
    ],
    ids=["zeros", "bfloat16", "bytes", "one number a row"],
)
@pytest.mark.parametrize("jit", [True, False])
def test_every_row_is_the_row(row, count, jit):
    make = jax.jit(repeated, static_argnums=1) if jit else repeated
    array = make(jnp.asarray(row), count)
    assert array.shape == (count, *row.shape) and array.dtype == row.dtype
    np.testing.assert_array_equal(array, np.broadcast_to(row, array.shape))


def test_a_large_index_is_empty():
    small, large = empty_index(1), np.asarray(empty_index(2000))
    np.testing.assert_array_equal(large, np.repeat(small, 2000, axis=0))
