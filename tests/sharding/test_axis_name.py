# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tables that know only the name of an axis, inside the user's own shard_map."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

import jax_dynemb as jde
from meshes import grid, mesh_of
from oracle import ReferenceTables
from support import export, gradients

TABLES = [
    jde.TableConfig("t", dim=3, capacity=1024, optimizer=jde.optim.adam(0.1)),
    jde.TableConfig("bag", dim=2, capacity=1024, pooling="mean"),
    jde.TableConfig("copy", dim=2, capacity=256, sharding="replicated"),
    jde.TableConfig("few", dim=2, capacity=256),  # two buckets: fewer than devices
]
BY_NAME = jde.Tables(TABLES, axis_name="data")  # one collection for every mesh
SPLIT = PartitionSpec("data")
BATCH = 8


def batch(seed: int) -> tuple[dict, dict]:
    draw = np.random.default_rng(seed)
    ids = {
        "t": draw.integers(-1, 30, BATCH),
        "bag": draw.integers(-1, 30, (BATCH, 3)),
        "copy": draw.integers(0, 9, BATCH),
        "few": draw.integers(-1, 30, BATCH),
    }
    dims = {"t": 3, "bag": 2, "copy": 2, "few": 2}
    return ids, {f: gradients((BATCH, dims[f]), seed) for f in ids}


@pytest.mark.parametrize(
    ("mesh", "checked"),
    [(mesh_of(2), False), (grid(), False), (grid(), True)],
    ids=["2", "4 x 2", "4 x 2, varying axes checked"],
)
def test_a_loop_of_the_users_own(mesh, checked):
    specs = BY_NAME.partition_specs()

    def fresh():
        return BY_NAME.init(3)

    def step(state, ids, d_rows):
        rows, residual, state = BY_NAME.lookup(state, ids)
        state = BY_NAME.apply_gradients(state, residual, d_rows)
        return rows, state

    def mapped(function, inputs, outputs):
        options = {"in_specs": inputs, "out_specs": outputs, "check_vma": checked}
        return jax.jit(jax.shard_map(function, mesh=mesh, **options))

    state = mapped(fresh, (), specs)()
    run = mapped(step, (specs, SPLIT, SPLIT), (SPLIT, specs))
    oracle = ReferenceTables(TABLES, 3)
    for seed in range(3):
        ids, d_rows = batch(seed)
        given = jax.tree.map(jnp.asarray, d_rows)
        rows, state = run(state, {f: jde.ids(x) for f, x in ids.items()}, given)
        expected, residual = oracle.lookup(ids)
        for feature, want in expected.items():
            np.testing.assert_allclose(rows[feature], want, rtol=1e-5, atol=1e-5)
        oracle.apply_gradients(residual, d_rows)
    # What runs outside sees the same state.
    outside = jde.Tables(TABLES, mesh=mesh, axis="data")
    assert outside.partition_specs() == specs
    assert outside.stats(state)["t/rows"] == oracle.stats()["t/rows"]
    for name in ids:
        expected = oracle.export(name)
        exported = export(outside, state, name)
        assert exported.keys() == expected.keys()
        for key, row in exported.items():
            want = expected[key].values
            np.testing.assert_allclose(row.values, want, rtol=1e-5, atol=1e-5)


def test_outside_of_a_shard_map():
    with pytest.raises(ValueError, match=r"axis=\.\.\."):
        BY_NAME.init(0)
    with pytest.raises(ValueError, match=r"axis=\.\.\."):
        BY_NAME.plan()
    with pytest.raises(ValueError, match="takes the place"):
        jde.Tables(TABLES, mesh=mesh_of(2), axis_name="data")
    with pytest.raises(ValueError, match="name the axes"):
        jde.Tables(TABLES, axis_name=())
    assert BY_NAME.with_tables(TABLES) == BY_NAME != jde.Tables(TABLES)
