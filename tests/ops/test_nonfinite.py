# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Gradients, weights and inserted rows with a NaN or an infinity."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jax_dynemb as jde
from support import Twins, export, gradients, stat

OPTIMIZERS = {
    "sgd": jde.optim.sgd(0.1),
    "adagrad": jde.optim.adagrad(0.1),
    "rowwise_adagrad": jde.optim.rowwise_adagrad(0.1),
    "adam": jde.optim.adam(0.1),
}


def table(optimizer, dim=8, capacity=1000, **options):
    return jde.TableConfig(
        name="t", dim=dim, capacity=capacity, optimizer=optimizer, **options
    )


def poisoned(shape, bad):
    """Gradients with one column that is not finite in each of some rows."""
    d = gradients(shape, 3)
    for n, row in enumerate(bad):
        d[row, (5 * n) % shape[1]] = (np.nan, np.inf, -np.inf)[n % 3]
    return d


# 8 columns are part of a warp's step, 200 take two; 3 are no vector.
@pytest.mark.parametrize("dim", [3, 8, 64, 128, 200])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_row_with_a_bad_gradient_keeps_its_values(platform, name, dim):
    twins = Twins(table(OPTIMIZERS[name], dim))
    keys = list(range(40))
    twins.train({"t": keys}, seed=1)
    _, residuals = twins.lookup({"t": keys + [7, 8]})
    before = export(twins.coll, twins.state, "t")
    d = poisoned((42, dim), [0, 3, 11, 40])  # position 40 is key 7 again
    twins.apply(residuals, {"t": d})
    twins.check()
    after = export(twins.coll, twins.state, "t")
    for key in (0, 3, 7, 11):
        np.testing.assert_array_equal(after[key].values, before[key].values)
        for leaf, state in after[key].state.items():
            np.testing.assert_array_equal(state, before[key].state[leaf])
    assert not np.array_equal(after[8].values, before[8].values)
    assert stat(twins, "t/nonfinite") == 4


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_popular_row(platform, name):
    """Its sum is that of many pieces, added by several warps."""
    twins = Twins(table(OPTIMIZERS[name], 64))
    keys = [1] * 3000 + [2] * 3000 + [3]
    _, residuals = twins.lookup({"t": keys})
    before = export(twins.coll, twins.state, "t")
    twins.apply(residuals, {"t": poisoned((6001, 64), [2999])})
    twins.check()
    after = export(twins.coll, twins.state, "t")
    np.testing.assert_array_equal(after[1].values, before[1].values)
    assert not np.array_equal(after[2].values, before[2].values)


BIG = 3e38
# What bags 5 and 6, of the same ids, get in one column; and whether their rows change.
OF_TWO_BAGS = {
    "small": ((1.0, 2.0), 1.0, True),
    "nan": ((np.nan, 1.0), 1.0, False),
    "minus infinity": ((1.0, -np.inf), 1.0, False),
    "large": ((1e30, 2e30), 1.0, True),
    "overflowing sum": ((BIG, BIG), 1.0, False),
    "overflowing weight": ((1e10, 1.0), BIG, False),
    "large weight": ((1e-30, 1e-30), 1e35, True),
}


@pytest.mark.parametrize("column", [0, -1])
@pytest.mark.parametrize("dim", [136, 300])
@pytest.mark.parametrize("case", OF_TWO_BAGS)
def test_wide_rows_of_a_large_batch(platform, case, dim, column):
    """More than 2^18 ids: a GPU looks at gradients first, or sums whole rows."""
    (first, second), weight, changes = OF_TWO_BAGS[case]
    rng = np.random.default_rng(0)
    ids = rng.integers(100, 2000, (4200, 64))
    ids[5] = ids[6] = np.arange(64)
    d = rng.normal(size=(4200, dim)).astype(np.float32)
    d[5, column], d[6, column] = first, second
    weights = np.ones(ids.shape, np.float32)
    weights[5] = weights[6] = weight
    coll = jde.Tables([table(jde.optim.sgd(0.5), dim, capacity=4096, pooling="sum")])
    given = {"t": jde.ids(ids)}, {"t": jnp.asarray(weights)}
    _, residual, state = coll.lookup(coll.init(0), *given)
    before = export(coll, state, "t")
    state = coll.apply_gradients(state, residual, {"t": jnp.asarray(d)})
    after = export(coll, state, "t")
    of_bags = np.zeros((2000, 4200))
    np.add.at(of_bags, (ids, np.arange(4200)[:, None]), weights)
    sums = of_bags @ np.nan_to_num(d.astype(np.float64))
    for key in after:
        change = after[key].values.astype(np.float64) - before[key].values
        truth = -0.5 * sums[key] if changes or key >= 64 else np.zeros(dim)
        np.testing.assert_allclose(change, truth, rtol=1e-4, atol=1e-3)
    assert coll.stats(state)["t/nonfinite"] == (0 if changes else 64)


@pytest.mark.parametrize("dim", [200, 300])
@pytest.mark.parametrize("kind", ["adagrad", "rowwise_adagrad", "adam"])
def test_wide_rows_of_a_large_batch_have_the_states_of_a_small_one(platform, kind, dim):
    """Rows that a GPU sums whole in the one only; one gradient in each is NaN."""
    rng = np.random.default_rng(dim)
    few = rng.permutation(1 << 12)[:3000]
    d = rng.normal(size=(few.size, dim)).astype(np.float32)
    d[7, dim - 1] = np.nan
    rows = []
    for length in (few.size, (1 << 18) + 100):
        ids, gradients = np.full(length, -1), np.zeros((length, dim), np.float32)
        ids[: few.size], gradients[: few.size] = few, d
        coll = jde.Tables([table(OPTIMIZERS[kind], dim, capacity=1 << 13)])
        _, residual, state = coll.lookup(coll.init(0), {"t": jde.ids(ids)})
        state = coll.apply_gradients(state, residual, {"t": jnp.asarray(gradients)})
        assert coll.stats(state)["t/nonfinite"] == 1
        rows.append(export(coll, state, "t"))
    small, large = rows
    assert small.keys() == large.keys()
    for key, row in small.items():
        np.testing.assert_allclose(row.values, large[key].values, rtol=1e-5, atol=1e-7)
        for name, of_row in row.state.items():
            np.testing.assert_allclose(of_row, large[key].state[name], rtol=1e-5)


def test_propagate_gives_the_gradient_to_the_optimizer(platform):
    twins = Twins(table(jde.optim.sgd(0.1), nonfinite="propagate"))
    _, residuals = twins.lookup({"t": [1, 2]})
    twins.apply(residuals, {"t": poisoned((2, 8), [0])})
    rows = export(twins.coll, twins.state, "t")
    assert np.isnan(rows[1].values).any() and np.isfinite(rows[2].values).all()
    assert stat(twins, "t/nonfinite") == 0


def test_squares_that_overflow_do_not_poison_a_row_wise_state(platform):
    twins = Twins(table(OPTIMIZERS["rowwise_adagrad"]))
    _, residuals = twins.lookup({"t": [1, 2]})
    twins.apply(residuals, {"t": np.full((2, 8), [[3e19], [1.0]], np.float32)})
    twins.check()
    assert stat(twins, "t/nonfinite") == 1


def test_large_finite_gradients_are_used(platform):
    twins = Twins(table(jde.optim.sgd(1e-30)))
    _, residuals = twins.lookup({"t": [1, 2]})
    twins.apply(residuals, {"t": np.full((2, 8), 3e38, np.float32)})
    twins.check()
    assert stat(twins, "t/nonfinite") == 0


def test_weights(platform):
    twins = Twins(table(jde.optim.sgd(0.1), pooling="sum"))
    ids = {"t": [[1, 2], [3, 4]]}
    weights = {"t": np.array([[1, np.nan], [1, 1]], np.float32)}
    _, residuals = twins.lookup(ids, weights)
    twins.apply(residuals, {"t": np.ones((2, 8))})
    twins.check()
    assert stat(twins, "t/nonfinite") == 1


def test_optax(platform):
    coll = jde.Tables([table(optax.adam(0.1))])
    state = coll.init(0)
    _, residual, state = coll.lookup(state, {"t": jde.ids([1, 2])})
    before = export(coll, state, "t")
    state = coll.apply_gradients(state, residual, {"t": poisoned((2, 8), [0])})
    after = export(coll, state, "t")
    np.testing.assert_array_equal(after[1].values, before[1].values)
    assert np.isfinite(after[2].values).all()
    assert not np.array_equal(after[2].values, before[2].values)
    assert coll.stats(state)["t/nonfinite"] == 1


def test_reduce_gradients_returns_them_as_they_are(platform):
    coll = jde.Tables([table(jde.optim.sgd(0.1))])
    _, residual, state = coll.lookup(coll.init(0), {"t": jde.ids([1, 2])})
    reduced, state = coll.reduce_gradients(
        state, residual, {"t": poisoned((2, 8), [0])}
    )
    assert jnp.isnan(reduced["t"].grads).any()
    assert coll.stats(state)["t/nonfinite"] == 0


def test_inserted_rows(platform):
    twins = Twins(table(jde.optim.adagrad(0.1)))
    rows = np.ones((4, 8), np.float32)
    twins.insert({"t": [1, 2, 3, -1]}, {"t": rows})
    rows = rows.copy()  # JAX may still read the first ones
    rows[0, 1], rows[3, 0] = np.nan, np.inf  # the last one is padding
    state = {"t": {"sum_of_squares": np.ones((4, 8), np.float32)}}
    state["t"]["sum_of_squares"][2, 7] = np.inf
    twins.insert({"t": [1, 5, 6, -1]}, {"t": 2 * rows}, optimizer_state=state)
    twins.check()
    kept = export(twins.coll, twins.state, "t")
    assert set(kept) == {1, 2, 3, 5} and kept[1].values[0] == 1
    assert stat(twins, "t/nonfinite") == 2


def test_inserted_rows_propagate(platform):
    coll = jde.Tables([table(jde.optim.sgd(0.1), nonfinite="propagate")])
    rows = {"t": np.full((1, 8), np.nan, np.float32)}
    state = coll.insert(coll.init(0), {"t": jde.ids([1])}, rows)
    assert np.isnan(export(coll, state, "t")[1].values).all()


def test_the_choice_is_checked():
    with pytest.raises(ValueError, match="nonfinite must be one of"):
        table(jde.optim.sgd(0.1), nonfinite="ignore")
