# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Programs from tables on a mesh: Tables.find on that mesh is what they must equal."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh

import jax_dynemb as jde
from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.engines.hash import HashEngine
from meshes import grid, mesh_of
from served import serve

pytest.importorskip("flatbuffers", reason="jax.export needs it to write bytes")

# The order in which shards add the rows of a bag differs from one device's.
ROUNDING = 1e-6
BOUND = 43  # the devices do not share it equally


@pytest.fixture(autouse=True, scope="module")
def quick_compilation():
    """Less optimization: each program over eight devices runs once or twice."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def all_shardings() -> list[jde.TableConfig]:
    """Unknown ids draw rows, which depend on the seed, the table and the column."""
    adam, drawn = jde.optim.adam(0.1), jde.initializers.normal()
    options = {"optimizer": adam, "eval_initializer": drawn}
    wise = [
        jde.TableConfig(f"place{n}", 4, 1024, sharding="table_wise", **options)
        for n in range(3)
    ]
    return [
        jde.TableConfig("rows", 4, 1024, pooling="mean", **options),
        jde.TableConfig(
            "columns",
            32,
            1024,
            sharding="column_wise",
            dtype="bfloat16",
            pooling="sum",
            optimizer=jde.optim.sgd(0.1),
            eval_initializer=drawn,
        ),
        jde.TableConfig(
            "copies", 3, 1024, sharding="replicated", key_dtype="int32", **options
        ),
        *wise,
    ]


def batch(seed: int, size: int) -> dict[str, jax.Array]:
    rng = np.random.default_rng(seed)

    def some(*shape: int) -> np.ndarray:
        return rng.integers(-1, 1500, shape)

    ids = {"rows": jde.ids(some(size, 3)), "columns": jde.ids(some(size, 2))}
    ids |= {f"place{n}": jde.ids(some(size)) for n in range(3)}
    return ids | {"copies": jnp.asarray(some(size), jnp.int32)}


def filled(mesh: Mesh, axis=None) -> tuple[jde.Tables, dict]:
    """Some lookups, in which rows are evicted; rows differ by key, table and column."""
    coll = jde.Tables(all_shardings(), mesh=mesh, axis=axis)
    look_up = jax.jit(lambda state, ids: coll.lookup(state, ids)[2])
    state = coll.init(seed=7)
    for number in range(5):
        state = look_up(state, batch(number, 400))
    assert all(coll.stats(state)[f"{name}/evicted"] > 0 for name in coll.tables)
    return coll, state


@pytest.fixture(scope="module")
def eight():
    return filled(mesh_of(8))


def assert_equal(answer, expected) -> None:
    """Rows, and which ids were found, by feature."""
    rows, found = expected
    jax.tree.map(np.testing.assert_array_equal, answer[1], found)
    for feature, row in rows.items():
        tolerance = ROUNDING if feature == "rows" else 0.0
        np.testing.assert_allclose(
            answer[0][feature], row, rtol=tolerance, atol=tolerance
        )


def finds(coll: jde.Tables):
    def find(tables, ids):
        rows, found, _ = coll.find(tables, ids)
        return {n: x.astype(jnp.float32) for n, x in rows.items()}, found

    return find


@functools.cache
def found_on_mesh(coll: jde.Tables):
    """One program for all tests: always for batches of ``BOUND``."""
    return jax.jit(finds(coll))


# ---- one device ----------------------------------------------------------------------


@pytest.mark.slow
def test_a_fresh_process_serves_all_shardings_on_one_device(eight, tmp_path):
    coll, state = eight
    served, tables = jde.export.frozen(coll, state)
    data = jde.export.program(
        finds(served),
        tables,
        batch(50, 4),
        shapes=(None, "b, ..."),
        constraints=[f"b <= {BOUND}"],
    )
    ids = batch(60, BOUND)
    expected = found_on_mesh(coll)(state, ids)
    sizes = (1, 7, BOUND)
    answers = serve(tmp_path, data, tables, [first(ids, size) for size in sizes])
    for size, answer in zip(sizes, answers, strict=True):
        answer = jax.tree.unflatten(jax.tree.structure(expected), answer)
        assert_equal(answer, first(expected, size))


def first(tree, size: int):
    return jax.tree.map(lambda x: x[:size], tree)


@pytest.mark.parametrize(
    ("explicit", "axis"), [(True, "data"), (False, ("data", "model"))]
)
def test_meshes_of_two_axes(explicit, axis):
    coll, state = filled(grid(explicit), axis)
    served, tables = jde.export.frozen(coll, state)
    ids = batch(70, 40)
    assert_equal(finds(served)(tables, ids), found_on_mesh(coll)(state, ids))


def test_the_arrays_are_those_of_one_device(eight):
    """The same rows by key; row-wise ones lie where one device would have put them."""
    coll, state = eight
    served, tables = jde.export.frozen(coll, state)
    for name in coll.tables:
        keys, wanted = rows_by_key(served, tables, name), rows_by_key(coll, state, name)
        assert keys.keys() == wanted.keys() and len(keys) > 900
        assert all((keys[k] == wanted[k]).all() for k in keys)
    whole = np.asarray(state["rows"].index)
    np.testing.assert_array_equal(np.asarray(tables["rows"].index), whole)


def rows_by_key(coll: jde.Tables, state: dict, name: str) -> dict[int, np.ndarray]:
    rows = {}
    for chunk in coll.export(state, name):
        rows |= zip(chunk.keys.tolist(), chunk.rows, strict=True)
    return rows


def test_arrays_of_another_table_are_refused(eight):
    """Joined ones know their names, as those of one device do."""
    coll, state = eight
    served, tables = jde.export.frozen(coll, state)
    swapped = tables | {"place0": tables["place1"], "place1": tables["place0"]}
    with pytest.raises(ValueError, match="'place0'] holds the arrays of 'place1'"):
        served.find(swapped, batch(0, 4))


def test_slots_of_columns_may_differ(eight):
    """Each shard of a column-wise table may have its keys in other slots."""
    coll, state = eight
    ids = batch(80, BOUND)
    before = found_on_mesh(coll)(state, ids)
    state = {**state, "columns": shuffled(state["columns"], shards=8)}
    assert_equal(found_on_mesh(coll)(state, ids), before)
    served, tables = jde.export.frozen(coll, state)
    assert_equal(finds(served)(tables, ids), before)


def shuffled(table, shards: int):
    """Slots in another order in each bucket, by shard; the first one keeps its own."""
    rng, constants = np.random.default_rng(0), _ffi.constants()
    capacity = constants["bucket_capacity"]
    words, first = constants["slot_words"], constants["keys_word"]
    index, values = np.array(table.index), np.array(table.values)
    buckets = index.shape[0]
    digests = index[:, : capacity // 4].view(np.uint8)
    entries = index[:, first : first + words * capacity]
    entries = entries.reshape(buckets, capacity, words)
    rows = values.reshape(buckets, capacity, -1)
    for bucket in range(buckets // shards, buckets):
        order = rng.permutation(capacity)
        digests[bucket] = digests[bucket][order]
        entries[bucket], rows[bucket] = entries[bucket][order], rows[bucket][order]
    index[:, : capacity // 4] = digests.view(np.uint32)
    index[:, first : first + words * capacity] = entries.reshape(buckets, -1)
    return dataclasses.replace(
        table,
        index=jax.device_put(index, table.index.sharding),
        values=jax.device_put(values, table.values.sharding),
    )


def test_devices_and_copies(eight):
    coll, state = eight
    other = jax.devices("cpu")[5]
    _, tables = jde.export.frozen(coll, state, device=other)
    assert {x.device for x in jax.tree.leaves(tables)} == {other}
    first = jax.devices("cpu")[0]
    _, tables = jde.export.frozen(coll, state)
    assert {x.device for x in jax.tree.leaves(tables)} == {first}
    # A copy that lies there already is not copied again.
    shard = state["copies"].values.addressable_shards[0].data
    pointer = tables["copies"].values.unsafe_buffer_pointer()
    assert pointer == shard.unsafe_buffer_pointer()


def test_a_device_is_for_tables_of_a_mesh(eight):
    coll, state = eight
    device = jax.devices("cpu")[1]
    one = jde.Tables([jde.TableConfig("t", 4, 500)])
    with pytest.raises(ValueError, match=r"leave device out"):
        jde.export.frozen(one, one.init(), device=device)
    with pytest.raises(ValueError, match=r"leave device out"):
        jde.export.frozen(coll, state, device=device, on_mesh=True)


def test_rows_on_another_process(eight, monkeypatch):
    coll, state = eight
    here = HashEngine.shards
    monkeypatch.setattr(HashEngine, "shards", lambda *given: here(*given)[:3])
    with pytest.raises(ValueError, match=r"'rows' .* 3 of its 8 parts.*on_mesh=True"):
        jde.export.frozen(coll, state)


# ---- the same mesh -------------------------------------------------------------------


def test_a_fresh_process_serves_the_same_mesh(eight, tmp_path):
    coll, state = eight
    served, tables = jde.export.frozen(coll, state, on_mesh=True)
    assert not any(arrays.optimizer for arrays in tables.values())
    ids = batch(90, BOUND)
    data = jde.export.program(finds(served), tables, ids)
    assert jde.export.load_program(data).nr_devices == 8
    (answer,) = serve(tmp_path, data, tables, [ids], devices=8)
    expected = found_on_mesh(coll)(state, ids)
    assert_equal(jax.tree.unflatten(jax.tree.structure(expected), answer), expected)


def test_a_mesh_takes_static_sizes(eight):
    coll, state = eight
    served, tables = jde.export.frozen(coll, state, on_mesh=True)
    with pytest.raises(ValueError, match=r"static size.*jde\.export\.frozen"):
        jde.export.program(
            finds(served),
            tables,
            batch(0, 8),
            shapes=(None, "b, ..."),
            constraints=["b <= 16"],
        )
