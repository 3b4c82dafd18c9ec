# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tables split over "data", a dense part whose weights are split over "model"."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import jax_dynemb as jde
from meshes import grid
from support import export

BATCH, HIDDEN, STEPS = 8, 6, 3
TABLES = [
    jde.TableConfig(
        "cat", 4, 1024, feature_names=("C1", "C2"), optimizer=jde.optim.adagrad(0.1)
    ),
    jde.TableConfig("dog", 2, 1024, optimizer=jde.optim.adam(0.1)),
]


class Clicks(nnx.Module):
    """Two layers: the first gives each device of "model" some hidden units."""

    def __init__(self, mesh=None):
        draw = np.random.default_rng(0)
        self.sparse = jde.nnx.EmbeddingBagCollection(
            TABLES, rngs=nnx.Rngs(0), mesh=mesh, axis=None if mesh is None else "data"
        )
        self.mesh = mesh
        self.w1 = nnx.Param(self.put(draw.normal(size=(10, HIDDEN)), None, "model"))
        self.w2 = nnx.Param(self.put(draw.normal(size=(HIDDEN, 1)), "model", None))

    def put(self, array, *spec):
        array = jnp.asarray(array, jnp.float32)
        if self.mesh is None:
            return array
        return jax.device_put(array, NamedSharding(self.mesh, PartitionSpec(*spec)))

    def __call__(self, ids):
        rows = self.sparse(ids)
        x = jnp.concatenate([rows[f] for f in ("C1", "C2", "dog")], axis=-1)
        explicit = self.mesh is not None and AxisType.Explicit in self.mesh.axis_types
        # A sum over a split axis has two results; explicit axes want to know which.
        out = NamedSharding(self.mesh, PartitionSpec("data")) if explicit else None
        hidden = jnp.tanh(x @ self.w1.get_value())
        return jnp.einsum("bh,ho->bo", hidden, self.w2.get_value(), out_sharding=out)


def loss_fn(model, ids, label):
    logits = model(ids)[:, 0]
    return optax.sigmoid_binary_cross_entropy(logits, label).mean()


def train(mesh):
    """Losses, gradients of the first step, and what is there at the end."""
    model = Clicks(mesh)
    optimizer = jde.nnx.Optimizer(model, optax.sgd(0.5))

    @jde.nnx.jit
    def step(model, optimizer, ids, label):
        loss, grads = jde.nnx.value_and_grad(loss_fn)(model, ids, label)
        optimizer.update(model, grads)
        return loss

    losses = []
    for n in range(STEPS):
        draw = np.random.default_rng(n)
        ids = {
            "C1": jde.ids(draw.integers(0, 30, BATCH)),
            "C2": jde.ids(draw.integers(-1, 30, (BATCH, 3))),
            "dog": jde.ids(draw.integers(0, 9, BATCH)),
        }
        label = jnp.asarray(draw.integers(0, 2, BATCH), jnp.float32)
        if mesh is not None:
            split = NamedSharding(mesh, PartitionSpec("data"))
            ids, label = jax.device_put((ids, label), split)
        losses.append(float(step(model, optimizer, ids, label)))
    state = model.sparse.get_state()
    tables = {t.name: export(model.sparse.coll, state, t.name) for t in TABLES}
    if mesh is not None:
        assert model.w1.get_value().sharding.spec == PartitionSpec(None, "model")
        assert model.sparse.stats()["cat/rows"] == len(tables["cat"])
    return losses, [np.asarray(w.get_value()) for w in (model.w1, model.w2)], tables


@pytest.fixture(scope="module")
def alone():
    return train(None)


@pytest.mark.parametrize("kind", ["auto", "explicit"])
def test_a_tensor_parallel_model_trains_as_on_one_device(kind, alone):
    losses, weights, tables = train(grid(explicit=kind == "explicit"))
    np.testing.assert_allclose(losses, alone[0], rtol=1e-5)
    for ours, theirs in zip(weights, alone[1], strict=True):
        # After plain descent the weights differ from the first ones by the gradients.
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    for name, rows in alone[2].items():
        assert tables[name].keys() == rows.keys() and rows
        for key, row in rows.items():
            ours = tables[name][key]
            np.testing.assert_allclose(ours.values, row.values, rtol=1e-5, atol=1e-6)
            for leaf, state in row.state.items():
                np.testing.assert_allclose(
                    ours.state[leaf], state, rtol=1e-4, atol=1e-7
                )
