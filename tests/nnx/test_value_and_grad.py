# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Row gradients through modules: the functional core's, whatever the model is like."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import jax_dynemb as jde


def assert_trees_close(a, b, **tolerance):
    tolerance = tolerance or {"rtol": 1e-5, "atol": 1e-7}
    a, b = jax.tree.leaves(a), jax.tree.leaves(b)
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(x, y, **tolerance)


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
    assert_trees_close(grads.dense["top"], d_params)
    (lookup,) = grads.rows
    assert lookup.path == ("sparse",)
    assert_trees_close(lookup.d_rows, d_rows)
    jde.nnx.update_tables(model, grads)
    # Which slot a key gets is nobody's business: the rows of the ids are compared.
    wanted, _, _ = coll.find(state, batch["ids"])
    found, _, _ = coll.find(model.sparse.get_state(), batch["ids"])
    assert_trees_close(found, wanted)


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
    assert_trees_close(grads.dense, _twice(once.dense))
    assert_trees_close(grads.rows[0].d_rows, _twice(once.rows[0].d_rows))
    decorated = jde.nnx.value_and_grad(has_aux=True)(loss_fn)
    assert jnp.isfinite(decorated(model, batch, 1.0, power=2)[0][0])


def _twice(tree):
    return jax.tree.map(lambda x: 2 * x, tree)


def test_nested_modules_and_several_collections(kit):
    class Tower(nnx.Module):
        def __init__(self, rngs):
            self.embed = jde.nnx.DynamicEmbed(4, 256, rngs=rngs)
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


def test_argnums_of_two_models():
    def loss_fn(user, batch, item):
        return (user(batch["user"]) * item(batch["item"])).sum()

    def embed(seed):
        return jde.nnx.DynamicEmbed(
            4, 256, optimizer=jde.optim.sgd(1.0), rngs=nnx.Rngs(seed)
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
    assert_trees_close(with_filter.rows[0].d_rows["embedding"], users)


def test_a_model_without_tables_gets_plain_nnx():
    model = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
    x = jnp.arange(6.0).reshape(2, 3)

    def loss_fn(model, x):
        return (model(x) ** 2).sum()

    ours = jde.nnx.value_and_grad(loss_fn)(model, x)
    theirs = nnx.value_and_grad(loss_fn)(model, x)
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    assert_trees_close(ours, theirs)


def test_plain_nnx_differentiates_the_dense_part(kit):
    model, batch = kit.model(), kit.batch(0)
    _, grads = jde.nnx.value_and_grad(kit.loss)(model, batch)
    loss, dense = nnx.value_and_grad(kit.loss)(model, batch)
    assert jnp.isfinite(loss)
    assert_trees_close(dense, grads.dense)
    assert_trees_close(nnx.grad(kit.loss)(model, batch), grads.dense)
    assert model.sparse.stats()["cat/lookups"] == 3  # and its lookups insert


def test_a_loss_that_does_not_look_up(kit):
    model = kit.model()
    _, grads = jde.nnx.value_and_grad(lambda m: (m.top(jnp.ones((1, 10))) ** 2).sum())(
        model
    )
    assert grads.rows == ()
    model.eval()
    _, grads = jde.nnx.value_and_grad(kit.loss)(model, kit.batch(0))
    assert grads.rows == ()


@pytest.mark.parametrize("inner", ["jit", "remat", "scan", "cond"])
def test_a_lookup_inside_an_inner_transformation_is_refused(kit, inner):
    def lookup(model, ids):
        return model.sparse({"C2": ids})["C2"].sum()

    def scan(model, ids):
        return nnx.scan(
            lambda model, i: (model, lookup(model, i)), in_axes=(nnx.Carry, 0)
        )(model, ids)[1].sum()

    def cond(model, ids):
        return nnx.cond(True, lookup, lambda model, ids: 0.0, model, ids)

    inners = {
        "jit": nnx.jit(lookup),
        "remat": nnx.remat(lookup),
        "scan": scan,
        "cond": cond,
    }
    with pytest.raises(ValueError, match="within the loss"):
        jde.nnx.value_and_grad(inners[inner])(kit.model(), kit.batch(0)["ids"]["C2"])


def test_remat_and_scan_over_the_dense_part(kit):
    model, ids = kit.model(), kit.batch(0)["ids"]

    def plain(model, ids):
        rows = jnp.concatenate(list(model.sparse(ids).values()), axis=-1)
        return model.top(rows).sum()

    def with_remat(model, ids):
        rows = jnp.concatenate(list(model.sparse(ids).values()), axis=-1)
        return nnx.remat(lambda top, rows: top(rows).sum())(model.top, rows)

    _, expected = jde.nnx.value_and_grad(plain)(model, ids)
    _, grads = jde.nnx.value_and_grad(with_remat)(model, ids)
    assert_trees_close(grads.dense, expected.dense)
    assert_trees_close(grads.rows[0].d_rows, expected.rows[0].d_rows)


def test_an_array_argument_and_no_leaked_tracers():
    embed = jde.nnx.DynamicEmbed(4, 256, rngs=nnx.Rngs(0))

    def loss_fn(embed, x):
        return (embed(jde.ids([1, 2])) * x).sum()

    gradient = jde.nnx.value_and_grad(loss_fn, argnums=(0, 1))
    with jax.checking_leaks():
        _, (of_embed, of_x) = jax.tree.map(
            jnp.asarray, nnx.jit(gradient)(embed, jnp.ones((2, 4)))
        )
    np.testing.assert_array_equal(of_x.dense, embed(jde.ids([1, 2])))
    assert len(of_embed.rows) == 1


@pytest.mark.parametrize("graph", [True, False])
def test_other_modes_of_nnx(kit, graph):
    def train():
        model = kit.model()
        optimizer = jde.nnx.Optimizer(model, optax.sgd(0.1))

        @jde.nnx.jit
        def step(model, optimizer, batch):
            loss, grads = jde.nnx.value_and_grad(kit.loss)(model, batch)
            optimizer.update(model, grads)
            return loss

        return [float(step(model, optimizer, kit.batch(0))) for _ in range(3)]

    expected = train()
    with nnx.set_graph_mode(graph), nnx.set_graph_updates(False):
        np.testing.assert_allclose(train(), expected, rtol=1e-6)


def test_a_closed_over_model_is_refused(kit):
    model, batch = kit.model(), kit.batch(0)
    with pytest.raises(ValueError, match="as an argument"):
        jax.grad(lambda scale: scale * kit.loss(model, batch))(1.0)
