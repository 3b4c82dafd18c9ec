# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of any width, several widths in one call."""

import numpy as np
import pytest

import jax_dynemb as jde
from support import Twins

DIMS = (1, 3, 8, 64, 100, 128, 4096)
OPTIMIZERS = {
    "sgd": jde.optim.sgd(0.5),
    "adagrad": jde.optim.adagrad(0.5),
    "rowwise_adagrad": jde.optim.rowwise_adagrad(0.5),
    "adam": jde.optim.adam(0.1, weight_decay=0.01),
}


def table(name: str, dim: int, optimizer: str, pooling=None) -> jde.TableConfig:
    return jde.TableConfig(
        name=name,
        dim=dim,
        capacity=256,
        optimizer=OPTIMIZERS[optimizer],
        pooling=pooling,
    )


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("pooling", [None, "mean"])
def test_mixed_dims_in_one_call(platform, optimizer, pooling):
    twins = Twins(*(table(f"d{dim}", dim, optimizer, pooling) for dim in DIMS))
    rng = np.random.default_rng(0)
    for step in range(2):
        ids = {f"d{dim}": rng.integers(-1, 40, (16, 2)) for dim in DIMS}
        twins.train(ids, seed=step)
    twins.check()


def test_mixed_optimizers_in_one_call(platform):
    twins = Twins(*(table(name, 12, name) for name in OPTIMIZERS))
    for step in range(3):
        twins.train({name: [1, 2, 1] for name in OPTIMIZERS}, seed=step)
    twins.check()


def test_many_tables_in_one_call(platform):
    names = [f"t{i}" for i in range(24)]
    twins = Twins(*(table(name, 1 + i % 5, "sgd") for i, name in enumerate(names)))
    rows, residuals = twins.lookup({name: [i, i + 1] for i, name in enumerate(names)})
    twins.apply(residuals, {f: np.ones(x.shape) for f, x in rows.items()})
    twins.check()
