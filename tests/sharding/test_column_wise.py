# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Columns of a table on all shards: the oracle is one device."""

import jax
import numpy as np
import optax
import pytest

import jax_dynemb as jde
from meshes import grid, mesh_of
from support import HostJagged, Twins, gradients

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
        rows, residuals = twins.lookup(ids, weights)
        d_rows = {f: gradients(x.shape, step) for f, x in rows.items()}
        twins.apply(residuals, d_rows)
    twins.find(ids)
    twins.check(TOLERANCE)


@pytest.mark.parametrize(
    "optimizer",
    [jde.optim.adam(0.01), jde.optim.rowwise_adagrad(optax.linear_schedule(0.1, 0, 9))],
    ids=["adam", "rowwise_adagrad"],
)
def test_equals_one_device(optimizer):
    train(Twins(*mixed(optimizer), mesh=mesh_of(8)), 6, 11)
