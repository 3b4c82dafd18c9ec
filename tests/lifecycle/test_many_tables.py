# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A process that makes many tables keeps the programs of the last ones only."""

import gc
import weakref

import jax
import numpy as np
import pytest

import jax_dynemb as jde
from jax_dynemb._src.kept_jit import _MOST, kept_jit


def programs() -> int:
    gc.collect()
    return len(jax.devices("cpu")[0].client.live_executables())


@pytest.mark.slow
def test_eager_tables_beyond_those_that_are_kept():
    alive = []

    def use(number: int) -> None:
        coll = jde.Tables([jde.TableConfig(f"t{number}", 2, 256)])
        state = coll.init(0)
        assert coll.stats(state)[f"t{number}/rows"] == 0
        alive.append(weakref.ref(coll))

    jax.config.update("jax_disable_most_optimizations", True)
    try:
        for number in range(_MOST + 1):
            use(number)
        before = programs()
        for number in range(_MOST + 1, _MOST + 31):
            use(number)
    finally:
        jax.config.update("jax_disable_most_optimizations", False)
    assert programs() <= before + 2
    gc.collect()
    assert sum(each() is not None for each in alive) <= 2 * _MOST


def test_kept_jit_is_jit_with_static_arguments():
    traced = []

    @kept_jit(0, 2, donated=(1,))
    def scaled(factor: int, x: jax.Array, power: int) -> jax.Array:
        traced.append(factor)
        return factor * x**power

    x = np.arange(3.0, dtype=np.float32)
    np.testing.assert_array_equal(scaled(2, jax.numpy.asarray(x), 2), 2 * x**2)
    given = jax.numpy.asarray(x)
    scaled(2, given, 2)
    assert traced == [2] and given.is_deleted()
    scaled(3, jax.numpy.asarray(x), 2)
    assert traced == [2, 3]
    text = scaled.lower(2, jax.ShapeDtypeStruct((3,), "float32"), 2).as_text()
    assert "jit_scaled" in text
    for factor in range(10, 10 + _MOST):
        scaled(factor, jax.numpy.asarray(x), 2)
    scaled(2, jax.numpy.asarray(x), 2)
    assert traced[-1] == 2  # it had been dropped
