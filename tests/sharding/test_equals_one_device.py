# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The oracle is one device: a mesh must hold and return the same."""

import dataclasses

import jax
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import jax_dynemb as jde
from meshes import grid, keys_of_shard, mesh_of
from support import HostJagged, Twins, gradients

OPTIMIZERS = [
    jde.optim.adam(0.01),
    jde.optim.rowwise_adagrad(0.1),
    jde.optim.sgd(0.1),
    jde.optim.adagrad(0.1),
]
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}


def tables(turn: int) -> tuple[jde.TableConfig, ...]:
    """Sequences, padded bags and jagged bags; dims from 1 to 12.

    Each has another optimizer; with ``turn`` they change places.
    """
    options = [
        {"name": "seq", "dim": 12, "feature_names": ("a", "b")},
        {"name": "sum", "dim": 4, "pooling": "sum"},
        {"name": "mean", "dim": 1, "pooling": "mean"},
        {"name": "copy", "dim": 5, "sharding": "replicated"},
    ]
    return tuple(
        jde.TableConfig(capacity=1024, optimizer=OPTIMIZERS[(n + turn) % 4], **each)
        for n, each in enumerate(options)
    )


def batch(seed: int, size: int) -> dict:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 5, size)
    return {
        "a": rng.zipf(1.3, size) % 300,
        "b": rng.integers(-1, 300, (size, 2)),
        "sum": rng.integers(-1, 200, (size, 3)),
        "mean": HostJagged.of(
            [list(rng.integers(0, 100, n)) for n in lengths], capacity=5 * size
        ),
        "copy": rng.integers(-1, 60, size),
    }


def train(twins: Twins, steps: int, size: int) -> None:
    for step in range(steps):
        rng = np.random.default_rng(step)
        ids = batch(step, size)
        weights = {"sum": rng.random((size, 3)), "mean": rng.random(5 * size)}
        twins.train(ids, weights, seed=step)
        twins.find(ids)
    twins.check(TOLERANCE)


@pytest.mark.slow
def test_fifty_steps():
    train(Twins(*tables(0), mesh=mesh_of(8)), 50, 16)


@pytest.mark.slow
def test_another_mesh_and_a_batch_that_does_not_divide():
    train(Twins(*tables(2), mesh=mesh_of(2)), 5, 13)


@pytest.mark.slow
def test_two_axes_at_once():
    train(Twins(*tables(3), mesh=grid()), 3, 9)


@pytest.mark.slow
def test_replicas_along_an_axis_that_is_not_used():
    train(Twins(*tables(2), mesh=grid(), axis="data"), 3, 16)


@pytest.mark.parametrize("devices", [1, 4])
def test_weight_gradients(devices):
    twins = Twins(*tables(0), mesh=mesh_of(devices))
    rng = np.random.default_rng(1)
    ids = {name: batch(0, 11)[name] for name in ("sum", "mean")}
    weights = {"sum": rng.random((11, 3)), "mean": rng.random(55)}
    rows, residuals = twins.lookup(ids, weights)
    d_rows = {f: gradients(x.shape, 2) for f, x in rows.items()}
    twins.weight_gradients(residuals, d_rows)
    twins.apply(residuals, d_rows)
    twins.check(TOLERANCE)


def test_one_id_and_an_empty_batch():
    twins = Twins(jde.TableConfig(name="t", dim=3, capacity=1024), mesh=mesh_of(8))
    _, residuals = twins.lookup({"t": np.int64(7)})
    twins.apply(residuals, {"t": np.ones(3)})
    _, residuals = twins.lookup({"t": np.zeros(0, np.int64)})
    twins.apply(residuals, {"t": np.zeros((0, 3))})
    twins.find({"t": np.int64(7)})
    twins.check()


@pytest.fixture(scope="module")
def crowded() -> Twins:
    """A table of each kind whose exchange has little room."""
    common = {"dim": 3, "capacity": 4096}
    return Twins(
        jde.TableConfig(name="adam", optimizer=jde.optim.adam(0.1), **common),
        jde.TableConfig(
            name="rows", optimizer=jde.optim.rowwise_adagrad(0.1), **common
        ),
        jde.TableConfig(name="lfu", score_strategy="lfu", pooling="sum", **common),
        jde.TableConfig(name="time", score_strategy="timestamp", **common),
        mesh=mesh_of(8),
        exchange_factor=0.1,
        exchange_pooled="rows",
    )


@pytest.mark.slow
@settings(max_examples=8, phases=[Phase.generate])
@given(st.integers(0, 7), st.sampled_from([1, 50, 500]), st.integers(0, 2**31))
def test_nothing_is_dropped_at_any_skew(crowded, shard, distinct, seed):
    rng = np.random.default_rng(seed)
    keys = np.array(keys_of_shard(shard, 8, distinct))
    ids = {name: rng.choice(keys, 640) for name in ("adam", "rows", "time")}
    ids["lfu"] = rng.choice(np.append(keys, -1), (320, 2))
    _, residuals = crowded.lookup(ids)
    shapes = {name: (640, 3) for name in ids} | {"lfu": (320, 3)}
    crowded.apply(residuals, {f: gradients(s, 0) for f, s in shapes.items()})
    crowded.find(ids)
    crowded.check(TOLERANCE)
    stats = crowded.coll.stats(crowded.state)
    for name in ids:
        peak, room = (stats[f"{name}/exchange_{x}"] for x in ("peak", "capacity"))
        assert room < 40 and (distinct < 500 or peak > room)
        assert (stats[f"{name}/exchange_overflows"] > 0) >= (distinct == 500)


@pytest.mark.parametrize("devices", [1, 4])
def test_micro_batches_are_one_update(devices):
    table = jde.TableConfig(
        name="t", dim=2, capacity=1024, optimizer=jde.optim.adam(0.1)
    )
    twins = Twins(table, mesh=mesh_of(devices))
    rng = np.random.default_rng(0)
    ids = [rng.integers(-1, 40, 12) for _ in range(2)]
    pairs = [twins.lookup({"t": x})[1] for x in ids]
    d_rows = [{"t": gradients((12, 2), i)} for i in range(2)]
    ours, theirs = ([pair[i] for pair in pairs] for i in range(2))
    # Not jitted, JAX would compile each operation of the update by itself.
    twins.state = jax.jit(twins.coll.apply_gradients)(twins.state, ours, d_rows)
    twins.oracle.apply_gradients(theirs, d_rows)
    twins.check(TOLERANCE)


def test_full_buckets_refuse_and_evict_as_on_one_device():
    evicts = jde.TableConfig(name="e", dim=2, capacity=1024)
    refuses = dataclasses.replace(
        evicts, name="r", feature_names=("r",), on_full="refuse"
    )
    twins = Twins(evicts, refuses, mesh=mesh_of(8))
    rng = np.random.default_rng(0)
    for _ in range(4):
        ids = rng.choice(5000, 1600, replace=False)
        twins.lookup({"e": ids, "r": ids})
    twins.check()
    stats = twins.coll.stats(twins.state)
    assert stats["e/evicted"] > 0 and stats["r/refused"] > 0


def test_insert_erase_export_and_clear():
    table = jde.TableConfig(
        name="t", dim=2, capacity=4096, optimizer=jde.optim.adagrad(0.1)
    )
    copy = dataclasses.replace(
        table, name="c", feature_names=("c",), sharding="replicated"
    )
    twins = Twins(table, copy, mesh=mesh_of(8))
    keys = np.array([5, 6, 7, 5, *range(100, 300)])
    rows = gradients((len(keys), 2), 1)
    scores = {name: np.arange(1, len(keys) + 1) for name in "tc"}
    state = {name: {"sum_of_squares": np.abs(rows)} for name in "tc"}
    twins.insert({n: keys for n in "tc"}, {n: rows for n in "tc"}, state, scores)
    twins.check()
    twins.insert({"t": keys[4:90]}, {"t": rows[90:4:-1]}, unique_ids=True)
    twins.check()
    twins.erase({"t": [6, 101, 9999], "c": [7]})
    twins.lookup({"t": keys[:50], "c": keys[:50]})
    twins.check()
    twins.state = jax.jit(twins.coll.clear)(twins.state)
    twins.oracle.clear()
    twins.check()
    twins.lookup({"t": keys[:50], "c": keys[:50]})
    twins.check()
