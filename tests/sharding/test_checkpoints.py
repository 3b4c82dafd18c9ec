# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Table-wise and column-wise tables on other meshes: the same rows, and training on."""

import functools

import jax
import numpy as np
import pytest

import jax_dynemb as jde
from jax_dynemb._src.files.checkpoint.stored import open_tables
from meshes import mesh_of
from support import assert_close, compiled, export, gradients, without_identity

NAMES = ("t0", "t1", "t2", "wide", "rows")


def collection(devices: int | None, **changes) -> jde.Tables:
    common = {"optimizer": jde.optim.rowwise_adagrad(0.1), "capacity": 1024} | changes
    initial = {"initializer": jde.initializers.uniform(-0.1, 0.1)}
    whole = [
        jde.TableConfig(name, dim=4, sharding="table_wise", **initial, **common)
        for name in NAMES[:3]
    ]
    wide = jde.TableConfig("wide", dim=32, sharding="column_wise", **common)
    rows = jde.TableConfig("rows", dim=3, **common)
    mesh = None if devices is None else mesh_of(devices)
    return jde.Tables([*whole, wide, rows], mesh=mesh)


def train(coll: jde.Tables, state, step: int):
    rng = np.random.default_rng(step)
    names = NAMES[step % 2 :]  # not all tables have made the same number of steps
    ids = {name: jde.ids(rng.integers(0, 90, 24)) for name in names}
    run = compiled(coll)
    rows, residual, state = run.lookup(state, ids, None, None)
    d_rows = {name: gradients(x.shape, step) for name, x in rows.items()}
    return run.apply_gradients(state, residual, d_rows, None)


def assert_equal(coll, state, other, expected) -> None:
    assert_same = functools.partial(
        assert_close, tolerance={"rtol": 1e-5, "atol": 1e-6}
    )
    for name in NAMES:
        got, want = export(coll, state, name), export(other, expected, name)
        assert got.keys() == want.keys() and len(got) > 20
        for key, row in got.items():
            assert_same(row.values, want[key].values, "float32")
            assert_same(
                *(r.state["sum_of_squares"] for r in (row, want[key])), "float32"
            )
            assert row.score == want[key].score
    ours, theirs = coll.stats(state), other.stats(expected)
    for key in theirs.keys() & ours.keys():
        # A mesh counts an id once per device (docs/concepts/lifecycle.md).
        if not any(part in key for part in ("exchange", "fullest", "/hits", "/misses")):
            assert ours[key] == theirs[key], key


@pytest.mark.slow
def test_eight_devices_two_one_four(tmp_path):
    alone = collection(None)
    expected = alone.init(0)
    coll, state = collection(8), None
    for step, devices in enumerate((8, 2, None, 4)):
        if state is None:
            state = coll.init(0)
        else:
            jde.checkpoint.save(tmp_path, step, state, tables=coll)
            coll = collection(devices)
            restored = jde.checkpoint.restore(tmp_path, coll.init(step), tables=coll)
            assert restored.notes == ()
            state = restored.tree
        assert_equal(coll, state, alone, expected) if step else None
        state, expected = train(coll, state, step), train(alone, expected, step)
    assert_equal(coll, state, alone, expected)


def test_the_same_mesh_reads_arrays_as_they_are(tmp_path):
    coll = collection(4)
    state = train(coll, coll.init(0), 0)
    before = jax.tree.map(without_identity, state)
    jde.checkpoint.save(tmp_path, 0, state, tables=coll)
    abstract = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state
    )
    restored = jde.checkpoint.restore(tmp_path, abstract, tables=coll).tree
    after = jax.tree.map(without_identity, restored)
    jax.tree.map(np.testing.assert_array_equal, after, before)
    for name, specs in coll.partition_specs().items():
        assert restored[name].values.sharding.spec == specs.values


@pytest.mark.parametrize("capacity", [512, 2048])
def test_another_capacity_on_another_mesh(tmp_path, capacity):
    coll = collection(4)
    state = train(coll, coll.init(0), 0)
    jde.checkpoint.save(tmp_path, 0, state, tables=coll)
    other = collection(2, capacity=capacity)
    restored = jde.checkpoint.restore(tmp_path, other.init(1), tables=other)
    assert len(restored.notes) == len(NAMES)
    for name in NAMES:
        got, want = (
            export(c, s, name) for c, s in [(other, restored.tree), (coll, state)]
        )
        assert got.keys() == want.keys()
        for key, row in got.items():
            np.testing.assert_array_equal(row.values, want[key].values)


def test_tables_of_a_checkpoint_one_by_one(tmp_path):
    coll = collection(4)
    state = train(coll, coll.init(0), 0)
    jde.checkpoint.save(tmp_path, 3, state, tables=coll, wait=True)
    stored = open_tables(tmp_path / "3")
    assert sorted(stored) == sorted(NAMES)
    for name, table in stored.items():
        want = export(coll, state, name)
        got = {
            int(k): r
            for c in table.chunks()
            for k, r in zip(c.keys, c.rows, strict=True)
        }
        assert got.keys() == want.keys() and table.rows == len(want)
        assert sorted(k for keys, _ in table.index() for k in keys) == sorted(want)
        for key, row in got.items():
            np.testing.assert_array_equal(row, want[key].values)
