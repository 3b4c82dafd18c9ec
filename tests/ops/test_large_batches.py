# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Large batches, which kernels share out in another way than small ones.

On a GPU gradients of 2^18 ids by the widest row: up to 64 columns, up to 128, more;
their order by the bits of a slot, in one pass or several; and bags of 2^21 ids, of
which a warp gets twice as many. A CPU has one loop for all sizes, so it runs some of
the combinations.
"""

import functools
import itertools
from typing import Any

import numpy as np
import pytest

import jax_dynemb as jde
from support import Twins, gradients

BAGS, BAG = 27_000, 10  # 270,000 ids
DIMS = (8, 64, 128, 132)
ODD_DIMS = (1, 15, 62, 101)  # no vectors can move them
OPTIMIZERS = {
    "sgd": jde.optim.sgd(0.01),
    "adagrad": jde.optim.adagrad(0.01),
    "rowwise_adagrad": jde.optim.rowwise_adagrad(0.01),
    "adam": jde.optim.adam(0.01),
}


def on_platforms(every: list[tuple], some: list[tuple]) -> list[Any]:
    """All combinations on a GPU, some of them on a CPU: a platform in front of each."""
    on_gpu = [pytest.param("cuda", *case, marks=pytest.mark.gpu) for case in every]
    return [pytest.param("cpu", *case) for case in some] + on_gpu


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("platform", "optimizer", "dim"),
    on_platforms(
        list(itertools.product(OPTIMIZERS, DIMS + ODD_DIMS)),
        list(zip(OPTIMIZERS, DIMS, strict=True)),
    ),
    indirect=["platform"],
)
def test_one_table(platform, optimizer, dim):
    twins = Twins(table("t", dim, optimizer))
    for step in range(2 if optimizer == "adam" else 1):
        rows, residuals = twins.lookup({"t": skewed_ids(step)})
        twins.apply(residuals, {"t": gradients(rows["t"].shape, step)})
    twins.check(tolerance={"rtol": 1e-4, "atol": 1e-4})


@pytest.mark.slow
@pytest.mark.parametrize("dims", [DIMS, (1, 15, 64)])
def test_widths_in_one_call(platform, dims):
    twins = Twins(*(table(f"d{dim}", dim, "rowwise_adagrad") for dim in dims))
    rows, residuals = twins.lookup({f"d{dim}": skewed_ids(dim) for dim in dims})
    twins.apply(residuals, {f: gradients(x.shape, 1) for f, x in rows.items()})
    twins.check(tolerance={"rtol": 1e-4, "atol": 1e-4})


# Slots of so many rows have 8, 13, 16, 19, 23 bits: up to three passes of 7 or 8 each.
@pytest.mark.parametrize("capacity", [128, 1 << 12, 1 << 15, 1 << 18, 1 << 22])
def test_order_by_slots(platform, capacity):
    """With SGD and gradients of one a row moves by how often its id is there."""
    declare = functools.partial(
        jde.TableConfig,
        dim=4,
        capacity=capacity,
        initializer=jde.initializers.uniform(-1.0, 1.0),
        optimizer=jde.optim.sgd(0.5),
    )
    tables = {"t": ("a", "b"), "u": ("c",)}  # of lengths that no tile divides
    coll = jde.Tables([declare(t, feature_names=f) for t, f in tables.items()])
    rng = np.random.default_rng(capacity)
    known = rng.choice(1 << 40, min(capacity // 2, 100_000), replace=False)
    drawn = {f: rng.zipf(1.2, 200_003) % (len(known) + 1) for f in "abc"}
    padded = np.append(known, -1)
    ids = {f: jde.ids(padded[which]) for f, which in drawn.items()}
    _, residuals, state = coll.lookup(coll.init(0), ids)
    every = {f: jde.ids(known) for f in "abc"}
    before = coll.find(state, every)[0]
    ones = {f: np.ones((200_003, 4), np.float32) for f in "abc"}
    state = coll.apply_gradients(state, residuals, ones)
    after = coll.find(state, every)[0]
    for table, features in tables.items():
        together = np.concatenate([drawn[f] for f in features])
        counts = np.bincount(together, minlength=len(padded))[:-1, None]
        expected = before[features[0]] - np.float32(0.5) * counts.astype(np.float32)
        present = counts[:, 0] > 0  # others have the row of an id that is not there
        np.testing.assert_array_equal(after[features[0]][present], expected[present])
        assert present.sum() == coll.stats(state)[f"{table}/rows"]


@pytest.mark.parametrize(
    ("platform", "param_dtype", "dim", "bag"),
    on_platforms(
        list(itertools.product(["float32", "bfloat16"], [16, 64, 128], [10, 70])),
        [("float32", 16, 70), ("bfloat16", 64, 10)],
    ),
    indirect=["platform"],
)
def test_many_bags(platform, param_dtype, dim, bag):
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
