# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Sums and means of rows, with weights, and the gradients of both."""

import itertools

import numpy as np
import pytest

import jax_dynemb as jde
from support import Twins, gradients

BAGS = np.array([[1, 2, 3], [2, 2, -1], [-1, -1, -1], [-1, 9, -1], [1, 1, 1]])
CASES = list(itertools.product(["sum", "mean"], [False, True]))


def make(pooling, **options) -> Twins:
    options = {"dim": 8, "capacity": 256} | options
    return Twins(jde.TableConfig(name="t", pooling=pooling, **options))


def weights_like(ids: np.ndarray, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=ids.shape).astype(np.float32)


@pytest.mark.parametrize(("pooling", "weighted"), CASES)
def test_bags(platform, pooling, weighted):
    twins = make(pooling, optimizer=jde.optim.sgd(0.5))
    weights = {"t": weights_like(BAGS)} if weighted else None
    for step in range(3):
        rows, residuals = twins.lookup({"t": BAGS}, weights)
        twins.apply(residuals, {"t": gradients((5, 8), step)})
        twins.find({"t": BAGS}, weights)
    assert (rows["t"][2] == 0).all()  # an empty bag
    twins.check()


def test_by_hand(platform):
    twins = make("mean", initializer=jde.initializers.debug())
    rows, _ = twins.lookup({"t": BAGS})
    assert rows["t"][:, 5].tolist() == [2, 2, 0, 9, 1]
    weights = np.array([[1, 2, 3], [0.5, 1.5, 7], [7, 7, 7], [7, 2, 7], [1, 0, -1]])
    rows, _ = twins.lookup({"t": BAGS}, {"t": weights})
    # divided by the number of ids, not by the sum of the weights
    assert rows["t"][:, 5].tolist() == pytest.approx([14 / 3, 2, 0, 18, 0])


@pytest.mark.parametrize("pooling", ["sum", "mean"])
def test_weight_gradients_are_those_of_the_pooled_rows(platform, pooling):
    twins = make(pooling)
    weights = weights_like(BAGS)
    _, residuals = twins.lookup({"t": BAGS}, {"t": weights})
    d_rows = gradients((5, 8), 7)
    got = twins.weight_gradients(residuals, {"t": d_rows})["t"]

    def loss(weights: np.ndarray) -> float:
        out, _ = twins.oracle.find({"t": BAGS}, {"t": weights})
        return float(np.sum(out["t"].astype(np.float64) * d_rows))

    for i, j in np.ndindex(*BAGS.shape):
        step = np.zeros_like(weights)
        step[i, j] = 0.5  # the loss is linear in the weights: any step will do
        slope = loss(weights + step) - loss(weights - step)
        assert got[i, j] == pytest.approx(slope, abs=1e-5)
    twins.check()


@pytest.mark.parametrize("pooling", ["sum", "mean"])
@pytest.mark.parametrize("shape", [(7,), (2, 3, 4), (3, 0), (0, 3)])
def test_the_last_axis_is_the_bag(platform, pooling, shape):
    twins = make(pooling)
    rows, residuals = twins.lookup({"t": np.arange(np.prod(shape)).reshape(shape)})
    assert rows["t"].shape == (*(shape[:-1] if len(shape) > 1 else shape), 8)
    _, found = twins.find({"t": np.arange(np.prod(shape)).reshape(shape)})
    assert found["t"].shape == shape
    twins.apply(residuals, {"t": np.ones(rows["t"].shape)})
    twins.check()


def test_refused_ids_take_part_in_the_sum(platform):
    twins = make("sum", on_full="refuse", initializer=jde.initializers.debug())
    everything = np.arange(1000).reshape(10, 100)
    rows, residuals = twins.lookup({"t": everything})
    assert rows["t"][:, 0].tolist() == everything.sum(axis=1).tolist()
    twins.apply(residuals, {"t": np.ones((10, 8))})
    twins.check()


def test_weight_gradients_of_refused_ids_are_of_what_was_read(platform):
    twins = make("sum", on_full="refuse", initializer=jde.initializers.debug())
    everything = np.arange(1000).reshape(10, 100)
    weights = np.ones(everything.shape, np.float32)
    _, residuals = twins.lookup({"t": everything}, {"t": weights})
    got = twins.weight_gradients(residuals, {"t": np.full((10, 8), 0.125)})
    np.testing.assert_array_equal(got["t"], everything)


def test_one_long_bag(platform):
    twins = make("mean")
    ids = np.random.default_rng(1).integers(0, 200, (1, 5000))
    _, residuals = twins.lookup({"t": ids}, {"t": weights_like(ids)})
    twins.apply(residuals, {"t": gradients((1, 8), 8)})
    twins.check(tolerance={"rtol": 2e-4, "atol": 2e-5})


def test_weights_without_pooling_are_refused():
    twins = make(None)
    with pytest.raises(ValueError, match="pooling='sum'"):
        twins.lookup({"t": [3, 4]}, {"t": [2.0, 0.5]})
