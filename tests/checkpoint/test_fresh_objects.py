# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A program that starts again builds its objects, restores into them, and trains."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec

import jax_dynemb as jde
from jax_dynemb import torchrec
from meshes import mesh_of

IDS = (np.arange(24) * 10**9).reshape(8, 3)
KEYED = torchrec.KeyedJaggedTensor(["a"], IDS.ravel(), lengths=np.full(8, 3, np.int32))


class Model(nnx.Module):
    def __init__(self, kind: str):
        rngs, mesh = nnx.Rngs(0), mesh_of(8)
        if kind == "jde.nnx":
            config = jde.TableConfig("a", dim=16, capacity=10_000, pooling="sum")
            self.sparse = jde.nnx.EmbeddingBagCollection([config], rngs=rngs, mesh=mesh)
        else:
            config = torchrec.EmbeddingBagConfig(10_000, 16, "a", feature_names=["a"])
            self.sparse = torchrec.EmbeddingBagCollection(
                [config], rngs=rngs, mesh=mesh
            )
        self.top = nnx.Linear(16, 1, rngs=rngs)
        self.dropout = nnx.Dropout(0.25, rngs=rngs)

    def __call__(self, batch):
        rows = self.sparse(batch)
        pooled = rows["a"] if isinstance(rows, dict) else rows.values()
        return self.top(self.dropout(pooled))


@jde.nnx.jit
def step(model, optimizer, batch):
    def loss_fn(model, batch):
        return (model(batch) ** 2).sum()

    loss, grads = jde.nnx.value_and_grad(loss_fn)(model, batch)
    optimizer.update(model, grads)
    return loss


@pytest.mark.parametrize("kind", ["jde.nnx", "torchrec"])
def test_a_model_on_a_mesh_trains_on(kind, tmp_path):
    batch = {"a": jde.ids(IDS)} if kind == "jde.nnx" else KEYED

    def build():
        model = Model(kind)
        return model, jde.nnx.Optimizer(model, optax.adam(1e-3))

    model, optimizer = build()
    step(model, optimizer, batch)
    run = {"model": model, "optimizer": optimizer}
    jde.checkpoint.save(tmp_path, 1, run, wait=True)
    expected = [float(step(model, optimizer, batch)) for _ in range(2)]
    for objects in (build(), nnx.eval_shape(build)):
        model, optimizer = objects
        jde.checkpoint.restore(tmp_path, {"model": model, "optimizer": optimizer})
        losses = [float(step(model, optimizer, batch)) for _ in range(2)]
        np.testing.assert_allclose(losses, expected, rtol=1e-6)


COLL = jde.Tables([jde.TableConfig("a", dim=4, capacity=10_000)], mesh=mesh_of(8))
TRAINS = jde.Tables(
    [jde.TTConfig("t", 4, 100, 2, optimizer=jde.optim.adam(0.1))], mesh=mesh_of(8)
)


@jax.jit
def functional_step(state, weights, key):
    rows, residual, state = COLL.lookup(state, {"a": jde.ids(np.arange(16))})
    noise = jax.random.normal(key, ())
    return COLL.apply_gradients(state, residual, rows), weights + noise


def tree(key) -> dict:
    return {"tables": COLL.init(0), "w": jnp.ones((4, 1)), "key": key}


@pytest.mark.parametrize("key", [jax.random.key(3), jax.random.PRNGKey(3)])
def test_plain_trees_on_a_mesh_train_on(tmp_path, key):
    saved = tree(key)
    saved["tables"], saved["w"] = functional_step(saved["tables"], saved["w"], key)
    jde.checkpoint.save(tmp_path, 1, saved, tables=COLL, wait=True)
    other = jax.tree.map(jnp.zeros_like, key) if key.ndim else jax.random.key(0)
    shapes = jax.eval_shape(lambda: tree(key))
    for like in (tree(other), shapes):
        new = jde.checkpoint.restore(tmp_path, like, tables=COLL).tree
        assert new["w"].sharding.is_equivalent_to(replicated(), 2)
        np.testing.assert_array_equal(new["w"], saved["w"])
        assert new["key"].dtype == key.dtype
        state, weights = functional_step(new["tables"], new["w"], new["key"])
        expected = functional_step(saved["tables"], saved["w"], key)[1]
        np.testing.assert_array_equal(weights, expected)
        assert COLL.stats(state)["a/rows"] == 16


def replicated() -> NamedSharding:
    return NamedSharding(mesh_of(8), PartitionSpec())


def test_what_a_program_had_sharded_keeps_its_sharding(tmp_path):
    rows = NamedSharding(mesh_of(8), PartitionSpec("data"))
    half = NamedSharding(mesh_of(2), PartitionSpec("data"))

    def build(fill: float) -> dict:
        return {
            "tables": COLL.init(0),
            "rows": jax.device_put(jnp.full((16, 2), fill), rows),
            "half": jax.device_put(jnp.full((16, 2), fill), half),
            "one": jax.device_put(jnp.full(3, fill), jax.devices()[3]),
        }

    jde.checkpoint.save(tmp_path, 1, build(1.0), tables=COLL, wait=True)
    new = jde.checkpoint.restore(tmp_path, build(0.0), tables=COLL).tree
    assert new["rows"].sharding == rows and new["half"].sharding == half
    assert new["one"].sharding.is_equivalent_to(replicated(), 1)
    for name in ("rows", "half", "one"):
        np.testing.assert_array_equal(new[name], np.ones_like(new[name]))


def test_tensor_trains_alone_are_on_the_whole_mesh(tmp_path):
    jde.checkpoint.save(tmp_path, 1, TRAINS.init(0), tables=TRAINS, wait=True)
    for like in (TRAINS.init(1), jax.eval_shape(TRAINS.init)):
        state = jde.checkpoint.restore(tmp_path, like, tables=TRAINS).tree
        rows, residual, state = TRAINS.lookup(state, {"t": jde.ids([1, 2])})
        TRAINS.apply_gradients(state, residual, rows)


@pytest.mark.parametrize("like", [jnp.zeros(3), jax.ShapeDtypeStruct((3,), "float32")])
def test_a_tree_without_tables_goes_anywhere(like, tmp_path):
    """Single arrays, whose tables may be in another tree and on a mesh."""
    jde.checkpoint.save(tmp_path, 1, jnp.arange(3.0), wait=True)
    array = jde.checkpoint.restore(tmp_path, like).tree
    assert not array.committed
    np.testing.assert_array_equal(array, np.arange(3.0))
    on_mesh = jax.device_put(jnp.ones(3), replicated())
    np.testing.assert_array_equal(jax.jit(jnp.add)(array, on_mesh), np.arange(3) + 1)
    committed = jax.device_put(jnp.zeros(3), jax.devices()[2])
    again = jde.checkpoint.restore(tmp_path, committed).tree
    assert again.committed and again.devices() == {jax.devices()[2]}
