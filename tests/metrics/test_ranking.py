# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics of ranked lists equal means over every order that the scores allow."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jax_dynemb as jde

m = jde.metrics
KINDS = (m.RecallAtK, m.NDCG, m.MRR)


def of_order(metric, worth, k):
    """One query whose items stand in this order, by the textbook."""
    relevant = [w > 0 for w in worth]
    if metric is m.RecallAtK:
        return sum(relevant[:k]) / sum(relevant)
    if metric is m.MRR:
        return relevant.index(True) + 1
    gain = sum(w / np.log2(2 + i) for i, w in enumerate(worth[:k]))
    best = sorted(worth, reverse=True)
    return gain / sum(w / np.log2(2 + i) for i, w in enumerate(best[:k]))


def expected(metric, scores, worth, k):
    orders = [
        [worth[i] for i in order]
        for order in itertools.permutations(range(len(scores)))
        if all(scores[a] >= scores[b] for a, b in itertools.pairwise(order))
    ]
    mean = np.mean([of_order(metric, each, k) for each in orders])
    if metric is not m.MRR:
        return mean
    return 1 / mean if mean <= k else 0


@pytest.mark.parametrize("metric", KINDS)
@given(
    items=st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from([0, 0, 1, 3])),
        min_size=2,
        max_size=6,
    ).filter(lambda items: any(worth for _, worth in items)),
    k=st.integers(1, 7),
)
def test_equal_scores_count_as_in_random_order(metric, items, k):
    scores, worth = map(list, zip(*items, strict=True))
    # One length, so that the examples share a compiled program.
    padding = 6 - len(items)
    padded = [*scores, *[-np.inf] * padding], [*worth, *[0] * padding]
    got = metric.from_model_output(*np.array([padded], np.float32).swapaxes(0, 1), k=k)
    np.testing.assert_allclose(
        got.compute(), expected(metric, scores, worth, k), rtol=2e-6, atol=1e-6
    )


@pytest.mark.parametrize("metric", KINDS)
def test_batches_merge_and_queries_without_an_item_count_for_nothing(metric):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(4, 8, 5)).astype(np.float32)
    place = rng.integers(-1, 5, (4, 8))
    weights = rng.uniform(0.5, 2, (4, 8)).astype(np.float32)

    @jax.jit
    def all_batches(scores, place, weights):
        def add(seen, batch):
            return seen.merge(metric.from_model_output(*batch, k=2)), None

        return jax.lax.scan(add, metric.empty(k=2), (scores, place, weights))[0]

    worth = np.eye(5)[place] * (place >= 0)[..., None]
    pairs = [
        (w, expected(metric, s, y, 2))
        for s, y, w in zip(
            scores.reshape(-1, 5), worth.reshape(-1, 5), weights.flat, strict=True
        )
        if y.any()
    ]
    mean = np.average([x for _, x in pairs], weights=[w for w, _ in pairs])
    np.testing.assert_allclose(
        all_batches(scores, place, weights).compute(), mean, 1e-5
    )
    window = m.Windowed.of(metric.empty(k=2), batches=2)
    for batch in zip(scores, place, weights, strict=True):
        window = window.merge(metric.from_model_output(*batch, k=2))
    np.testing.assert_allclose(window.compute()["lifetime"], mean, 1e-5)
    last = metric.from_model_output(scores[2:], place[2:], weights[2:], k=2)
    np.testing.assert_allclose(window.compute()["window"], last.compute(), 1e-5)


def test_what_is_unknown_is_not_a_number():
    scores = jnp.array([[0.5, jnp.nan], [1.0, 2.0]])
    assert np.isnan(m.NDCG.from_model_output(scores, [1, 1]).compute())
    assert m.NDCG.from_model_output(scores, [-1, 1]).compute() == 1
    assert np.isnan(m.MRR.empty().compute())


def test_mistakes_are_refused():
    scores = np.zeros((2, 3), np.float32)
    with pytest.raises(ValueError, match=r"RecallAtK takes scores \[..., items\]"):
        m.RecallAtK.from_model_output(scores, np.zeros((2, 4)))
    with pytest.raises(ValueError, match="first k items, 1 or more, not 0"):
        m.MRR.from_model_output(scores, [0, 1], k=0)
    with pytest.raises(ValueError, match="keep a metric for each k"):
        m.NDCG.empty(k=5).merge(m.NDCG.empty(k=10))
    with pytest.raises(TypeError, match="RecallAtK.merge takes another RecallAtK"):
        m.RecallAtK.empty().merge(m.NE.empty())
