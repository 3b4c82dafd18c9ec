# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Columns of a table on all shards: the oracle is one device."""

import jax
import numpy as np
import optax
import pytest

import jax_dynemb as jde
from meshes import grid, mesh_of
from support import (
    HostJagged,
    Twins,
    assert_optax_equals_one_device,
    gradients,
)

TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}


def column_wise(name: str, **options) -> jde.TableConfig:
    common = {"dim": 32, "capacity": 256, "sharding": "column_wise"}
    return jde.TableConfig(name, **{**common, **options})


def mixed(optimizer) -> list[jde.TableConfig]:
    """Sequences, padded and jagged bags, beside all other shardings."""
    common = {"optimizer": optimizer, "capacity": 1024}
    whole = {"initializer": jde.initializers.normal(0.1), "sharding": "table_wise"}
    return [
        column_wise("seq", dim=64, feature_names=("a", "b"), optimizer=optimizer),
        column_wise("sum", pooling="sum", optimizer=optimizer),
        column_wise("mean", pooling="mean", optimizer=optimizer),
        jde.TableConfig("rows", dim=3, pooling="sum", **common),
        jde.TableConfig("copy", dim=5, sharding="replicated", **common),
        jde.TableConfig("t0", dim=4, **whole, **common),
        jde.TableConfig("t1", dim=4, **whole, **common),
    ]


def batch(seed: int, size: int) -> tuple[dict, dict]:
    rng = np.random.default_rng(seed)
    bags = [list(rng.integers(0, 60, n)) for n in rng.integers(0, 4, size)]
    ids = {
        "a": rng.zipf(1.3, size) % 100,
        "b": rng.integers(-1, 100, (size, 2)),
        "sum": rng.integers(-1, 60, (size, 3)),
        "mean": HostJagged.of(bags, capacity=4 * size),
        "rows": rng.integers(-1, 60, (size, 2)),
        **{name: rng.integers(-1, 60, size) for name in ("copy", "t0", "t1")},
    }
    return ids, {"sum": rng.random((size, 3)), "mean": rng.random(4 * size)}


def train(twins: Twins, steps: int, size: int) -> None:
    for step in range(steps):
        ids, weights = batch(step, size)
        twins.train(ids, weights, seed=step)
    twins.find(ids)
    twins.check(TOLERANCE)


@pytest.mark.parametrize(
    "optimizer",
    [jde.optim.adam(0.01), jde.optim.rowwise_adagrad(optax.linear_schedule(0.1, 0, 9))],
    ids=["adam", "rowwise_adagrad"],
)
def test_equals_one_device(optimizer):
    train(Twins(*mixed(optimizer), mesh=mesh_of(8)), 6, 11)


def test_two_axes_and_another_mesh():
    train(Twins(*mixed(jde.optim.adagrad(0.1)), mesh=grid(), axis="data"), 2, 9)


def test_insert_erase_export_clear_and_weight_gradients():
    optimizer = jde.optim.rowwise_adagrad(0.1)
    table = column_wise("t", dim=16, pooling="mean", optimizer=optimizer)
    twins = Twins(table, mesh=mesh_of(4))
    keys = np.array([5, 6, 7, 5, *range(100, 140)])
    rows = {"t": gradients((len(keys), 16), 1)}
    state = {"t": {"sum_of_squares": np.arange(len(keys), dtype=np.float32)}}
    twins.insert({"t": keys}, rows, state, {"t": np.arange(1, len(keys) + 1)})
    twins.erase({"t": [6, 101, 9999]})
    twins.check()
    late = list(twins.coll.export(twins.state, "t", min_score=30))
    assert sum(len(chunk.keys) for chunk in late) == len(keys) - 29
    rng = np.random.default_rng(0)
    ids, weights = {"t": rng.choice(keys, (6, 3))}, {"t": rng.random((6, 3))}
    rows, residuals = twins.lookup(ids, weights)
    d_rows = {"t": gradients(rows["t"].shape, 2)}
    twins.weight_gradients(residuals, d_rows)
    twins.apply(residuals, d_rows)
    twins.check(TOLERANCE)
    twins.state = jax.jit(twins.coll.clear)(twins.state)
    twins.oracle.clear()
    twins.lookup(ids)  # initial rows of every column again
    twins.check()


def test_micro_batches_and_the_norm_of_whole_rows():
    tables = [column_wise("t", optimizer=jde.optim.adam(0.1), pooling="mean")]
    twins = Twins(*tables, mesh=mesh_of(4))
    bags = [[1, 2], [], [2, 2, 3], [9], [1], []]
    ids = {"t": HostJagged.of(bags, capacity=12)}
    pairs = [twins.lookup(ids)[1] for _ in range(2)]
    d_rows = [{"t": gradients((6, 32), i)} for i in range(2)]
    ours, theirs = ([pair[i] for pair in pairs] for i in range(2))

    @jax.jit
    def update(state, residuals, d_rows):
        clipped = jde.optim.clip_by_global_norm(
            1e9, twins.coll, state, residuals, d_rows
        )
        return twins.coll.apply_gradients(
            clipped.state, residuals, d_rows
        ), clipped.norm

    twins.state, norm = update(twins.state, ours, d_rows)
    sums: dict[int, np.ndarray] = {}
    for bag, rows in zip(bags, sum(d["t"] for d in d_rows), strict=True):
        for key in bag:
            sums[key] = sums.get(key, 0) + rows / len(bag)
    squares = sum(float(np.sum(row**2)) for row in sums.values())
    np.testing.assert_allclose(norm, squares**0.5, rtol=1e-6)
    twins.oracle.apply_gradients(theirs, d_rows)
    twins.check(TOLERANCE)


def test_rows_leave_together():
    """Small buckets that overflow: every part gives up the same keys."""
    options = {"dim": 16, "capacity": 256}
    tables = [
        column_wise("evicts", **options),
        column_wise("lfu", score_strategy="lfu", **options),
        column_wise("refuses", on_full="refuse", **options),
    ]
    twins = Twins(*tables, mesh=mesh_of(4))
    rng = np.random.default_rng(0)
    for step in range(3):
        ids = {t.name: rng.integers(0, 1000, 160) for t in tables}
        twins.train(ids, seed=step)
    stats = twins.coll.stats(twins.state)
    assert stats["evicts/evicted"] > 0 and stats["refuses/refused"] > 0
    twins.check(TOLERANCE)


def test_element_wise_optax_runs_on_pieces_of_rows():
    tables = [column_wise(n, optimizer=optax.adamw(0.01)) for n in "ab"]
    assert_optax_equals_one_device(tables, mesh_of(8))


def by_rows(updates, state, params=None):
    return updates / np.float32(1e-6) + abs(updates).max(axis=1, keepdims=True), state


@pytest.mark.parametrize(
    ("options", "devices", "fix"),
    [
        ({"dim": 24}, 8, "a multiple of 32"),
        (
            {"optimizer": optax.GradientTransformation(lambda p: (), by_rows)},
            2,
            "element-wise",
        ),
    ],
)
def test_mistakes_are_refused(options, devices, fix):
    with pytest.raises(ValueError, match=fix):
        jde.Tables([column_wise("t", **options)], mesh=mesh_of(devices))


@pytest.mark.parametrize("optimizer", [jde.optim.adagrad(0.1), optax.sgd(0.1)])
def test_devices_skip_the_same_rows(optimizer):
    """A number that is not finite is in the columns of one device."""
    rows = np.ones((4, 32), np.float32)
    rows[1, 31], rows[2, 0] = np.nan, np.inf
    d_rows = np.ones((4, 32), np.float32)
    d_rows[0, 17], d_rows[3, 5] = np.nan, np.inf
    ids = {"t": jde.ids(np.arange(4))}
    results = []
    for mesh in (None, mesh_of(4)):
        coll = jde.Tables([column_wise("t", optimizer=optimizer)], mesh)
        state = coll.insert(coll.init(0), ids, {"t": rows})
        found = coll.find(state, ids)[1]["t"]
        np.testing.assert_array_equal(found, [True, False, False, True])
        assert coll.stats(state)["t/rows"] == coll.stats(state)["t/nonfinite"] == 2
        _, residual, state = coll.lookup(state, ids)
        state = coll.apply_gradients(state, residual, {"t": d_rows})
        assert coll.stats(state)["t/nonfinite"] == 4
        results.append(coll.find(state, ids)[0]["t"])
    np.testing.assert_allclose(results[1], results[0], rtol=1e-6)
    assert (np.asarray(results[1])[[0, 3]] == 1).all()
