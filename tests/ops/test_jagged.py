# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Jagged inputs: bags of any length, one after the other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jax_dynemb as jde
from support import HostJagged, Twins, gradients, stat

BAGS = [[1, 2, 2], [], [3], [-1, 4], [], [1]]


def make(pooling, **options) -> Twins:
    options = {"dim": 8, "capacity": 256} | options
    return Twins(jde.TableConfig(name="t", pooling=pooling, **options))


@pytest.mark.parametrize("pooling", ["sum", "mean", None])
def test_ids_beyond_the_lengths_are_ignored(platform, pooling):
    twins = make(pooling)
    ids = HostJagged.of(BAGS, capacity=12)
    rows, residuals = twins.lookup({"t": ids})
    assert rows["t"].shape == ((6, 8) if pooling else (12, 8))
    assert stat(twins, "t/rows") == 4
    twins.apply(residuals, {"t": gradients(rows["t"].shape, 0)})
    twins.check()
    _, found = twins.find({"t": ids})
    assert found["t"].tolist() == [True] * 4 + [False] + [True] * 2 + [False] * 5


@pytest.mark.parametrize("pooling", ["sum", "mean"])
def test_empty_bags_are_zero(platform, pooling):
    twins = make(pooling)
    rows, residuals = twins.lookup({"t": HostJagged.of([[], [], []], capacity=4)})
    assert (rows["t"] == 0).all() and stat(twins, "t/rows") == 0
    twins.apply(residuals, {"t": np.ones((3, 8))})
    twins.check()


def test_no_bags_and_no_capacity(platform):
    twins = make("sum")
    rows, residuals = twins.lookup({"t": HostJagged.of([], capacity=4)})
    assert rows["t"].shape == (0, 8) and stat(twins, "t/rows") == 0
    twins.apply(residuals, {"t": np.ones((0, 8))})
    rows, _ = twins.lookup({"t": HostJagged.of([[], []], capacity=0)})
    assert rows["t"].shape == (2, 8)
    twins.check()


def test_a_jagged_input_equals_a_padded_one(platform):
    padded = np.array([[1, 2, 2], [-1, -1, -1], [3, -1, -1], [4, -1, -1]])
    jagged = HostJagged.of([[1, 2, 2], [], [3], [4]], capacity=5)
    results = []
    for ids in (padded, jagged):
        twins = make("mean", optimizer=jde.optim.adagrad(0.1))
        rows, residuals = twins.lookup({"t": ids})
        twins.apply(residuals, {"t": gradients((4, 8), 1)})
        twins.check()
        results.append((rows["t"], twins.find({"t": padded})[0]["t"]))
    np.testing.assert_array_equal(*[r[0] for r in results])
    np.testing.assert_array_equal(*[r[1] for r in results])


def test_jagged_and_plain_features_of_one_table(platform):
    twins = make("sum", feature_names=("a", "b"))
    inputs = {"a": HostJagged.of(BAGS, capacity=8), "b": [[1, 2], [9, -1]]}
    twins.train(inputs, seed=2)
    twins.check()


def test_weights(platform):
    twins = make("mean")
    ids = HostJagged.of(BAGS, capacity=9)
    weights = {"t": np.linspace(-1, 1, 9, dtype=np.float32)}
    rows, residuals = twins.lookup({"t": ids}, weights)
    d_rows = {"t": gradients(rows["t"].shape, 3)}
    inner = twins.weight_gradients(residuals, d_rows)
    assert (inner["t"][len([k for bag in BAGS for k in bag]) :] == 0).all()
    twins.apply(residuals, d_rows)
    twins.check()


def test_it_is_a_pytree():
    jagged = jde.Jagged(jde.ids([1, 2, 3]), jnp.array([1, 2], jnp.int32))
    leaves, structure = jax.tree.flatten(jagged)
    assert [leaf.shape for leaf in leaves] == [(3, 2), (2,)]
    again = jax.tree.unflatten(structure, leaves)
    assert isinstance(again, jde.Jagged)
    np.testing.assert_array_equal(again.lengths, [1, 2])


@given(
    st.lists(st.lists(st.integers(-1, 40), max_size=12), min_size=8, max_size=8),
    st.sampled_from(["sum", "mean"]),
)
def test_any_bags(bags, pooling):
    twins = make(pooling)
    rows, residuals = twins.lookup({"t": HostJagged.of(bags, capacity=96)})
    twins.apply(residuals, {"t": gradients(rows["t"].shape, 4)})
    twins.check()
