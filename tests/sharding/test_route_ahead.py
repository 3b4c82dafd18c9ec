# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A loop that routes batches ahead trains as the plain loop, bit for bit."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

import jax_dynemb as jde
from meshes import collectives, grid, mesh_of
from support import assert_same_rows, export

UNIFORM = jde.initializers.uniform(-0.1, 0.1)
STEPS = 4


def table(name, **options):
    common = {"dim": 8, "capacity": 2048, "initializer": UNIFORM}
    return jde.TableConfig(name, **{**common, **options})


def batches(make, steps=STEPS):
    return [make(np.random.default_rng(step)) for step in range(steps)]


def loss(rows):
    return sum(jnp.sum(x.astype(jnp.float32) ** 2) for x in rows.values())


def update(coll, state, rows, residual):
    return coll.apply_gradients(state, residual, jax.grad(loss)(rows))


def plain(coll, given):
    @functools.partial(jax.jit, donate_argnums=0)
    def step(state, ids, weights):
        rows, residual, state = coll.lookup(state, ids, weights)
        return update(coll, state, rows, residual), rows

    state, out = coll.init(0), []
    for ids, weights in given:
        state, rows = step(state, ids, weights)
        out.append(rows)
    return state, out


def pipelined(coll, given):
    @functools.partial(jax.jit, donate_argnums=0)
    def step(state, routed, ids, weights):
        rows, residual, state = coll.lookup(state, routed)
        ahead = coll.route(ids, weights)
        return update(coll, state, rows, residual), ahead, rows

    state, out = coll.init(0), []
    routed = jax.jit(coll.route)(*given[0])
    for ids, weights in [*given[1:], given[0]]:
        state, routed, rows = step(state, routed, ids, weights)
        out.append(rows)
    return state, out


def assert_equal_bits(coll, given):
    state, rows = plain(coll, given)
    other, again = pipelined(coll, given)
    assert coll.stats(other) == coll.stats(state)
    for one, two in zip(rows, again, strict=True):
        assert list(one) == list(two)
        for feature in one:
            np.testing.assert_array_equal(two[feature], one[feature])
    for name in coll.engine.catalog.dynamic:
        assert_same_rows(export(coll, other, name), export(coll, state, name))
    return coll.stats(state)


def ids_of(rng, shape=(64,), high=500):
    return jde.ids(rng.integers(-1, high, shape))


@pytest.mark.parametrize("strategy", ["step", "lfu"])
def test_rows_travel(strategy):
    coll = jde.Tables(
        [table(n, score_strategy=strategy, dim=d) for n, d in (("a", 8), ("b", 12))],
        mesh=mesh_of(8),
    )
    assert_equal_bits(coll, batches(lambda r: ({n: ids_of(r) for n in "ba"}, None)))


@pytest.mark.slow
def test_further_rounds():
    coll = jde.Tables(
        [table("a", score_strategy="lfu", optimizer=jde.optim.adam(0.1))],
        mesh=mesh_of(8),
        exchange_factor=0.05,
    )
    given = batches(lambda r: ({"a": ids_of(r, (2048,), 10**9)}, None), 3)
    assert assert_equal_bits(coll, given)["a/exchange_overflows"] == 3


@pytest.mark.parametrize("travels", ["rows", "sums"])
def test_pooled_features_with_weights(travels):
    coll = jde.Tables(
        [table("a", pooling="sum"), table("b", pooling="mean")],
        mesh=mesh_of(8),
        exchange_pooled=travels,
    )

    def make(rng):
        ids = {n: ids_of(rng, (16, 3)) for n in "ab"}
        return ids, {"a": rng.random((16, 3), np.float32)}

    assert_equal_bits(coll, batches(make))


def test_jagged_features_and_a_batch_that_does_not_divide():
    coll = jde.Tables([table("a", pooling="sum"), table("b")], mesh=mesh_of(8))

    def make(rng):
        lengths = rng.integers(0, 4, 11).astype(np.int32)
        bags = jde.Jagged(jde.ids(rng.integers(0, 99, 40)), jnp.asarray(lengths))
        return {"a": bags, "b": ids_of(rng, (13,))}, None

    assert_equal_bits(coll, batches(make))


@pytest.mark.slow
def test_every_strategy_in_one_collection():
    kinds = ("row_wise", "column_wise", "replicated")
    tables = [table(kind, sharding=kind, dim=32) for kind in kinds]
    small = [table(f"t{n}", sharding="table_wise", pooling="sum") for n in range(9)]
    coll = jde.Tables([*tables, *small], mesh=mesh_of(8))

    def make(rng):
        shapes = {name: (16, 2) if name[0] == "t" else (16,) for name in coll.tables}
        return {n: ids_of(rng, shape, 99) for n, shape in shapes.items()}, None

    assert_equal_bits(coll, batches(make))


def test_with_a_tensor_train_and_its_residual():
    zeros = jde.initializers.zeros()
    residual = table("r", dim=16, initializer=zeros)
    sgd = jde.optim.sgd(0.1)
    train = jde.TTConfig("tt", 16, 64, (4, 4), residual=residual, optimizer=sgd)
    coll = jde.Tables([train, table("a")], mesh=mesh_of(8))

    def make(rng):
        return {"tt": ids_of(rng, (16,), 64), "a": ids_of(rng, (16,))}, None

    assert_equal_bits(coll, batches(make))


def test_one_device_just_holds_the_batch():
    coll = jde.Tables([table("a")])
    given = batches(lambda r: ({"a": ids_of(r)}, None))
    assert_equal_bits(coll, given)
    assert coll.route(given[0][0]).sent is None


def test_inside_a_shard_map():
    mesh = mesh_of(8)
    coll = jde.Tables([table("a")], mesh=mesh)
    inner = jde.Tables([table("a")], axis_name="data")
    split, specs = PartitionSpec("data"), inner.partition_specs()
    ids = jde.ids(np.random.default_rng(0).integers(0, 500, 64))
    state, (rows,) = plain(coll, [({"a": ids}, None)])

    def step(state, ids):
        rows, residual, state = inner.lookup(state, inner.route({"a": ids}))
        return update(inner, state, rows, residual), rows["a"]

    run = jax.shard_map(
        step, mesh=mesh, in_specs=(specs, split), out_specs=(specs, split)
    )
    other, again = jax.jit(run)(coll.init(0), ids)
    np.testing.assert_array_equal(again, rows["a"])
    assert_same_rows(export(coll, other, "a"), export(coll, state, "a"))


def test_explicit_axes():
    coll = jde.Tables([table("a"), table("b", sharding="replicated")], mesh=grid(True))
    given = batches(lambda r: ({n: ids_of(r) for n in "ab"}, None), 2)
    assert_equal_bits(coll, given)


@pytest.mark.collectives
def test_the_lookup_of_a_routed_batch_sends_no_ids():
    coll = jde.Tables([table("a")], mesh=mesh_of(8))
    state, ids = coll.init(0), {"a": jde.ids(np.arange(64))}

    def count(function, *arguments):
        text = jax.jit(function).lower(*arguments).compile().as_text()
        assert text is not None
        return collectives(text)[0]["all-to-all"]

    routed = coll.route(ids)
    assert count(coll.route, ids) == 1
    assert count(coll.lookup, state, ids) == 2
    assert count(coll.lookup, state, routed) == 1


def test_mistakes_are_named():
    coll = jde.Tables([table("a", pooling="sum")], mesh=mesh_of(8))
    other = jde.Tables([table("a", pooling="sum", dim=4)], mesh=mesh_of(8))
    ids = {"a": jde.ids(np.zeros((8, 2), np.int64))}
    with pytest.raises(ValueError, match="Route it again"):
        coll.lookup(coll.init(0), other.route(ids))
    with pytest.raises(ValueError, match="coll.route\\(ids, weights\\)"):
        coll.lookup(coll.init(0), coll.route(ids), {"a": np.ones((8, 2))})
    with pytest.raises(ValueError, match="did you mean"):
        coll.route({"aa": ids["a"]})


@pytest.mark.collectives
def test_few_arrays_cross_the_boundary_of_a_step():
    names = [f"t{n}" for n in range(6)]
    coll = jde.Tables([table(name) for name in names], mesh=mesh_of(8))
    ids = {name: jde.ids(np.arange(64).reshape(16, 4)) for name in names}
    routed = jax.jit(coll.route)(ids)
    # All ids; what owners got; three of the route; whether and how much fits. Between
    # peers the order of the route too.
    assert coll.placement is not None
    peers = bool(coll.placement.links.peers)
    assert len(jax.tree.leaves(routed)) == 7 + peers
    for name in names:
        np.testing.assert_array_equal(routed.ids[name], ids[name])
    odd = coll.route({**ids, "t0": jde.ids(np.arange(9))})
    assert odd.given["t0"].shape == (9, 2) and odd.given["t1"] is None
