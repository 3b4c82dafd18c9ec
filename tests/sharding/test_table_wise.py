# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Whole tables on single shards: the oracle is one device."""

import enum

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import jax_dynemb as jde
from meshes import grid, mesh_of
from support import (
    HostJagged,
    Twins,
    assert_optax_equals_one_device,
    gradients,
)

TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}
UNIFORM = jde.initializers.uniform(-0.1, 0.1)


def table_wise(name: str, **options) -> jde.TableConfig:
    common = {"dim": 4, "capacity": 1024, "sharding": "table_wise"}
    return jde.TableConfig(name, **{**common, "initializer": UNIFORM, **options})


def mixed(optimizer) -> list[jde.TableConfig]:
    """Eight table-wise tables of two shapes, a row-wise and a replicated one."""
    options = {"optimizer": optimizer}
    wide = [table_wise(f"w{n}", dim=6, capacity=2048, **options) for n in range(3)]
    sums = [table_wise(f"s{n}", pooling="sum", **options) for n in range(3)]
    means = [table_wise(f"m{n}", pooling="mean", **options) for n in range(2)]
    rows = jde.TableConfig("rows", dim=3, capacity=1024, **options)
    copy = jde.TableConfig(
        "copy", dim=5, capacity=1024, sharding="replicated", **options
    )
    return [*wide, *sums, rows, *means, copy]


def batch(seed: int, size: int) -> tuple[dict, dict]:
    """Ids of every feature, the same keys in all tables, and weights of some."""
    rng = np.random.default_rng(seed)
    ids, weights = {}, {}
    for name in ("w0", "w1", "w2", "rows", "copy"):
        ids[name] = rng.integers(-1, 80, (size, 2))
    for n in range(3):
        ids[f"s{n}"] = rng.integers(-1, 60, (size, n + 1))
        weights[f"s{n}"] = rng.random((size, n + 1))
    for n in range(2):
        bags = [list(rng.integers(0, 60, n)) for n in rng.integers(0, 4, size)]
        ids[f"m{n}"] = HostJagged.of(bags, capacity=4 * size)
    return ids, weights


def train(twins: Twins, steps: int, size: int) -> None:
    for step in range(steps):
        ids, weights = (
            {name: x for name, x in each.items() if name in twins.coll.features}
            for each in batch(step, size)
        )
        twins.train(ids, weights, seed=step)
    twins.find(ids)
    twins.check(TOLERANCE)


@pytest.mark.slow
def test_equals_one_device():
    train(Twins(*mixed(jde.optim.adam(0.01)), mesh=mesh_of(8)), 6, 11)


def test_another_mesh():
    tables = mixed(jde.optim.rowwise_adagrad(0.1))[:7]
    train(Twins(*tables, mesh=mesh_of(4)), 2, 8)


def test_two_axes_and_replicas():
    tables = mixed(jde.optim.sgd(0.1))
    train(Twins(*tables[1:6], mesh=grid(), axis="model"), 2, 8)
    coll = jde.Tables(tables, mesh=grid())
    assert {t.devices for t in coll.plan().tables[:3]} == {4, 8}


def test_tables_that_are_not_looked_up_stay_as_they_are():
    """Adam counts the steps of each table, and so do clocks and lookups."""
    tables = [table_wise(f"t{n}", optimizer=jde.optim.adam(0.1)) for n in range(4)]
    twins = Twins(*tables, mesh=mesh_of(4))
    for step, names in enumerate([("t0", "t1"), ("t0",), ("t1", "t2", "t3"), ("t3",)]):
        ids = {name: np.arange(step, 40) for name in names}
        twins.train(ids, seed=step)
    twins.check(TOLERANCE)
    scores = twins.coll.get_score(twins.state)
    assert scores == {"t0": 3, "t1": 3, "t2": 2, "t3": 3}
    twins.state = twins.coll.set_score(twins.state, {"t1": 70})
    assert twins.coll.get_score(twins.state) == scores | {"t1": 70}


def test_learning_rates_by_table():
    tables = [table_wise(f"t{n}", optimizer=jde.optim.sgd(1.0)) for n in range(2)]
    coll = jde.Tables(tables, mesh=mesh_of(2))
    ids = {name: jde.ids([1, 2, 3, 4]) for name in ("t0", "t1")}
    d_rows = {name: np.ones((4, 4), np.float32) for name in ids}

    @jax.jit
    def step(state, ids):
        before, residual, state = coll.lookup(state, ids)
        rates = {"t1": 0.25}
        state = coll.apply_gradients(state, residual, d_rows, learning_rate=rates)
        return before, coll.find(state, ids)[0]

    before, after = step(coll.init(0), ids)
    for name, rate in [("t0", 1.0), ("t1", 0.25)]:
        np.testing.assert_allclose(after[name], before[name] - rate, rtol=1e-6)


def test_insert_erase_export_and_clear():
    options = {"optimizer": jde.optim.adagrad(0.1), "dim": 2}
    twins = Twins(*(table_wise(n, **options) for n in "abc"), mesh=mesh_of(4))
    keys = np.array([5, 6, 7, 5, *range(100, 300)])
    rows = {name: gradients((len(keys), 2), n) for n, name in enumerate("ac")}
    scores = {name: np.arange(1, len(keys) + 1) for name in "ac"}
    state = {name: {"sum_of_squares": np.abs(rows[name])} for name in "ac"}
    twins.insert(dict.fromkeys("ac", keys), rows, state, scores)
    twins.check()
    twins.erase({"a": [6, 101, 9999], "b": [5], "c": [7]})
    twins.lookup({"b": keys[:50], "c": keys[:50]})
    twins.check()
    twins.state = jax.jit(twins.coll.clear)(twins.state)
    twins.oracle.clear()
    twins.lookup({"a": keys[:50]})
    twins.check()


@pytest.mark.slow
def test_nothing_is_dropped_at_any_skew():
    """LFU, timestamps and refusals; sections with room for a tenth of the ids."""
    options = {"dim": 3, "capacity": 4096}
    lfu = [table_wise(f"l{n}", score_strategy="lfu", **options) for n in range(2)]
    time = [table_wise(f"t{n}", score_strategy="timestamp", **options) for n in "ab"]
    full = [table_wise(f"f{n}", dim=2, on_full="refuse") for n in range(2)]
    twins = Twins(*lfu, *time, *full, mesh=mesh_of(2), exchange_factor=0.1)
    rng = np.random.default_rng(0)
    for distinct in (3, 3000):
        ids = {t.name: rng.integers(0, distinct, 1200) for t in [*lfu, *time]}
        ids["f0"] = rng.permutation(1500)[:1200]  # refused ids are counted by device
        ids["f1"] = np.full(1200, 7)
        twins.train(ids, seed=0)
        twins.find(ids)
    twins.check(TOLERANCE)
    stats = twins.coll.stats(twins.state)
    assert stats["l0/exchange_overflows"] > 0 and stats["f0/refused"] > 0


def test_weight_gradients_and_micro_batches():
    tables = [table_wise(n, pooling="mean", dim=3) for n in "ab"]
    twins = Twins(*tables, mesh=mesh_of(4))
    rng = np.random.default_rng(1)
    ids = {n: rng.integers(-1, 30, (11, 3)) for n in "ab"}
    weights = {n: rng.random((11, 3)) for n in "ab"}
    rows, residuals = twins.lookup(ids, weights)
    d_rows = {f: gradients(x.shape, 2) for f, x in rows.items()}
    twins.weight_gradients(residuals, d_rows)
    more = twins.lookup(ids, weights)[1]
    ours, theirs = ([pair[i] for pair in (residuals, more)] for i in range(2))
    update = jax.jit(twins.coll.apply_gradients)
    twins.state = update(twins.state, ours, [d_rows, d_rows])
    twins.oracle.apply_gradients(theirs, [d_rows, d_rows])
    twins.check(TOLERANCE)


def stacks_of(tables: list[jde.TableConfig], devices: int) -> dict[str, int]:
    """The devices of each table."""
    plan = jde.Tables(tables, mesh=mesh_of(devices)).plan()
    return {t.table: t.devices for t in plan.tables}


def test_what_does_not_come_out_even_is_spread_and_no_memory_is_idle():
    tables = [table_wise(f"t{n}", pooling_factors=(n + 1,)) for n in range(7)]
    assert stacks_of(tables[:1], 4) == {"t0": 4}
    assert stacks_of(tables[:3], 4) == {"t0": 2, "t1": 2, "t2": 4}
    busy = {"t4": 2, "t5": 2, "t6": 4}  # the busy ones get more devices
    assert stacks_of(tables, 4) == {**{f"t{n}": 1 for n in range(4)}, **busy}
    plan = jde.Tables(tables, mesh=mesh_of(4)).plan()
    alone = jde.Tables(tables).plan()
    assert sum(plan.bytes_by_shard) == sum(alone.bytes_by_shard)


def test_tables_are_placed_so_that_devices_have_equally_much_to_do():
    factors = {f"t{n}": float(f) for n, f in enumerate([9, 5, 4, 1, 8, 5, 3, 2])}
    tables = [table_wise(n, pooling_factors=(f,)) for n, f in factors.items()]
    plan = jde.Tables(tables, mesh=mesh_of(4)).plan()
    loads = [0.0] * 4
    for each in plan.tables:
        (shard,) = each.shards
        loads[shard] += factors[each.table]
    assert max(loads) - min(loads) <= 2 and sum(loads) == 37


def test_a_table_smaller_than_the_mesh_and_names_of_torchrec():
    class ShardingType(enum.Enum):
        TABLE_WISE = "table_wise"

    small = [
        table_wise(n, capacity=256, sharding=s)
        for n, s in [("a", "TABLE_WISE"), ("b", ShardingType.TABLE_WISE)]
    ]
    assert {t.sharding for t in small} == {"table_wise"}
    assert stacks_of(small, 8) == {"a": 2, "b": 2}  # of two buckets: on two at most
    assert (
        jde.TableConfig("c", 8, 99, sharding="DATA_PARALLEL").sharding == "replicated"
    )


@pytest.mark.parametrize(
    ("options", "fix"),
    [
        ({"sharding": "grid_shard"}, "must be one of"),
        ({"pooling_factors": (1.0, 2.0)}, "for each of the features"),
        ({"pooling_factors": (0,)}, "above 0"),
    ],
)
def test_mistakes_are_refused(options, fix):
    with pytest.raises(ValueError, match=fix):
        table_wise("t", **options)


def test_a_name_that_shared_arrays_have():
    tables = [table_wise("a"), table_wise("b"), table_wise("a+1", dim=8)]
    with pytest.raises(ValueError, match="rename"):
        jde.Tables(tables, mesh=mesh_of(2))


def test_optax_optimizers_that_count_are_spread():
    """A number that is stored once for a table has no place of its own."""
    tables = [table_wise(n, optimizer=optax.adam(0.01)) for n in "ab"]
    assert stacks_of(tables, 2) == {"a": 2, "b": 2}
    assert_optax_equals_one_device(tables, mesh_of(2))


def test_modules_of_flax():
    """With weights a collection looks up other rows than its tables pool."""
    names, losses = ("a", "b", "c"), []
    for mesh in (None, mesh_of(2)):
        tables = [table_wise(n, optimizer=jde.optim.sgd(0.02)) for n in names]
        sparse = jde.nnx.EmbeddingBagCollection(tables, rngs=nnx.Rngs(0), mesh=mesh)
        optimizer = jde.nnx.Optimizer(sparse, optax.sgd(0.1))

        @jde.nnx.jit
        def step(sparse, optimizer, ids, weights):
            def loss_of(sparse):
                rows = sparse(ids, weights)
                return sum(((x - 1) ** 2).sum() for x in rows.values())

            loss, grads = jde.nnx.value_and_grad(loss_of)(sparse)
            optimizer.update(sparse, grads)
            return loss

        rng = np.random.default_rng(0)
        ids = {n: jde.ids(rng.integers(0, 20, (8, 2))) for n in names}
        weights = {"a": jnp.asarray(rng.random((8, 2)), jnp.float32)}
        losses.append([float(step(sparse, optimizer, ids, weights)) for _ in range(3)])
        assert sparse.stats()["b/step"] == 3
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)
    assert losses[0][2] < losses[0][0]
