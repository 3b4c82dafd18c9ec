# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Sums of bags between devices: the oracle is one device, as for rows."""

from typing import Any

import jax
import numpy as np
import optax
import pytest

import jax_dynemb as jde
from meshes import keys_of_shard, mesh_of
from support import HostJagged, Twins, gradients

TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}
COMMON: dict[str, Any] = {"capacity": 1024, "dim": 3}


def sums(*tables: jde.TableConfig, devices: int = 4) -> Twins:
    return Twins(*tables, mesh=mesh_of(devices), exchange_pooled="sums")


def jagged(rng: np.random.Generator, bags: int, capacity: int) -> HostJagged:
    lengths = rng.integers(0, 5, bags)
    return HostJagged.of([list(rng.integers(0, 60, n)) for n in lengths], capacity)


def step(twins: Twins, ids: dict, weights: dict, seed: int) -> None:
    twins.train(ids, weights, seed=seed)


def test_rows_and_sums_together():
    """Bags of all kinds of one table, beside tables whose rows travel or are copies."""
    twins = sums(
        jde.TableConfig("seq", optimizer=jde.optim.adam(0.1), **COMMON),
        jde.TableConfig("copy", pooling="sum", sharding="replicated", **COMMON),
        jde.TableConfig(
            "bags",
            pooling="mean",
            feature_names=("one", "padded", "empty", "jagged", "loose"),
            optimizer=jde.optim.adam(0.1),
            param_dtype="bfloat16",
            **COMMON,
        ),
        jde.TableConfig("lfu", pooling="sum", score_strategy="lfu", **COMMON),
    )
    for seed in range(3):
        rng = np.random.default_rng(seed)
        ids = {
            "seq": rng.integers(-1, 60, 10),
            "copy": rng.integers(-1, 60, (10, 2)),
            "one": rng.integers(-1, 60, 10),
            "padded": rng.integers(-1, 60, (10, 3)),
            "empty": np.zeros((10, 0), np.int64),
            "jagged": jagged(rng, 7, 40),
            "loose": jagged(rng, 7, 90),
            "lfu": rng.integers(-1, 60, (2, 5, 4)),
        }
        weights = {"padded": rng.normal(size=(10, 3)), "loose": rng.normal(size=90)}
        step(twins, ids, weights, seed)
        twins.find(ids, weights)
    twins.check(TOLERANCE)


def test_refused_ids_count_as_often_as_they_occur():
    common = {"dim": 2, "capacity": 1024, "pooling": "sum"}
    twins = sums(
        jde.TableConfig("evicts", **common),
        jde.TableConfig("refuses", on_full="refuse", **common),
        devices=8,
    )
    rng = np.random.default_rng(0)
    for seed in range(4):
        ids = rng.integers(0, 5000, (400, 4))
        step(twins, {"evicts": ids, "refuses": ids}, {}, seed)
    twins.check(TOLERANCE)
    stats = twins.coll.stats(twins.state)
    assert stats["evicts/evicted"] > 0 and stats["refuses/refused"] > 0
    assert stats["refuses/exchange_overflows"] == 0


@pytest.mark.parametrize("devices", [2, 8])
def test_no_skew_overflows(devices):
    """All ids, or the one that there is, are of one shard; bags of 8 divide exactly."""
    table = jde.TableConfig(
        "t", pooling="mean", optimizer=jde.optim.adam(0.1), **COMMON
    )
    options = {"exchange_factor": 0.01, "exchange_pooled": "sums"}
    twins = Twins(table, mesh=mesh_of(devices), **options)
    for seed, count in enumerate([1, 300]):
        keys = keys_of_shard(devices - 1, devices, count)
        ids = np.random.default_rng(seed).choice(keys, (64, 8))
        step(twins, {"t": ids}, {}, seed)
    twins.check(TOLERANCE)


def test_tables_that_share_arrays():
    """Each of a stack has other bags; one has two features, one has weights."""
    names = [("a", "a2"), ("b",), ("c",)]
    twins = sums(
        *(
            jde.TableConfig(
                features[0],
                pooling="mean" if n == 1 else "sum",
                sharding="table_wise",
                feature_names=features,
                eval_initializer=jde.initializers.uniform(-1, 1),
                optimizer=jde.optim.adagrad(0.1),
                **COMMON,
            )
            for n, features in enumerate(names)
        )
    )
    assert len(twins.state) < 3
    for seed in range(3):
        rng = np.random.default_rng(seed)
        ids = {
            "a": rng.integers(-1, 60, (10, 3)),
            "a2": rng.integers(-1, 60, (6, 2)),
            "b": jagged(rng, 9, 50),
            "c": rng.integers(-1, 60, (10, 4)),
        }
        if seed == 2:
            del ids["a"], ids["b"]
        weights = {"c": rng.normal(size=(10, 4))}
        step(twins, ids, weights, seed)
    twins.find(ids, weights)
    unseen = {"b": jagged(rng, 5, 30), "a2": rng.integers(30, 90, (7, 2))}
    twins.find(unseen, {})
    twins.check(TOLERANCE)


def test_weight_gradients_and_micro_batches():
    """Both need single ids: then rows travel, and nothing else changes."""
    twins = sums(jde.TableConfig("t", pooling="mean", **COMMON))
    rng = np.random.default_rng(0)
    ids, weights = {"t": rng.integers(-1, 40, (9, 3))}, {"t": rng.random((9, 3))}
    pairs, d_rows = [], []
    for seed in range(2):
        rows, residuals = twins.lookup(ids, weights)
        pairs.append(residuals)
        d_rows.append({"t": gradients(rows["t"].shape, seed)})
    twins.weight_gradients(pairs[0], d_rows[0])
    ours, theirs = ([pair[i] for pair in pairs] for i in range(2))
    together = jax.jit(twins.coll.apply_gradients)
    twins.state = together(twins.state, ours, jax.tree.map(np.asarray, d_rows))
    twins.oracle.apply_gradients(theirs, d_rows)
    twins.check(TOLERANCE)


def test_an_optax_table_and_the_same_bits_each_time():
    table = jde.TableConfig("t", pooling="sum", optimizer=optax.adam(0.1), **COMMON)
    alone, coll = (
        jde.Tables([table]),
        jde.Tables([table], mesh=mesh_of(4), exchange_pooled="sums"),
    )
    ids = {"t": jde.ids(np.random.default_rng(0).integers(-1, 30, (8, 5)))}

    def run(coll: jde.Tables):
        @jax.jit
        def train(state):
            rows, residual, state = coll.lookup(state, ids)
            state = coll.apply_gradients(state, residual, rows)
            return rows["t"], coll.find(state, ids)[0]["t"]

        return [np.asarray(x) for _ in range(2) for x in train(coll.init(0))]

    got, expected = run(coll), run(alone)
    for ours, theirs in zip(got, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, **TOLERANCE)
    np.testing.assert_array_equal(got[:2], got[2:])


@pytest.mark.collectives
def test_an_owner_adds_up_the_lengths_of_all_features_in_one_call():
    tables = [jde.TableConfig(name, pooling="sum", **COMMON) for name in "abc"]
    coll = jde.Tables(tables, mesh_of(4), exchange_pooled="sums")
    lengths = np.full(8, 2, np.int32)
    bags = {name: jde.Jagged(jde.ids(np.arange(16)), lengths) for name in "abc"}
    program = jax.jit(coll.lookup).lower(coll.init(0), bags)
    # Of the batch, of the part of a device, and of an owner.
    assert program.as_text().count("@dynemb_offsets_of_features") == 3
