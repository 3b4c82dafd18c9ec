# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Full tables that grow between two times of training."""

from typing import Any

import jax
import numpy as np

import jax_dynemb as jde
from support import Twins, compiled, export, gradients

COMMON: dict[str, Any] = {"dim": 3, "capacity": 1024}
TABLES = [
    jde.TableConfig("adam", optimizer=jde.optim.adam(0.1), **COMMON),
    jde.TableConfig(
        "lfu",
        score_strategy="lfu",
        pooling="mean",
        optimizer=jde.optim.rowwise_adagrad(0.1),
        param_dtype="bfloat16",
        **COMMON,
    ),
    jde.TableConfig("refuses", on_full="refuse", sharding="replicated", **COMMON),
    jde.TableConfig("int32", key_dtype="int32", **COMMON),
]


def grow(twins: Twins, **capacities: int) -> None:
    """Both of them; the twins go on with the larger collection."""
    twins.coll, twins.state = twins.coll.grow(twins.state, capacities)
    twins.jit = compiled(twins.coll)
    twins.oracle.grow([twins.coll.tables[name] for name in capacities])


def train(twins: Twins, steps: range) -> None:
    for step in steps:
        ids = ids_of(step)
        given = ids | {"int32": jax.numpy.asarray(ids["int32"], jax.numpy.int32)}
        rows, residual, twins.state = twins.jit.lookup(
            twins.state, {f: as_ids(x) for f, x in given.items()}, None, None
        )
        expected, expected_residual = twins.oracle.lookup(ids)
        twins.assert_rows(rows, expected)
        d_rows = {f: gradients(x.shape, step) for f, x in rows.items()}
        twins.apply((residual, expected_residual), d_rows)


def as_ids(x):
    return x if isinstance(x, jax.Array) else jde.ids(x)


def ids_of(step: int) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(step)
    return {
        "adam": draw.integers(0, 4000, 400),
        "lfu": draw.integers(-1, 4000, (200, 3)),
        "refuses": draw.integers(0, 4000, 400),
        "int32": draw.integers(-(2**31), 2**31, 400),
    }


def check_growth(twins: Twins) -> None:
    """Full tables grow in every way, and are trained before and after."""
    train(twins, range(6))
    twins.check()
    before = {t: export(twins.coll, twins.state, t) for t in twins.coll.tables}
    counted = twins.coll.stats(twins.state)
    grow(twins, adam=2048, lfu=2049, int32=9 * 512 + 1)
    tables = twins.coll.tables
    slots = [tables[t.name].num_slots for t in TABLES]
    assert slots == [2048, 3072, 1024, 5120]
    for name, rows in before.items():
        after = export(twins.coll, twins.state, name)
        assert after.keys() == rows.keys()
        for key, row in rows.items():
            np.testing.assert_array_equal(after[key].values, row.values)
            assert after[key].score == row.score
            for leaf, state in row.state.items():
                np.testing.assert_array_equal(after[key].state[leaf], state)
    stats = twins.coll.stats(twins.state)
    moved = ("capacity", "load_factor", "fullest_shard", "_bucket")
    for name, value in counted.items():
        if not name.endswith(moved):
            assert stats[name] == value, name
    assert counted["adam/evicted"] > 0 and counted["refuses/refused"] > 0
    train(twins, range(6, 12))
    twins.check()
    grow(twins, adam=4096, refuses=5000)
    train(twins, range(12, 14))
    twins.check()
