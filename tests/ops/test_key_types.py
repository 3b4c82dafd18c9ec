# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Ids of 32 and 64 bits, and what is refused when the program is traced."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde
from oracle import ReferenceTables
from support import export


def config(**options) -> jde.TableConfig:
    return jde.TableConfig(name="t", dim=4, capacity=256, **options)


def test_int32_ids_on_an_int32_table(platform):
    table = config(key_dtype="int32")
    coll, oracle = jde.Tables([table]), ReferenceTables([table])
    state = coll.init(0)
    keys = np.array([3, -1, -10, 2**31 - 1, 3], np.int32)
    rows, _, state = coll.lookup(state, {"t": jnp.asarray(keys)})
    expected, _ = oracle.lookup({"t": keys})
    np.testing.assert_array_equal(rows["t"], expected["t"])
    assert set(export(coll, state, "t")) == {3, -10, 2**31 - 1}


def test_uint32_ids_on_an_int32_table(platform):
    coll = jde.Tables([config(key_dtype="int32", initializer=jde.initializers.debug())])
    keys = jnp.array([3, 2**32 - 1, 2**32 - 6], jnp.uint32)  # the second is padding
    rows, _, state = coll.lookup(coll.init(0), {"t": keys})
    assert np.asarray(rows["t"])[:, 0].tolist() == [3, 0, (2**32 - 6) % 100_000]
    assert set(export(coll, state, "t")) == {3, 2**32 - 6}


@pytest.mark.parametrize("operation", ["lookup", "find"])
@pytest.mark.parametrize("dtype", ["int32", "int16", "uint8"])
def test_short_ids_on_a_64_bit_table_are_refused(operation, dtype):
    coll = jde.Tables([config()])
    state = coll.init(0)
    ids = {"t": jnp.zeros(4, dtype)}
    with pytest.raises(TypeError, match=r"jde\.ids"):
        getattr(coll, operation)(state, ids)
    with pytest.raises(TypeError, match=r"key_dtype"):
        jax.eval_shape(getattr(coll, operation), state, ids)


def test_float_ids_are_refused():
    coll = jde.Tables([config()])
    with pytest.raises(TypeError, match=r"jde\.ids"):
        coll.lookup(coll.init(0), {"t": jnp.zeros((4, 2))})


def test_words_without_a_pair_axis_are_refused():
    coll = jde.Tables([config()])
    with pytest.raises((TypeError, ValueError), match=r"jde\.ids"):
        coll.lookup(coll.init(0), {"t": jnp.zeros(3, jnp.uint32)})


def test_64_bit_arrays(platform):
    table = config(
        initializer=jde.initializers.debug(),
        optimizer=jde.optim.sgd(lambda count: jnp.asarray(1.0)),
    )
    coll, oracle = jde.Tables([table]), ReferenceTables([table])
    keys = np.array([5, -7, 2**62, -1, -(2**63)], np.int64)
    with jax.enable_x64(True):
        state = coll.init(0)
        for ids in (jnp.asarray(keys), jnp.asarray(keys.view(np.uint64))):
            assert ids.dtype.itemsize == 8
            expected, expected_residual = oracle.lookup({"t": keys})
            rows, residual, state = coll.lookup(state, {"t": ids})
            np.testing.assert_array_equal(rows["t"], expected["t"])
            d_rows = {"t": jnp.ones((5, 4))}  # float64
            state = coll.apply_gradients(state, residual, d_rows)
            oracle.apply_gradients(expected_residual, d_rows)
        assert coll.stats(state)["t/rows"] == 4
        _, found, state = coll.find(state, {"t": jde.ids(keys)})
        assert np.asarray(found["t"]).tolist() == [True, True, True, False, True]


def test_numpy_int64_is_taken_or_explained(platform):
    # JAX would cut numpy int64 to 32 bits without a word when x64 is off
    coll = jde.Tables([config()])
    big = np.array([2**40 + 1, 1], np.int64)
    try:
        _, _, state = coll.lookup(coll.init(0), {"t": big})
    except TypeError as error:
        assert "jde.ids" in str(error)
    else:
        assert set(export(coll, state, "t")) == {2**40 + 1, 1}
