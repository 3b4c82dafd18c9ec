# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Storage types of rows, and the type in which they are returned."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde
from support import Twins, export, gradients

STORED = ("float32", "bfloat16", "float16")
DTYPES = list(itertools.product(STORED, STORED))
NORMAL = jde.initializers.uniform(-1.0, 1.0)


def make(**options) -> Twins:
    options = {"dim": 12, "capacity": 256, "initializer": NORMAL} | options
    return Twins(jde.TableConfig(name="t", **options))


@pytest.mark.parametrize("param_dtype", STORED)
def test_initial_rows_are_rounded_to_nearest_even(platform, param_dtype):
    full, rounded = make(), make(param_dtype=param_dtype)
    keys = np.arange(1, 65)
    rows, _ = full.lookup({"t": keys})
    got, _ = rounded.lookup({"t": keys})
    dtype = np.dtype(rounded.coll.tables["t"].param_dtype)
    np.testing.assert_array_equal(got["t"], rows["t"].astype(dtype).astype(np.float32))
    assert export(rounded.coll, rounded.state, "t")[1].values.dtype == dtype


@pytest.mark.parametrize("param_dtype", STORED)
def test_sgd_to_the_bit(platform, param_dtype):
    # every product and sum is exact in float32: only storage rounds, to even
    twins = make(param_dtype=param_dtype, pooling="sum", optimizer=jde.optim.sgd(0.25))
    ids = np.random.default_rng(0).integers(-1, 50, (64, 4))
    for step in range(3):
        _, residuals = twins.lookup({"t": ids})
        twins.apply(residuals, {"t": gradients((64, 12), step)})
    expected = twins.oracle.export("t")
    for key, row in export(twins.coll, twins.state, "t").items():
        np.testing.assert_array_equal(row.values, expected[key].values)


# 24: a GPU reads 8 columns of 16 bits at once
@pytest.mark.parametrize("dim", [12, 24])
@pytest.mark.parametrize(("param_dtype", "dtype"), DTYPES)
def test_training(platform, param_dtype, dtype, dim):
    twins = make(
        dim=dim,
        param_dtype=param_dtype,
        dtype=dtype,
        pooling="mean",
        optimizer=jde.optim.adagrad(0.25, eps=0.125),
    )
    ids = np.random.default_rng(0).integers(-1, 50, (16, 4))
    for step in range(2):
        rows, residuals = twins.lookup({"t": ids})
        twins.apply(residuals, {"t": gradients(rows["t"].shape, step)})
        twins.find({"t": ids})
    twins.check()


@pytest.mark.parametrize("param_dtype", ["bfloat16", "float16"])
def test_arithmetic_is_float32(platform, param_dtype):
    # 64 gradients of 2^-9 add up to 1/8; summed in bfloat16 most would vanish
    twins = make(
        param_dtype=param_dtype,
        initializer=jde.initializers.constant(1.0),
        optimizer=jde.optim.sgd(1.0),
    )
    d_rows = np.full((65, 12), 2.0**-9, np.float32)
    d_rows[0] = 1.0
    _, residuals = twins.lookup({"t": np.full(65, 7)})
    twins.apply(residuals, {"t": d_rows})
    row = export(twins.coll, twins.state, "t")[7]
    assert np.asarray(row.values, np.float32).tolist() == [-0.125] * 12


def test_gradients_of_several_types_for_one_table(platform):
    # every gradient is exact in bfloat16, every sum in float32
    config = jde.TableConfig(
        name="t",
        dim=12,
        capacity=256,
        initializer=jde.initializers.constant(1.0),
        optimizer=jde.optim.sgd(0.5),
        pooling="sum",
        feature_names=("a", "b", "c"),
    )
    coll = jde.Tables([config])
    ids = {
        "a": np.array([[7, 8], [7, -1]]),
        "b": np.array([[7, 9], [8, 8]]),
        "c": np.array([[9, 7]]),
    }
    _, residuals, state = coll.lookup(
        coll.init(seed=0), {name: jde.ids(values) for name, values in ids.items()}
    )
    d_rows = {
        "a": jnp.array([[0.25], [0.5]], jnp.float32) * jnp.ones((1, 12)),
        "b": jnp.array([[1.0], [2.0]], jnp.bfloat16) * jnp.ones((1, 12), jnp.bfloat16),
        "c": jnp.full((1, 12), 4.0, jnp.float16),
    }
    rows = export(coll, coll.apply_gradients(state, residuals, d_rows), "t")
    sums = {7: 0.25 + 0.5 + 1.0 + 4.0, 8: 0.25 + 2.0 + 2.0, 9: 1.0 + 4.0}
    for key, total in sums.items():
        assert rows[key].values.tolist() == [1.0 - 0.5 * total] * 12
