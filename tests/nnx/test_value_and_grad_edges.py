# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Row gradients at the edges: no tables, no lookups, other modes, refused places."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import jax_dynemb as jde


def test_a_model_without_tables_gets_plain_nnx(kit):
    model = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
    x = jnp.arange(6.0).reshape(2, 3)

    def loss_fn(model, x):
        return (model(x) ** 2).sum()

    ours = jde.nnx.value_and_grad(loss_fn)(model, x)
    theirs = nnx.value_and_grad(loss_fn)(model, x)
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    kit.assert_close(ours, theirs)


@pytest.mark.filterwarnings("ignore:.* plain nnx.grad")
def test_plain_nnx_differentiates_the_dense_part(kit):
    model, batch = kit.model(), kit.batch(0)
    _, grads = jde.nnx.value_and_grad(kit.loss)(model, batch)
    loss, dense = nnx.value_and_grad(kit.loss)(model, batch)
    assert jnp.isfinite(loss)
    kit.assert_close(dense, grads.dense)
    kit.assert_close(nnx.grad(kit.loss)(model, batch), grads.dense)
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
    kit.assert_close(grads.dense, expected.dense)
    kit.assert_close(grads.rows[0].d_rows, expected.rows[0].d_rows)


def test_an_array_argument_and_no_leaked_tracers():
    embed = jde.nnx.DynamicEmbed(features=4, capacity=256, rngs=nnx.Rngs(0))

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
