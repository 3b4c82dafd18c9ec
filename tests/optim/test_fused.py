# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The fused optimizers against the oracle: exact sums, traced hyper-parameters."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jax_dynemb as jde
from support import Twins, export, gradients, stat

OPTIMIZERS = {
    "sgd": jde.optim.sgd(0.1),
    "adagrad": jde.optim.adagrad(0.1),
    "adagrad_options": jde.optim.adagrad(0.1, eps=1e-3, initial_accumulator_value=0.5),
    "rowwise_adagrad": jde.optim.rowwise_adagrad(0.1),
    "rowwise_adagrad_options": jde.optim.rowwise_adagrad(
        0.1, eps=1e-3, initial_accumulator_value=0.5
    ),
    "adam": jde.optim.adam(0.1),
    "adam_options": jde.optim.adam(0.1, b1=0.5, b2=0.9, eps=1e-3, weight_decay=0.1),
}


def make(optimizer: Any, **options: Any) -> Twins:
    options = {"dim": 8, "capacity": 256} | options
    return Twins(jde.TableConfig(name="t", optimizer=optimizer, **options))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_several_steps(platform, name):
    twins = make(OPTIMIZERS[name])
    rng = np.random.default_rng(0)
    for _ in range(5):
        _, residuals = twins.lookup({"t": rng.integers(-1, 60, 64)})
        twins.apply(residuals, {"t": rng.normal(size=(64, 8)).astype("f")})
    assert stat(twins, "t/step") == 5
    twins.check()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_touched_row_is_updated_even_by_zero(platform, name):
    twins = make(OPTIMIZERS[name])
    for d_rows in (gradients((4, 8), 1), np.zeros((4, 8))):
        _, residuals = twins.lookup({"t": [1, 2, 3, 4]})
        twins.apply(residuals, {"t": d_rows})
    before = {k: r.values for k, r in export(twins.coll, twins.state, "t").items()}
    _, residuals = twins.lookup({"t": [1, 2, 1, 2]})
    twins.apply(residuals, {"t": np.zeros((4, 8))})
    after = {k: r.values for k, r in export(twins.coll, twins.state, "t").items()}
    for untouched in (3, 4):
        np.testing.assert_array_equal(before[untouched], after[untouched])
    if name.startswith("adam"):  # the moments go on, and weight decay
        assert (before[1] != after[1]).any()
    twins.check()


def test_one_update_for_all_features_of_a_table(platform):
    twins = make(jde.optim.adagrad(0.5), feature_names=("a", "b"))
    _, residuals = twins.lookup({"a": [1, 2], "b": [[2, 3], [1, 1]]})
    twins.apply(residuals, {"a": gradients((2, 8), 0), "b": gradients((2, 2, 8), 1)})
    assert stat(twins, "t/step") == 1
    twins.check()


def test_opposite_gradients_cancel_before_the_update(platform):
    twins = make(jde.optim.adagrad(0.5))
    first, residuals = twins.lookup({"t": [1, 1]})
    g = gradients((1, 8), 3)
    twins.apply(residuals, {"t": np.concatenate([g, -g])})
    row = export(twins.coll, twins.state, "t")[1]
    np.testing.assert_array_equal(row.values, first["t"][0])
    assert (row.state["sum_of_squares"] == 0).all()


@pytest.mark.parametrize("name", ["sgd", "adagrad", "rowwise_adagrad", "adam"])
def test_a_schedule_counts_updates_from_zero(platform, name):
    asked = optax.piecewise_constant_schedule(0.5, {1: 0.5, 2: 0.1})
    twins = make(getattr(jde.optim, name)(asked))
    for step in range(4):
        _, residuals = twins.lookup({"t": [1, 2, 3]})
        twins.apply(residuals, {"t": gradients((3, 8), step)})
    twins.check()
    assert twins.jit.apply_gradients._cache_size() == 1


def test_a_learning_rate_given_to_the_call(platform):
    twins = make(jde.optim.sgd(0.1))
    for rate in (1.0, 0.25, None):
        before, residuals = twins.lookup({"t": [7]})
        twins.apply(residuals, {"t": np.ones((1, 8))}, learning_rate=rate)
        after, _ = twins.find({"t": [7]})
        np.testing.assert_allclose(
            before["t"] - after["t"], 0.1 if rate is None else rate, rtol=1e-5
        )


def test_a_learning_rate_of_one_table(platform):
    twins = Twins(*(jde.TableConfig(name=n, dim=4, capacity=256) for n in "ab"))
    before, (residual, _) = twins.lookup({"a": [1], "b": [1]})
    d_rows = dict.fromkeys("ab", jnp.ones((1, 4)))
    state = twins.coll.apply_gradients(
        twins.state, residual, d_rows, learning_rate={"b": 0.5}
    )
    after, _, _ = twins.coll.find(state, {n: jde.ids([1]) for n in "ab"})
    for name, rate in (("a", 0.01), ("b", 0.5)):
        np.testing.assert_allclose(before[name] - after[name], rate, rtol=1e-5)


def test_hyper_parameters_given_to_the_call(platform):
    hyper = {"learning_rate": 0.3, "eps": 0.01, "b1": 0.5, "b2": 0.75}
    plain = make(jde.optim.adam(0.1))
    expected = make(jde.optim.adam(**hyper, weight_decay=0.25))

    @jax.jit
    def apply(state, residual, d_rows, numbers):
        return plain.coll.apply_gradients(state, residual, d_rows, hyper=numbers)

    numbers = {k: jnp.float32(x) for k, x in hyper.items()}
    numbers["weight_decay"] = jnp.float32(0.25)
    for step in range(3):
        d_rows = gradients((3, 8), step)
        _, residual, state = plain.coll.lookup(plain.state, {"t": jde.ids([1, 2, 1])})
        plain.state = apply(state, residual, {"t": d_rows}, {"t": numbers})
        _, residuals = expected.lookup({"t": [1, 2, 1]})
        expected.apply(residuals, {"t": d_rows})
    expected.check()
    rows = [export(t.coll, t.state, "t") for t in (plain, expected)]
    for key in (1, 2):
        np.testing.assert_array_equal(rows[0][key].values, rows[1][key].values)
    assert apply._cache_size() == 1


def test_lookups_of_several_shapes_and_one_update(platform):
    twins = make(jde.optim.adagrad(0.5), pooling="mean")
    inputs = [np.array([1, 2, 3]), np.array([[2, 2], [3, -1]])]
    pairs = []
    for seed, ids in enumerate(inputs):
        rows, residuals = twins.lookup({"t": ids})
        pairs.append((*residuals, {"t": gradients(rows["t"].shape, seed)}))
    residual, expected, d_rows = (list(each) for each in zip(*pairs, strict=True))
    twins.state = twins.coll.apply_gradients(twins.state, residual, d_rows)
    twins.oracle.apply_gradients(expected, d_rows)
    assert stat(twins, "t/step") == 1
    twins.check()


def test_tables_count_their_own_steps(platform):
    tables = [
        jde.TableConfig(name=n, dim=4, capacity=256, optimizer=jde.optim.adam(0.1))
        for n in "ab"
    ]
    twins = Twins(*tables)
    for step in range(3):
        ids = {"a": [1, 2], "b": [3, 4]} if step != 1 else {"a": [1, 2]}
        twins.train(ids, seed=step)
    assert (stat(twins, "a/step"), stat(twins, "b/step")) == (3, 2)
    twins.check()


def test_order_of_positions_does_not_matter(platform):
    # multiples of 1/16: sums are exact, so any order must give the same bits
    ids = np.random.default_rng(5).integers(0, 20, 300)
    d_rows = gradients((300, 8), 5)
    order = np.random.default_rng(6).permutation(300)
    results = []
    for permutation in (np.arange(300), order):
        twins = make(jde.optim.adam(0.1))
        _, residuals = twins.lookup({"t": ids[permutation]})
        twins.apply(residuals, {"t": d_rows[permutation]})
        results.append(twins.find({"t": np.arange(20)})[0]["t"])
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("skew", ["uniform", "heavy"])
def test_the_same_inputs_give_the_same_bits(platform, skew):
    rng = np.random.default_rng(7)
    ids = rng.integers(0, 200, 20_000) if skew == "uniform" else rng.zipf(1.3, 20_000)
    d_rows = rng.normal(size=(20_000, 8)).astype(np.float32)
    results = []
    for _ in range(3):
        twins = make(jde.optim.adagrad(0.1), capacity=65_536)
        _, residuals = twins.lookup({"t": ids})
        twins.apply(residuals, {"t": d_rows})
        twins.check(tolerance={"rtol": 1e-4, "atol": 1e-5})
        results.append(twins.find({"t": ids[:300]})[0]["t"])
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


@pytest.mark.parametrize("largest", [3_000, 9_000, 66_000])
def test_tables_and_features_of_unequal_size(platform, largest):
    """However many ids a table has, their gradients find its rows."""
    sizes = {"b1": 3, "a1": largest, "c1": 0, "b2": 5_000, "a2": 700, "a3": 1}
    optimizers = {"a": jde.optim.sgd(0.5), "b": jde.optim.adagrad(0.5)}
    twins = Twins(
        *(
            jde.TableConfig(
                table,
                dim=4,
                capacity=65_536,
                feature_names=tuple(f for f in sizes if f[0] == table),
                optimizer=optimizers.get(table, jde.optim.sgd(1.0)),
            )
            for table in "abc"
        )
    )
    rng = np.random.default_rng(8)
    ids = {f: rng.zipf(1.2, size) % 20_000 - 1 for f, size in sizes.items()}
    for seed in range(2):
        _, residuals = twins.lookup(ids)
        d_rows = {f: gradients((size, 4), seed) for f, size in sizes.items()}
        twins.apply(residuals, d_rows)
    twins.check()


def test_reduced_gradients(platform):
    twins = make(jde.optim.adagrad(0.1))
    ids = np.array([5, -1, 6, 5, 5])
    _, (residual, _) = twins.lookup({"t": ids})
    d_rows = {"t": jnp.asarray(gradients((5, 8), 9))}
    reduced, state = twins.coll.reduce_gradients(twins.state, residual, d_rows)
    slots, grads = np.asarray(reduced["t"].slots), np.asarray(reduced["t"].grads)
    assert slots.shape == (5,) and grads.shape == (5, 8)
    live = slots >= 0
    assert len(set(slots[live].tolist())) == live.sum() == 2
    assert (slots[~live] == -1).all() and (grads[~live] == 0).all()
    sums = {tuple(row) for row in grads[live].tolist()}
    d = np.asarray(d_rows["t"])
    assert sums == {tuple((d[0] + d[3] + d[4]).tolist()), tuple(d[2].tolist())}
    # gather and scatter move whole rows by those slots
    values, state = twins.coll.gather(state, {"t": reduced["t"].slots})
    stored = export(twins.coll, state, "t")
    got = {tuple(row) for row in np.asarray(values["t"]["values"])[live].tolist()}
    assert got == {tuple(stored[key].values.tolist()) for key in (5, 6)}
    doubled = {name: 2 * x + 1 for name, x in values["t"].items()}
    state = twins.coll.scatter(state, {"t": reduced["t"].slots}, {"t": doubled})
    for key, row in export(twins.coll, state, "t").items():
        np.testing.assert_array_equal(row.values, 2 * stored[key].values + 1)
        assert (row.state["sum_of_squares"] == 1).all()
