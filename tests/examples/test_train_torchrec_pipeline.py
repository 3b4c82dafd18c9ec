# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""TorchRec's golden training in its own form; and the classes it needs."""

import jax
import numpy as np
import pytest
from flax import nnx

import torchrec_dlrm as dlrm
import train_torchrec_pipeline as example
from jax_dynemb import torchrec as T


def test_the_ten_batches_are_learnt():
    losses = example.main(["--iterations", "60"])
    assert len(losses) == 60
    assert np.mean(losses[:10]) > 0.6 and np.mean(losses[-10:]) < 0.2


@pytest.mark.slow
def test_a_mesh_learns_the_same():
    alone, shared = (
        example.main(["--iterations", "12", *more]) for more in ([], ["--mesh", "8"])
    )
    np.testing.assert_allclose(alone, shared, rtol=2e-4)


def test_random_batches_have_the_sizes_that_were_given():
    dataset = dlrm.RandomRecDataset(
        ["a", "b"],
        batch_size=64,
        hash_sizes=[5, 1000],
        ids_per_features=[3, 1],
        min_ids_per_features=[1, 0],
        num_dense=4,
        manual_seed=1,
        num_batches=5,
        num_generated_batches=2,
    )
    batches = list(dataset)
    assert len(batches) == 5 and batches[0] is batches[2]
    first = batches[0]
    assert first.dense_features.shape == (64, 4) and set(first.labels) == {0, 1}
    a, b = first.sparse_features["a"], first.sparse_features["b"]
    assert set(a.lengths().tolist()) == {1, 2, 3} and set(b.lengths()) == {0, 1}
    live = np.concatenate(a.to_dense())
    assert set(live.tolist()) == set(range(5))
    fresh = dlrm.RandomRecDataset(["a"], 8, num_generated_batches=-1, num_batches=2)
    one, two = fresh
    assert not np.array_equal(one.dense_features, two.dense_features)
    with pytest.raises(ValueError, match="one number a key"):
        dlrm.RandomRecDataset(["a"], 8, hash_sizes=[1, 2])


def test_interactions_are_the_dense_vector_and_the_products_of_all_pairs():
    draw = np.random.default_rng(0)
    dense = draw.normal(size=(3, 4)).astype(np.float32)
    sparse = draw.normal(size=(3, 2, 4)).astype(np.float32)
    out = dlrm.InteractionArch(2)(dense, sparse)
    pairs = [(dense, sparse[:, 0]), (dense, sparse[:, 1]), (sparse[:, 0], sparse[:, 1])]
    products = np.stack([(x * y).sum(1) for x, y in pairs], 1)
    np.testing.assert_allclose(out, np.hstack([dense, products]), rtol=1e-5)
    assert dlrm.InteractionArch(0)(dense, None) is dense


def test_the_arches_of_a_dlrm_fit_each_other():
    rngs = nnx.Rngs(0)
    tables = [
        T.EmbeddingBagConfig(9, 8, f"t{i}", feature_names=[f"f{i}"]) for i in "01"
    ]
    model = dlrm.DLRM(
        T.EmbeddingBagCollection(tables, rngs=rngs), 3, [5, 8], [4, 1], rngs=rngs
    )
    kjt = T.KeyedJaggedTensor(["f0", "f1"], np.arange(4), lengths=np.ones(4, int))
    logits = model(np.ones((2, 3), np.float32), kjt)
    assert logits.shape == (2, 1)
    vectors = model.sparse_arch(kjt)
    np.testing.assert_array_equal(
        vectors[:, 0], model.sparse_arch.embedding_bag_collection(kjt)["f0"]
    )
    loss, (same, scores, labels) = dlrm.DLRMTrain(model)(
        dlrm.Batch(np.ones((2, 3), np.float32), kjt, np.array([0, 1]))
    )
    z = np.asarray(logits)[:, 0]
    np.testing.assert_allclose(scores, z, rtol=1e-6)
    expected = np.mean([np.log1p(np.exp(z[0])), np.log1p(np.exp(-z[1]))])
    assert float(loss) == float(same) == pytest.approx(expected, rel=1e-5)
    assert labels.tolist() == [0, 1] and isinstance(loss, jax.Array)
    with pytest.raises(ValueError, match="end with 8"):
        dlrm.DLRM(model.sparse_arch.embedding_bag_collection, 3, [5], [4, 1], rngs=rngs)
    with pytest.raises(ValueError, match="multiple layers"):
        dlrm.OverArch(3, [1], rngs=rngs)
