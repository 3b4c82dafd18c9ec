# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Batches above 2^18 ids, which kernels share out in another way than small ones.

On a GPU by the widest row: up to 64 columns, up to 128, more.
"""

import numpy as np
import pytest

import jax_dynemb as jde
from support import Twins, gradients

BAGS, BAG = 27_000, 10  # 270,000 ids
DIMS = (8, 64, 128, 132)
OPTIMIZERS = {
    "sgd": jde.optim.sgd(0.01),
    "adagrad": jde.optim.adagrad(0.01),
    "rowwise_adagrad": jde.optim.rowwise_adagrad(0.01),
    "adam": jde.optim.adam(0.01),
}


def skewed_ids(seed: int) -> np.ndarray:
    """Some ids thousands of times, most of them once; some padding."""
    rng = np.random.default_rng(seed)
    rare = rng.integers(50, 10_000, (BAGS, BAG))
    popular = rng.zipf(1.5, (BAGS, BAG)) % 50
    ids = np.where(rng.random((BAGS, BAG)) < 0.9, popular, rare)
    return np.where(rng.random((BAGS, BAG)) < 0.05, -1, ids)


def table(name: str, dim: int, optimizer: str) -> jde.TableConfig:
    return jde.TableConfig(
        name, dim=dim, capacity=16_384, optimizer=OPTIMIZERS[optimizer], pooling="sum"
    )


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_one_table(platform, dim, optimizer):
    twins = Twins(table("t", dim, optimizer))
    for step in range(2 if optimizer == "adam" else 1):
        rows, residuals = twins.lookup({"t": skewed_ids(step)})
        twins.apply(residuals, {"t": gradients(rows["t"].shape, step)})
    twins.check(tolerance={"rtol": 1e-4, "atol": 1e-4})


def test_widths_in_one_call(platform):
    twins = Twins(*(table(f"d{dim}", dim, "rowwise_adagrad") for dim in DIMS))
    rows, residuals = twins.lookup({f"d{dim}": skewed_ids(dim) for dim in DIMS})
    twins.apply(residuals, {f: gradients(x.shape, 1) for f, x in rows.items()})
    twins.check(tolerance={"rtol": 1e-4, "atol": 1e-4})
