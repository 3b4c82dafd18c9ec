# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Per-id weights: pooled like the fused kernel, with gradients like a dense table's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import jax_dynemb as jde

IDS = np.array([[5, 6, -1], [6, 6, 7], [-1, -1, -1]])
WEIGHTS = np.array([[0.5, -2.0, 9.0], [1.0, 0.25, 3.0], [1.0, 1.0, 1.0]], "f4")
CLOSE = {"rtol": 1e-5, "atol": 1e-6}


def make(pooling, **options):
    table = jde.TableConfig(
        "cat",
        4,
        256,
        feature_names=("a", "b"),
        pooling=pooling,
        optimizer=jde.optim.sgd(1.0),
        **options,
    )
    return jde.nnx.EmbeddingBagCollection([table], rngs=nnx.Rngs(0))


def dense_pool(embedding, ids, weights, pooling):
    """Pools in plain JAX on a table indexed by id."""
    valid = np.asarray(ids >= 0, "f4")
    rows = embedding[np.maximum(ids, 0)] * (weights * valid)[..., None]
    count = np.maximum(valid.sum(-1, keepdims=True), 1)
    return rows.sum(1) / (count if pooling == "mean" else 1)


@pytest.mark.parametrize("pooling", ["sum", "mean"])
@pytest.mark.parametrize("train", [True, False])
def test_equals_the_fused_pooling(pooling, train):
    sparse = make(pooling)
    ids, weights = {"a": jde.ids(IDS)}, {"a": jnp.asarray(WEIGHTS)}
    sparse(ids)
    lookup = sparse.coll.lookup if train else sparse.coll.find
    expected, _, _ = lookup(sparse.get_state(), ids, weights)
    rows = sparse(ids, weights, train=train)
    np.testing.assert_allclose(rows["a"], expected["a"], **CLOSE)


@pytest.mark.filterwarnings("ignore:.* plain nnx.grad")
@pytest.mark.parametrize("pooling", ["sum", "mean"])
def test_gradients_equal_a_dense_table(platform, pooling):
    class Attention(nnx.Module):
        def __init__(self):
            self.sparse = make(pooling)
            self.scores = nnx.Param(jnp.asarray(WEIGHTS))

        def __call__(self, ids):
            ids = {"a": ids, "b": ids[:, 0]}  # b has no weights, but a's table
            return self.sparse(ids, {"a": jnp.tanh(self.scores[...])})

    model, ids = Attention(), jde.ids(IDS)
    model(ids)
    every = jde.ids(np.arange(8))
    embedding = model.sparse({"b": every}, train=False)["b"]
    target = jnp.arange(12.0).reshape(3, 4)

    def loss_fn(model, ids):
        rows = model(ids)
        return (rows["a"] * target).sum() + (rows["b"] ** 2).sum()

    def dense_loss(embedding, scores):
        pooled = dense_pool(embedding, IDS, jnp.tanh(scores), pooling)
        valid = np.asarray(IDS[:, :1] >= 0, "f4")
        single = embedding[np.maximum(IDS[:, 0], 0)] * valid
        return (pooled * target).sum() + (single**2).sum()

    @jde.nnx.jit
    def gradients(model, ids):
        loss, grads = jde.nnx.value_and_grad(loss_fn)(model, ids)
        # Plain nnx sees the weights too, with the rows as constants.
        return loss, grads, nnx.grad(loss_fn)(model, ids)["scores"][...]

    loss, grads, plain = gradients(model, ids)
    np.testing.assert_allclose(grads.dense["scores"][...], plain, rtol=1e-5)
    expected, (d_embedding, d_scores) = jax.value_and_grad(dense_loss, (0, 1))(
        embedding, jnp.asarray(WEIGHTS)
    )
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    np.testing.assert_allclose(grads.dense["scores"][...], d_scores, **CLOSE)
    jde.nnx.update_tables(model, grads)
    moved = model.sparse({"b": every}, train=False)["b"]
    seen = np.unique(IDS[IDS >= 0])
    np.testing.assert_allclose(
        moved[seen], (embedding - d_embedding)[seen], rtol=1e-5, atol=1e-5
    )


def test_jagged_weights(platform):
    sparse = make("mean")
    bags = [[5, 6], [], [6, 6, 7]]
    jagged = {"a": jde.Jagged.from_lists(bags, capacity=7)}
    weights = {"a": jnp.asarray([1.0, 2.0, 3.0, 4.0, 5.0, np.nan, np.nan])}
    rows = sparse(jagged, weights)["a"]
    assert rows.shape == (3, 4)
    expected, _, _ = sparse.coll.find(sparse.get_state(), jagged, weights)
    np.testing.assert_allclose(rows, expected["a"], **CLOSE)

    def loss_fn(sparse, weights):
        return sparse(jagged, weights)["a"].sum()

    both = jde.nnx.value_and_grad(loss_fn, argnums=(0, 1))(sparse, weights)
    _, (of_tables, of_weights) = both
    one = sparse({"b": jde.ids([5, 6, 6, 6, 7])}, train=False)["b"]
    expected = one.sum(-1) / jnp.array([2.0, 2.0, 3.0, 3.0, 3.0])
    np.testing.assert_allclose(of_weights.dense["a"][:5], expected, **CLOSE)
    np.testing.assert_array_equal(of_weights.dense["a"][5:], 0)
    assert len(of_tables.rows) == 1 and of_weights.rows == ()


def test_one_id_a_bag_and_narrow_rows():
    sparse = make("sum", dtype="bfloat16")
    rows = sparse({"a": jde.ids([5, -1])}, {"a": jnp.array([2.0, 3.0])})["a"]
    assert rows.dtype == jnp.bfloat16
    once = sparse({"a": jde.ids([5, -1])})["a"]
    np.testing.assert_array_equal(rows, 2 * once)


def test_32_bit_ids_and_empty_bags():
    sparse = make("mean", key_dtype="int32")
    ids = jnp.asarray(IDS, jnp.int32)
    rows = sparse({"a": ids}, {"a": jnp.asarray(WEIGHTS)})["a"]
    expected, _, _ = sparse.coll.find(
        sparse.get_state(), {"a": ids}, {"a": jnp.asarray(WEIGHTS)}
    )
    np.testing.assert_allclose(rows, expected["a"], **CLOSE)
    none = sparse({"a": ids[:, :0]}, {"a": jnp.zeros((3, 0))})["a"]
    np.testing.assert_array_equal(none, np.zeros((3, 4)))


def test_one_weight_an_id():
    with pytest.raises(ValueError, match="one weight an id"):
        make("sum")({"a": jde.ids(IDS)}, {"a": jnp.ones(3)})
