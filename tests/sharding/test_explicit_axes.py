# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Axes that are part of the types: any batch works, as on axes of the kind Auto.

JAX does not cut or pad an array along an explicit axis that does not divide it.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import jax_dynemb as jde
from meshes import grid
from support import HostJagged, Twins, gradients

TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}
TABLES = (
    jde.TableConfig("seq", 4, 1024, feature_names=("a", "b")),
    jde.TableConfig("sum", 3, 1024, pooling="sum", optimizer=jde.optim.adam(0.1)),
    jde.TableConfig("mean", 2, 1024, pooling="mean"),
    jde.TableConfig("copy", 5, 1024, sharding="replicated"),
    jde.TableConfig("columns", 32, 1024, sharding="column_wise", pooling="sum"),
)


def batch(size: int) -> dict:
    rng = np.random.default_rng(size)
    bags = [list(rng.integers(0, 90, n)) for n in rng.integers(0, 4, size)]
    return {
        "a": rng.integers(-1, 90, size),
        "b": rng.integers(-1, 90, (size, 2)),
        "sum": rng.integers(-1, 90, (size, 3)),
        "mean": HostJagged.of(bags, capacity=4 * size + 1),
        "copy": rng.integers(-1, 90, size),
        "columns": rng.integers(-1, 90, (size, 2)),
    }


@pytest.mark.slow
@pytest.mark.parametrize("size", [5, 9])
@pytest.mark.parametrize("axis", [None, "data"])
def test_a_batch_that_does_not_divide(size, axis):
    twins = Twins(*TABLES, mesh=grid(explicit=True), axis=axis)
    rng = np.random.default_rng(1)
    weights = {"sum": rng.random((size, 3)), "mean": rng.random(4 * size + 1)}
    for step in range(2):
        rows, residuals = twins.lookup(batch(size), weights)
        d_rows = {f: gradients(x.shape, step) for f, x in rows.items()}
        got, twins.state = twins.jit.weight_gradients(
            twins.state, residuals[0], twins._cotangents(d_rows)
        )
        expected = twins.oracle.weight_gradients(residuals[1], d_rows)
        for name in weights:
            np.testing.assert_allclose(got[name], expected[name], **TOLERANCE)
        twins.apply(residuals, d_rows)
        twins.find(batch(size), weights)
    twins.check(TOLERANCE)


def test_one_id_and_an_empty_batch():
    table = jde.TableConfig("t", 3, 1024)
    twins = Twins(table, mesh=grid(explicit=True))
    _, residuals = twins.lookup({"t": np.int64(7)})
    twins.apply(residuals, {"t": np.ones(3)})
    _, residuals = twins.lookup({"t": np.zeros(0, np.int64)})
    twins.apply(residuals, {"t": np.zeros((0, 3))})
    twins.find({"t": np.int64(7)})
    twins.check()


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("size", [5, 8])
def test_gradients_and_ids_that_lie_on_the_mesh(jit, size):
    mesh = grid(explicit=True)
    coll = jde.Tables([jde.TableConfig("t", 4, 1024)], mesh=mesh)

    def step(state, ids):
        rows, residual, state = coll.lookup(state, ids)
        d_rows = jax.tree.map(lambda x: 2 * x, rows)  # in the sharding of the rows
        state = coll.apply_gradients(state, residual, d_rows)
        return rows, coll.find(state, ids)[0]

    ids = jax.device_put(jde.ids(np.arange(size)), NamedSharding(mesh, PartitionSpec()))
    with jax.set_mesh(mesh):
        run = jax.jit(step) if jit else step
        before, after = run(coll.init(0), {"t": ids})
    assert before["t"].shape == (size, 4)
    np.testing.assert_allclose(after["t"], 0.98 * np.asarray(before["t"]), rtol=1e-5)


def test_the_caller_s_arrays_keep_their_types():
    """Rows that do divide stay split: nothing is gathered that need not be."""
    coll = jde.Tables([jde.TableConfig("t", 4, 1024)], mesh=grid(explicit=True))
    lookup = jax.eval_shape(coll.lookup, coll.init(0), {"t": jde.ids(np.arange(16))})
    assert lookup[0]["t"].sharding.spec == PartitionSpec(("data", "model"), None)
    odd = jax.eval_shape(coll.lookup, coll.init(0), {"t": jde.ids(np.arange(15))})
    assert odd[0]["t"].shape == (15, 4) and odd[0]["t"].dtype == jnp.float32


@pytest.mark.parametrize("sharding", ["row_wise", "table_wise", "replicated"])
def test_the_clock_is_set_without_a_mesh_context(sharding):
    mesh = jax.make_mesh((4,), ("d",), axis_types=(jax.sharding.AxisType.Explicit,))
    coll = jde.Tables([jde.TableConfig("t", 4, 512, sharding=sharding)], mesh=mesh)
    _, _, state = coll.lookup(coll.init(0), {"t": jde.ids(np.arange(64))})
    state = coll.set_score(state, {"t": 77})
    assert coll.get_score(state) == {"t": 77}
    _, _, state = coll.lookup(state, {"t": jde.ids(np.arange(64))})
    assert coll.get_score(state) == {"t": 78} and coll.stats(state)["t/rows"] == 64
