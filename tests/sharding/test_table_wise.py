# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Whole tables on single shards: the oracle is one device."""

import numpy as np
import pytest

import jax_dynemb as jde
from meshes import grid, mesh_of
from support import HostJagged, Twins, gradients

TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}
ZEROS = jde.initializers.zeros()
UNIFORM = jde.initializers.uniform(-0.1, 0.1)


def table_wise(name: str, **options) -> jde.TableConfig:
    common = {"dim": 4, "capacity": 1024, "sharding": "table_wise"}
    return jde.TableConfig(name, **{**common, "initializer": UNIFORM, **options})


def mixed(optimizer) -> list[jde.TableConfig]:
    """Eleven table-wise tables of two shapes, a row-wise and a replicated one."""
    options = {"optimizer": optimizer}
    wide = [table_wise(f"w{n}", dim=6, capacity=2048, **options) for n in range(3)]
    sums = [table_wise(f"s{n}", pooling="sum", **options) for n in range(4)]
    means = [table_wise(f"m{n}", pooling="mean", **options) for n in range(4)]
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
    for n in range(4):
        ids[f"s{n}"] = rng.integers(-1, 60, (size, n + 1))
        weights[f"s{n}"] = rng.random((size, n + 1))
        bags = [list(rng.integers(0, 60, n)) for n in rng.integers(0, 4, size)]
        ids[f"m{n}"] = HostJagged.of(bags, capacity=4 * size)
    return ids, weights


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
    [jde.optim.adam(0.01), jde.optim.rowwise_adagrad(0.1)],
    ids=["adam", "rowwise_adagrad"],
)
def test_equals_one_device(optimizer):
    train(Twins(*mixed(optimizer), mesh=mesh_of(8)), 6, 11)


@pytest.mark.parametrize("devices", [1, 2, 4])
def test_other_meshes(devices):
    train(Twins(*mixed(jde.optim.adagrad(0.1)), mesh=mesh_of(devices)), 2, 8)


def test_two_axes_and_replicas():
    train(Twins(*mixed(jde.optim.sgd(0.1)), mesh=grid()), 2, 8)
    train(Twins(*mixed(jde.optim.sgd(0.1)), mesh=grid(), axis="model"), 2, 8)
