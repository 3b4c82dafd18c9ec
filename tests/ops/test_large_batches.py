# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Large batches, which kernels share out in another way than small ones.

On a GPU gradients of 2^18 ids by the widest row: up to 64 columns, up to 128, more; and
bags of 2^21 ids, of which a warp gets twice as many.
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


@pytest.mark.parametrize("bag", [10, 70])
@pytest.mark.parametrize("dim", [16, 64, 128])
@pytest.mark.parametrize("param_dtype", ["float32", "bfloat16"])
def test_many_bags(platform, dim, bag, param_dtype):
    initializer = jde.initializers.uniform(-1.0, 1.0)
    config = jde.TableConfig(
        "t",
        dim=dim,
        capacity=16_384,
        param_dtype=param_dtype,
        initializer=initializer,
        pooling="sum",
    )
    coll = jde.Tables([config])
    rng = np.random.default_rng(bag)
    ids = rng.integers(-1, 10_000, ((1 << 21) // bag + 3, bag))
    fresh, _, state = coll.lookup(coll.init(0), {"t": jde.ids(ids)})
    present, _, state = coll.lookup(state, {"t": jde.ids(ids)})
    found = coll.find(state, {"t": jde.ids(ids)})[0]

    each = coll.find(state, {"t": jde.ids(np.arange(10_000)[:, None])})[0]["t"]
    rows = np.vstack([np.asarray(each), np.zeros((1, dim))])  # -1: padding
    expected = sum(rows[ids[:, i]] for i in range(bag))
    assert int(coll.stats(state)["t/rows"]) == 10_000
    for got in (fresh, present, found):
        np.testing.assert_allclose(got["t"], expected, rtol=1e-4, atol=1e-4)
