# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Updates of dense part and tables: micro-batches, clipping, learning rates."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import jax_dynemb as jde

CLOSE = {"rtol": 1e-5, "atol": 1e-6}


def rows_of(model, batch):
    rows = model.sparse(batch["ids"], train=False)
    return np.concatenate([np.asarray(rows[name]) for name in rows], axis=-1)


def test_updates_dense_part_and_tables(kit):
    model, batch = kit.model(), kit.batch(0)
    optimizer = jde.nnx.Optimizer(model, optax.adam(1e-2))
    losses = [float(kit.step(model, optimizer, batch)) for _ in range(20)]
    assert losses[-1] < 0.8 * losses[0]
    assert int(optimizer.step[...]) == 20
    assert model.sparse.stats()["dog/step"] == 20


def test_plain_gradients_update_the_dense_part_only(kit):
    model, batch = kit.model(), kit.batch(0)
    optimizer = jde.nnx.Optimizer(model, optax.sgd(0.1))
    grads = kit.gradient(model, batch)
    before, kernel = rows_of(model, batch), model.top.layers[0].kernel[...]
    optimizer.update(model, grads.dense)
    np.testing.assert_array_equal(rows_of(model, batch), before)
    assert np.any(np.asarray(kernel != model.top.layers[0].kernel[...]))


def halves(batch):
    first = jax.tree.map(lambda x: x[:6], batch)
    return first, jax.tree.map(lambda x: x[6:], batch)


@pytest.mark.parametrize("optimizer", [jde.optim.adam(0.1), optax.adam(0.1)])
def test_micro_batches_put_together_equal_one_batch(kit, optimizer):
    batch = kit.batch(0)
    whole, parts = kit.model(optimizer=optimizer), kit.model(optimizer=optimizer)
    tx = optax.adam(0.1)
    of_whole, of_parts = jde.nnx.Optimizer(whole, tx), jde.nnx.Optimizer(parts, tx)
    kit.step(whole, of_whole, batch)

    @jde.nnx.jit
    def step(model, optimizer, first, second):
        gradient = jde.nnx.value_and_grad(kit.loss)
        (_, a), (_, b) = gradient(model, first), gradient(model, second)
        optimizer.update(model, (a + b) * 0.5)

    step(parts, of_parts, *halves(batch))
    np.testing.assert_allclose(rows_of(parts, batch), rows_of(whole, batch), **CLOSE)
    assert parts.sparse.stats()["cat/step"] == 1


def test_micro_batches_in_a_scan_equal_one_batch(kit):
    batch = kit.batch(0)
    whole, parts = kit.model(), kit.model()
    tx = optax.sgd(0.1)
    of_whole, of_parts = jde.nnx.Optimizer(whole, tx), jde.nnx.Optimizer(parts, tx)
    kit.step(whole, of_whole, batch)

    @jde.nnx.jit
    def step(model, optimizer, stacked):
        def micro(model, batch):
            return model, jde.nnx.value_and_grad(kit.loss)(model, batch)[1]

        axes = {"in_axes": (nnx.Carry, 0), "out_axes": (nnx.Carry, 0)}
        model, grads = nnx.scan(micro, **axes)(model, stacked)
        optimizer.update(model, grads.sum_over_scan() * 0.5)

    stacked = jax.tree.map(lambda x: x.reshape(2, 6, *x.shape[1:]), batch)
    step(parts, of_parts, stacked)
    np.testing.assert_allclose(rows_of(parts, batch), rows_of(whole, batch), **CLOSE)
    assert parts.sparse.stats()["cat/step"] == 1
    assert parts.sparse.stats()["cat/lookups"] == 2


def test_micro_batches_one_after_the_other(kit):
    model = kit.model()
    optimizer = jde.nnx.Optimizer(model, optax.sgd(0.1))
    for half in halves(kit.batch(0)):
        kit.step(model, optimizer, half)
    assert model.sparse.stats()["cat/step"] == 2


def test_learning_rate_of_the_tables(kit):
    model, batch = kit.model(optimizer=jde.optim.sgd(1.0)), kit.batch(0)
    optimizer = jde.nnx.Optimizer(model, optax.sgd(0.0))
    grads = kit.gradient(model, batch)
    before = rows_of(model, batch)
    optimizer.update(model, grads, table_learning_rate=0.0)
    np.testing.assert_array_equal(rows_of(model, batch), before)
    optimizer.update(model, grads, table_learning_rate={"cat": 0.0})
    moved = rows_of(model, batch) != before
    assert not moved[:, :8].any() and moved[:, 8:].any()
    before = rows_of(model, batch)
    for rates in ({"cat": 0.1, "typo": 0.1}, {"typo": 0.1}):
        with pytest.raises(ValueError, match=r"learning rates of \['typo'\]"):
            optimizer.update(model, grads, table_learning_rate=rates)
    np.testing.assert_array_equal(rows_of(model, batch), before)


def test_clip_by_global_norm(kit):
    model = kit.model()
    grads = kit.gradient(model, kit.batch(0))
    (lookup,) = grads.rows
    reduced, _ = model.sparse.coll.reduce_gradients(
        model.sparse.get_state(), lookup.residual, lookup.d_rows
    )
    leaves = [*jax.tree.leaves(grads.dense), *(r.grads for r in reduced.values())]
    for max_norm in (1e-3, 1e3):
        clipped, norm = jde.nnx.clip_by_global_norm(max_norm, model, grads)
        np.testing.assert_allclose(norm, optax.tree.norm(leaves), rtol=1e-5)
        factor = min(1.0, max_norm / float(norm))
        assert jax.tree.structure(clipped) == jax.tree.structure(grads)
        every = (grads.dense, lookup.d_rows), (clipped.dense, clipped.rows[0].d_rows)
        for a, b in zip(*map(jax.tree.leaves, every), strict=True):
            np.testing.assert_allclose(b, factor * a, **CLOSE)


def test_the_wrong_model_is_refused(kit):
    model = kit.model()
    grads = kit.gradient(model, kit.batch(0))
    with pytest.raises(ValueError, match="Pass the model that was differentiated"):
        jde.nnx.update_tables(model.top, grads)


def test_a_model_of_nothing_but_tables(kit):
    embed = jde.nnx.DynamicEmbed(features=4, capacity=256, rngs=nnx.Rngs(0))
    optimizer = jde.nnx.Optimizer(embed, optax.adam(1e-2))
    _, grads = jde.nnx.value_and_grad(lambda m, ids: m(ids).sum())(
        embed, jde.ids([1, 2])
    )
    optimizer.update(embed, grads)
    assert embed.stats()["embedding/step"] == 1
    assert jnp.all(grads.rows[0].d_rows["embedding"] == 1)
