# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Row gradients through modules: the functional core's, whatever the model is like."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import jax_dynemb as jde


def test_equals_the_functional_core(platform, kit):
    model, batch = kit.model(), kit.batch(0)
    coll, state = model.sparse.coll, model.sparse.get_state()
    graphdef, params, rest = nnx.split(model.top, nnx.Param, ...)

    def loss_of(params, rows):
        top = nnx.merge(graphdef, params, rest)
        logits = top(jnp.concatenate(list(rows.values()), axis=-1))[:, 0]
        return -jnp.mean(logits * (batch["label"] - 0.5))

    rows, residual, state = coll.lookup(state, batch["ids"])
    expected, (d_params, d_rows) = jax.value_and_grad(loss_of, (0, 1))(params, rows)
    state = coll.apply_gradients(state, residual, d_rows)

    def loss_fn(model, batch):
        return -jnp.mean(model(batch["ids"]) * (batch["label"] - 0.5))

    loss, grads = jde.nnx.value_and_grad(loss_fn)(model, batch)
    np.testing.assert_allclose(loss, expected, rtol=1e-6)
    kit.assert_close(grads.dense["top"], d_params)
    (lookup,) = grads.rows
    assert lookup.path == ("sparse",)
    kit.assert_close(lookup.d_rows, d_rows)
    jde.nnx.update_tables(model, grads)
    # Any slot of a key will do: the rows of the ids are compared.
    wanted, _, _ = coll.find(state, batch["ids"])
    found, _, _ = coll.find(model.sparse.get_state(), batch["ids"])
    kit.assert_close(found, wanted)


def test_lookups_insert_once_and_copies_leave_no_trace(kit):
    model = kit.model()
    dropout = nnx.Dropout(0.5, rngs=nnx.Rngs(1))
    model.dropout = dropout

    def loss_fn(model, batch):
        return model.dropout(model(batch["ids"])).sum()

    jde.nnx.value_and_grad(loss_fn)(model, kit.batch(0))
    assert model.sparse.stats()["cat/lookups"] == 1
    assert int(dropout.rngs.count[...]) == 1


def test_aux_keywords_and_static_arguments(kit):
    model, batch = kit.model(), kit.batch(0)

    def loss_fn(model, batch, scale, *, power, name="mean"):
        assert name == "mean"  # a static argument stays what it is
        loss = kit.loss(model, batch)
        return scale * loss**power, {"loss": loss, "name": name}

    gradient = jde.nnx.value_and_grad(loss_fn, has_aux=True)
    (loss, aux), grads = gradient(model, batch=batch, scale=2.0, power=1)
    np.testing.assert_allclose(loss, 2 * aux["loss"], rtol=1e-6)
    assert aux["name"] == "mean"
    _, once = jde.nnx.value_and_grad(kit.loss)(model, batch)
    kit.assert_close(grads.dense, _twice(once.dense))
    kit.assert_close(grads.rows[0].d_rows, _twice(once.rows[0].d_rows))
    decorated = jde.nnx.value_and_grad(has_aux=True)(loss_fn)
    assert jnp.isfinite(decorated(model, batch, 1.0, power=2)[0][0])


def _twice(tree):
    return jax.tree.map(lambda x: 2 * x, tree)


def test_nested_modules_and_several_collections(kit):
    class Tower(nnx.Module):
        def __init__(self, rngs):
            self.embed = jde.nnx.DynamicEmbed(features=4, capacity=256, rngs=rngs)
            self.linear = nnx.Linear(4, 3, rngs=rngs)

        def __call__(self, ids):
            return self.linear(self.embed(ids))

    class TwoTowers(nnx.Module):
        def __init__(self, rngs):
            self.towers = nnx.List([Tower(rngs), Tower(rngs)])

        def __call__(self, ids):
            user, item = (tower(ids) for tower in self.towers)
            return (user * item).sum(-1)

    model, ids = TwoTowers(nnx.Rngs(0)), jde.ids([1, 2, 1])
    optimizer = jde.nnx.Optimizer(model, optax.sgd(0.1))
    gradient = jde.nnx.value_and_grad(lambda m, ids: m(ids).sum())
    losses = []
    for _ in range(3):
        loss, grads = gradient(model, ids)
        optimizer.update(model, grads)
        losses.append(float(loss))
    assert [r.path for r in grads.rows] == [
        ("towers", 0, "embed"),
        ("towers", 1, "embed"),
    ]
    assert losses == sorted(losses, reverse=True)


def test_argnums_of_two_models(kit):
    def loss_fn(user, batch, item):
        return (user(batch["user"]) * item(batch["item"])).sum()

    def embed(seed):
        return jde.nnx.DynamicEmbed(
            features=4,
            capacity=256,
            optimizer=jde.optim.sgd(1.0),
            rngs=nnx.Rngs(seed),
        )

    user, item = embed(0), embed(1)
    batch = {"user": jde.ids([1, 2]), "item": jde.ids([3, 3])}
    gradient = jde.nnx.value_and_grad(loss_fn, argnums=(0, 2))
    _, (of_user, of_item) = gradient(user, batch, item)
    (d_user,), (d_item,) = of_user.rows, of_item.rows
    items = item(batch["item"], train=False)
    np.testing.assert_allclose(d_user.d_rows["embedding"], items, rtol=1e-6)
    users = user(batch["user"], train=False)
    np.testing.assert_allclose(d_item.d_rows["embedding"], users, rtol=1e-6)
    jde.nnx.update_tables(item, of_item)
    moved = items - users.sum(0, keepdims=True)
    np.testing.assert_allclose(item(batch["item"]), moved, rtol=1e-6)
    _, only = jde.nnx.value_and_grad(loss_fn)(user, batch, item)
    assert len(only.rows) == 1  # the table of the other argument is a constant
    _, with_filter = jde.nnx.value_and_grad(
        loss_fn, argnums=nnx.DiffState(2, nnx.Param)
    )(user, batch, item)
    kit.assert_close(with_filter.rows[0].d_rows["embedding"], users)
