# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Checks what modules return and hold, and how they learn to train or not."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import jax_dynemb as jde

IDS = np.array([2**40, -7, 2**40, -1])


def table(**options):
    return jde.TableConfig("cat", 4, 256, **options)


def test_bag_collection_pools_by_sum_unless_told_otherwise():
    tables = [table(), jde.TableConfig("dog", 4, 256, pooling="mean")]
    sparse = jde.nnx.EmbeddingBagCollection(tables, rngs=nnx.Rngs(0))
    one = jde.nnx.EmbeddingCollection([table()], rngs=nnx.Rngs(0))
    bags = jde.ids([[3, 4, -1], [3, -1, -1]])
    rows = sparse({"cat": bags, "dog": bags})
    assert rows["cat"].shape == (2, 4)
    each = one({"cat": bags})["cat"]
    np.testing.assert_allclose(rows["cat"], each.sum(1), rtol=1e-6)
    again = sparse({"dog": jde.ids([[3], [4]])})["dog"]
    np.testing.assert_allclose(rows["dog"][0], again.mean(0), rtol=1e-6)
    np.testing.assert_allclose(rows["dog"][1], again[0], rtol=1e-6)


def test_collection_returns_a_row_an_id_and_refuses_pooling():
    one = jde.nnx.EmbeddingCollection([table()], rngs=nnx.Rngs(0))
    rows = one({"cat": jde.ids(IDS)})["cat"]
    assert rows.shape == (4, 4)
    np.testing.assert_array_equal(rows[0], rows[2])
    np.testing.assert_array_equal(rows[3], 0)
    with pytest.raises(ValueError, match="EmbeddingBagCollection"):
        jde.nnx.EmbeddingCollection([table(pooling="sum")], rngs=nnx.Rngs(0))


def test_jagged_ids():
    jagged = jde.Jagged.from_lists([[3, 4], [], [3]], capacity=6)
    bags = jde.nnx.EmbeddingBagCollection([table()], rngs=nnx.Rngs(0))
    one = jde.nnx.EmbeddingCollection([table()], rngs=nnx.Rngs(0))
    pooled, each = bags({"cat": jagged})["cat"], one({"cat": jagged})["cat"]
    assert pooled.shape == (3, 4) and each.shape == (6, 4)
    np.testing.assert_allclose(pooled[0], each[0] + each[1], rtol=1e-6)
    np.testing.assert_array_equal(pooled[1], 0)
    np.testing.assert_array_equal(each[3:], 0)


def test_dynamic_embed_looks_like_nnx_embed():
    embed = jde.nnx.DynamicEmbed(
        features=8,
        capacity=1000,
        optimizer=jde.optim.adam(1e-3),
        rngs=nnx.Rngs(0),
    )
    assert embed(jde.ids(IDS.reshape(2, 2))).shape == (2, 2, 8)
    assert embed.features == 8
    stats = embed.stats()
    assert stats["embedding/rows"] == 2
    assert stats["embedding/capacity"] == 1024


def test_evaluation_reads_only(kit):
    model = kit.model()
    ids = kit.batch(0)["ids"]
    model(ids)
    before = model.sparse.stats()
    unseen = {name: jde.ids(np.full(12, 10**15)) for name in ids}
    rows = model.sparse(unseen, train=False)
    assert model.sparse.stats() == before
    np.testing.assert_array_equal(rows["C1"], 0)
    model.eval()
    np.testing.assert_array_equal(model.sparse(unseen)["dog"], 0)
    assert model.sparse.stats() == before
    model.sparse(unseen, train=True)  # said for the call, it goes before the mode
    assert model.sparse.stats()["cat/rows"] == before["cat/rows"] + 1
    view = nnx.view(model, deterministic=False)
    assert not view.sparse.deterministic and model.sparse.deterministic
    model.train()
    assert not model.sparse.deterministic


def test_evaluation_inside_a_jit_that_closes_over_the_model(kit):
    model = kit.model()
    ids = kit.batch(0)["ids"]
    expected = model.sparse(ids)
    rows = jax.jit(lambda ids: model.sparse(ids, train=False))(ids)
    for name in ids:
        np.testing.assert_array_equal(rows[name], expected[name])


def test_rows_follow_the_rngs():
    def rows(seed):
        embed = jde.nnx.DynamicEmbed(features=4, capacity=256, rngs=nnx.Rngs(seed))
        return embed(jde.ids(IDS))

    np.testing.assert_array_equal(rows(3), rows(3))
    assert np.any(np.asarray(rows(3)) != np.asarray(rows(4)))
    same = nnx.jit(
        lambda: jde.nnx.DynamicEmbed(features=4, capacity=256, rngs=nnx.Rngs(3))
    )()
    np.testing.assert_array_equal(same(jde.ids(IDS)), rows(3))


def test_tables_are_variables_of_their_own_type(kit):
    model = kit.model()
    assert set(nnx.state(model, nnx.Param)) == {"top"}
    tables = nnx.state(model, jde.nnx.Table)
    assert set(tables) == {"sparse"}
    leaves = jax.tree.leaves(tables)
    assert leaves and all(isinstance(leaf, jax.Array) for leaf in leaves)
    abstract = nnx.eval_shape(lambda: kit.model())
    shapes = jax.tree.map(lambda x: (x.shape, x.dtype), nnx.state(model))
    expected = jax.tree.map(lambda x: (x.shape, x.dtype), nnx.state(abstract))
    assert jax.tree.leaves(shapes) == jax.tree.leaves(expected)


def test_the_functional_core_operates_on_a_module(kit):
    sparse = kit.model().sparse
    sparse({"C1": jde.ids([1, 2, 3])})
    state = sparse.coll.erase(sparse.get_state(), {"cat": jde.ids([2])})
    sparse.set_state(state)
    assert sparse.stats()["cat/rows"] == 2


def test_customized_scores():
    strategy = {"score_strategy": "customized"}
    sparse = jde.nnx.EmbeddingCollection([table(**strategy)], rngs=nnx.Rngs(0))
    sparse({"cat": jde.ids([1, 2])}, scores={"cat": jnp.uint32(7)})
    embed = jde.nnx.DynamicEmbed(features=4, capacity=256, rngs=nnx.Rngs(0), **strategy)
    embed(jde.ids([1]), scores=jnp.uint32(9))
    (chunk,) = embed.coll.export(embed.get_state(), "embedding")
    assert int(chunk.scores[0]) == 9


def test_vmap_is_refused_with_a_sentence(kit):
    model = kit.model()
    ids = kit.batch(0)["ids"]["C1"]
    with pytest.raises(ValueError, match="out of jax.vmap"):
        jax.vmap(lambda i: model.sparse({"C1": i}))(ids)
    with pytest.raises(NotImplementedError, match="under jax.vmap is not supported"):
        nnx.vmap(lambda m, i: m.sparse({"C1": i}), in_axes=(None, 0))(model, ids)


def test_truncated_ids_and_unknown_features_are_refused(kit):
    model = kit.model()
    with pytest.raises(TypeError, match="jde.ids"):
        model.sparse({"C1": jnp.array([1, 2], jnp.int32)})
    with pytest.raises(ValueError, match=r"Known: \['C1'"):
        model.sparse({"c1": jde.ids([1])})
    with pytest.raises(ValueError, match="weights for"):
        model.sparse({"C1": jde.ids([1])}, weights={"C2": jnp.ones(1)})


def test_shared_arrays(kit):
    """One Variable for tables of one width; the model is the same."""
    tables = [
        jde.TableConfig(name, 4, 256, optimizer=jde.optim.adam(0.1))
        for name in ("C1", "C2", "dog")
    ]
    losses = []
    for shared in (False, True):
        model = kit.Clicks(nnx.Rngs(0), tables[:2])
        model.sparse = jde.nnx.EmbeddingBagCollection(
            tables, rngs=nnx.Rngs(1), share_arrays=shared
        )
        optimizer = jde.nnx.Optimizer(model, optax.sgd(0.1))
        step = jde.nnx.jit(_train(kit))
        losses.append([float(step(model, optimizer, kit.batch(n))) for n in range(5)])
        assert len(model.sparse.tables) == (1 if shared else 3)
        assert model.sparse.stats()["C1/step"] == 5
    assert losses[0] == losses[1]


def _train(kit):
    def train_step(model, optimizer, batch):
        loss, grads = jde.nnx.value_and_grad(kit.loss)(model, batch)
        optimizer.update(model, grads)
        return loss

    return train_step
