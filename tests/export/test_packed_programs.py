# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Packed tables of a mesh, and as arguments of an exported program."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde
import packed_rows
from meshes import mesh_of
from packed_rows import FORMATS
from served import serve

BATCH = 40


@pytest.fixture(autouse=True, scope="module")
def quick_compilation():
    """Less optimization: each program over eight devices runs once or twice."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def batch(seed: int) -> dict[str, jax.Array]:
    rng = np.random.default_rng(seed)
    ids = {name: rng.integers(-1, 300, BATCH) for name in ("copies", "a", "b")}
    ids |= {name: rng.integers(-1, 300, (BATCH, 3)) for name in ("rows", "columns")}
    return {name: jde.ids(each) for name, each in ids.items()}


@pytest.fixture(scope="module")
def eight():
    """All shardings; half of the ids are stored, others draw their rows."""
    drawn = {"eval_initializer": jde.initializers.normal()}
    tables = [
        jde.TableConfig("rows", 4, 1024, pooling="mean", **drawn),
        jde.TableConfig(
            "columns", 32, 1024, sharding="column_wise", pooling="sum", **drawn
        ),
        jde.TableConfig("copies", 3, 1024, sharding="replicated", **drawn),
        jde.TableConfig("a", 5, 1024, sharding="table_wise", **drawn),
        jde.TableConfig("b", 5, 1024, sharding="table_wise", **drawn),
    ]
    coll = jde.Tables(tables, mesh=mesh_of(8))
    keys = jde.ids(np.arange(160).reshape(40, 4))
    flat = keys.reshape(160, 2)
    ids = {n: flat if n in ("copies", "a", "b") else keys for n in coll.tables}
    return coll, jax.jit(lambda state: coll.lookup(state, ids)[2])(coll.init(seed=2))


@pytest.mark.parametrize("row_format", FORMATS)
def test_one_device_gets_what_it_would_pack_itself(eight, row_format):
    coll, state = eight
    plain, whole = jde.export.frozen(coll, state)
    _, here = jde.export.frozen(plain, whole, dtype=row_format)
    served, moved = jde.export.frozen(coll, state, dtype=row_format)
    assert moved.keys() == whole.keys()
    jax.tree.map(np.testing.assert_array_equal, moved, here)
    rows, found, _ = jax.jit(served.find)(moved, batch(1))
    wanted, stored, _ = jax.jit(plain.find)(whole, batch(1))
    jax.tree.map(np.testing.assert_array_equal, found, stored)
    for name, each in wanted.items():
        largest = np.abs(np.asarray(whole[name].values)).max()
        ids_of_bag = 1 if name in ("copies", "a", "b") else 3
        error = ids_of_bag * largest / packed_rows.LARGEST[row_format] * 0.5
        if row_format == "float8_e4m3fn":
            error = ids_of_bag * largest * 2**-4
        np.testing.assert_allclose(rows[name], each, rtol=1e-5, atol=error)


@pytest.mark.parametrize("row_format", FORMATS)
def test_tables_that_stay_on_the_mesh(eight, row_format):
    coll, state = eight
    served, tables = jde.export.frozen(coll, state, on_mesh=True, dtype=row_format)
    single, moved = jde.export.frozen(coll, state, dtype=row_format)
    for name, arrays in tables.items():
        assert arrays.values.sharding.is_equivalent_to(state[name].values.sharding, 2)
    rows, found, _ = jax.jit(served.find)(tables, batch(2))
    wanted, stored, _ = jax.jit(single.find)(moved, batch(2))
    jax.tree.map(np.testing.assert_array_equal, found, stored)
    columns = np.asarray(rows.pop("columns")), np.asarray(wanted.pop("columns"))
    for name, each in wanted.items():
        np.testing.assert_allclose(rows[name], each, rtol=1e-5, atol=1e-6)
    # A device's columns have a scale of their own, which is no larger.
    largest = 3 * np.abs(np.asarray(state["columns"].values)).max()
    steps = (
        2**-3 if row_format == "float8_e4m3fn" else 1 / packed_rows.LARGEST[row_format]
    )
    np.testing.assert_allclose(*columns, rtol=1e-5, atol=largest * steps)
    with pytest.raises(ValueError, match=r"only find reads.*jde\.export\.frozen"):
        served.lookup(tables, batch(2))


@pytest.mark.parametrize(
    "row_format",
    [FORMATS[0], *(pytest.param(f, marks=pytest.mark.slow) for f in FORMATS[1:])],
)
def test_a_fresh_process_reads_them(row_format, tmp_path):
    pytest.importorskip("flatbuffers", reason="jax.export needs it to write bytes")
    config = jde.TableConfig(
        "t", 6, 500, pooling="mean", eval_initializer=jde.initializers.normal()
    )
    coll = jde.Tables([config])
    _, _, state = coll.lookup(coll.init(seed=3), {"t": jde.ids(np.arange(1, 100))})
    served, tables = jde.export.frozen(coll, state, dtype=row_format)

    def look_up(tables, ids):
        return served.find(tables, {"t": ids})[0]["t"]

    sizes = [jde.ids(np.array([[1, 2], [150, -1], [3, 3]])[:n]) for n in (1, 3)]
    data = jde.export.program(
        look_up, tables, sizes[1], shapes=(None, "b, ..."), constraints=["b <= 8"]
    )
    answers = serve(tmp_path, data, tables, [[ids] for ids in sizes])
    for ids, answer in zip(sizes, answers, strict=True):
        np.testing.assert_array_equal(answer[0], look_up(tables, jnp.asarray(ids)))
