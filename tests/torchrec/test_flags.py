# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Flags of a lookup reach the tables: now, insert and touch of both collections."""

import jax
import numpy as np
import pytest
from flax import nnx

import jax_dynemb as jde

T = jde.torchrec
HOUR = 3600.0
KINDS = {
    "bags": (T.EmbeddingBagCollection, T.EmbeddingBagConfig),
    "rows": (T.EmbeddingCollection, T.EmbeddingConfig),
}


def made(kind, strategy):
    module, config = KINDS[kind]
    table = config(64, 4, "t", feature_names=["f"]).to_table(score_strategy=strategy)
    return module([table], rngs=nnx.Rngs(0))


def of(*ids):
    return T.KeyedJaggedTensor(["f"], np.array(ids), lengths=np.ones(len(ids), int))


def stored(model):
    chunks = list(model.coll.export(model.get_state(), "t"))
    keys = np.concatenate([chunk.keys for chunk in chunks])
    scores = np.concatenate([chunk.scores for chunk in chunks])
    return dict(zip(keys.tolist(), scores.tolist(), strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_now_is_the_time_that_rows_note(kind):
    model = made(kind, "timestamp")
    model(of(1, 2), now=jde.now(100 * HOUR))
    model(of(2), now=jde.now(102 * HOUR))
    model(of(1), now=jde.now(103 * HOUR), touch=True, train=False)
    scores = stored(model)
    assert scores[1] - scores[2] == pytest.approx(HOUR * 1e9, rel=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_without_insert_no_id_gets_a_row(kind):
    model = made(kind, "step")
    model(of(1))
    model(of(1, 2, 3), insert=False)
    assert set(stored(model)) == {1}


@pytest.mark.parametrize("kind", KINDS)
def test_touch_counts_uses_in_evaluation_and_may_be_off_in_training(kind):
    model = made(kind, "lfu")
    model(of(1, 2))
    before = stored(model)
    model(of(1), touch=False)
    model(of(1), train=False)
    assert stored(model) == before
    model.eval()
    counts = {"f": np.array([5], np.int32)}
    rows = model(of(1), touch=True, counts=counts)
    scores = np.array([stored(model)[key] for key in (1, 2)], np.uint64)
    uses = model.coll.use_counts(model.get_state(), "t", scores)
    np.testing.assert_array_equal(uses, [1 + 5, 1])
    out = rows["f"] if kind == "bags" else rows["f"].values()
    assert np.asarray(out).shape == (1, 4)


def test_processed_bags_take_them_too():
    table = T.EmbeddingBagConfig(64, 4, "t", feature_names=["f"])
    tables = [table.to_table(score_strategy="lfu")]
    bags = T.EmbeddingBagCollection(tables, is_weighted=True, rngs=nnx.Rngs(0))
    weights = T.PositionWeightedModuleCollection({"f": 2})
    model = T.FeatureProcessedEmbeddingBagCollection(bags, weights)
    model(of(1, 2), counts={"f": np.array([5, 1], np.int32)})
    model(of(2, 3), insert=False, touch=False)
    scores = np.array([stored(bags)[key] for key in (1, 2)], np.uint64)
    uses = bags.coll.use_counts(bags.get_state(), "t", scores)
    np.testing.assert_array_equal(uses, [5, 1])
    assert model.stats()["t/rows"] == 2


def test_a_touch_that_would_be_lost_is_refused():
    model = made("bags", "lfu")
    model(of(1))
    with pytest.raises(ValueError, match="would be lost"):
        jax.jit(lambda: model(of(1), train=False, touch=True).values())()
