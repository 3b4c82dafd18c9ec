# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Results by feature are in the order of the configs, even if JAX sorts dicts."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde

# The order is neither that of the alphabet nor that of any batch below.
TABLES = [
    jde.TableConfig("zoo", 4, 256, feature_names=("m", "b"), pooling="sum"),
    jde.TableConfig("art", 4, 256, feature_names=("y", "c"), pooling="sum"),
]
ORDER = ["m", "b", "y", "c"]


def batch(order) -> dict[str, jax.Array]:
    ids = {name: jde.ids(np.arange(6) + 100 * i) for i, name in enumerate(ORDER)}
    return {name: ids[name] for name in order}


@pytest.mark.parametrize("options", [{}, {"share_arrays": True}])
def test_every_order_of_ids_gives_the_order_of_the_configs(options):
    coll = jde.Tables(TABLES, **options)
    state, seen = coll.init(0), []
    for order in itertools.permutations(ORDER):
        if order[0] not in "mc":
            continue  # half of them will do
        rows, residual, new = coll.lookup(state, batch(order))
        found_rows, found, _ = coll.find(new, batch(order))
        for given in (rows, residual.features, found_rows, found):
            assert list(given) == ORDER
        seen.append(jnp.concatenate(list(rows.values()), axis=-1))
    for each in seen:
        np.testing.assert_array_equal(each, seen[0])


def test_fewer_features_keep_their_order():
    coll = jde.Tables(TABLES)
    for some in (["c", "m"], ["y", "b"], ["c"]):
        rows, residual, _ = coll.lookup(coll.init(0), batch(some))
        wanted = [name for name in ORDER if name in some]
        assert list(rows) == list(residual.features) == wanted


def test_jit_grad_scan_and_cond_keep_the_order():
    coll = jde.Tables(TABLES)
    state, ids = coll.init(0), batch("bcmy")
    rows, residual, new = jax.jit(coll.lookup)(state, ids)
    assert list(rows) == list(residual.features) == ORDER
    orders = []

    def loss(rows):
        orders.append(list(rows))
        return jnp.sum(jnp.concatenate(list(rows.values()), -1) ** 2)

    _, d_rows = jax.jit(jax.value_and_grad(loss))(rows)
    assert list(d_rows) == ORDER and orders == [ORDER]

    def body(state, ids):
        rows, residual, state = coll.lookup(state, ids)
        return state, (rows, residual)

    many = jax.tree.map(lambda x: jnp.stack([x, x]), ids)
    _, (stacked, residuals) = jax.lax.scan(body, new, many)
    assert list(stacked) == list(residuals.features) == ORDER
    either = jax.lax.cond(
        True, lambda r: r, lambda r: jax.tree.map(jnp.negative, r), rows
    )
    assert list(either) == ORDER


@pytest.mark.parametrize("jit", [False, True])
def test_gradients_may_be_a_plain_dict_of_any_order(jit):
    coll = jde.Tables(TABLES)
    rows, residual, state = coll.lookup(coll.init(0), batch(ORDER))
    apply = jax.jit(coll.apply_gradients) if jit else coll.apply_gradients
    d_rows = {name: jnp.full((6, 4), i + 1.0) for i, name in enumerate(ORDER)}
    expected = {name: x - 0.01 * d_rows[name] for name, x in rows.items()}
    for order in (ORDER, "bcmy", "ycbm"):
        new = apply(state, residual, {name: d_rows[name] for name in order})
        after, _, _ = coll.find(new, batch("cbym"))
        for name in ORDER:
            np.testing.assert_allclose(after[name], expected[name], rtol=1e-6)


def test_a_model_trained_under_jit_is_right_outside():
    """Concatenated rows go to weights by position, so their order is the model.

    Each feature's row must be read with a weight of its own: feature "m" says the label
    and the others say the opposite half of the time.
    """
    optimizer = jde.optim.sgd(0.0)  # rows stay; only the weights learn
    ones = jde.initializers.debug()
    tables = [
        jde.TableConfig(n, 1, 256, initializer=ones, optimizer=optimizer)
        for n in ("zoo", "art")
    ]
    coll = jde.Tables(tables)
    draw = np.random.default_rng(0)
    label = draw.integers(0, 2, 256)
    noise = draw.integers(0, 2, 256)
    ids = {"art": jde.ids(noise), "zoo": jde.ids(label)}  # the row of id n is n

    def logits(weights, rows):
        return jnp.concatenate(list(rows.values()), -1) @ weights - 0.5

    @jax.jit
    def step(weights, state, ids):
        rows, residual, state = coll.lookup(state, ids)

        def loss(weights, rows):
            return jnp.mean((logits(weights, rows) - (label - 0.5)) ** 2)

        d_weights, d_rows = jax.grad(loss, (0, 1))(weights, rows)
        state = coll.apply_gradients(state, residual, d_rows)
        return weights - 0.5 * d_weights, state

    weights, state = jnp.zeros(2), coll.init(0)
    for _ in range(200):
        weights, state = step(weights, state, ids)
    for order in (["art", "zoo"], ["zoo", "art"]):
        rows, _, _ = coll.find(state, {name: ids[name] for name in order})
        assert np.mean(np.asarray(logits(weights, rows) > 0) == (label == 1)) == 1.0
