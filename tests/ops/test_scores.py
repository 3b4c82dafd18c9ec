# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Checks score strategies: what stands in the score, and which row is evicted."""

import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde
from keys import keys_of_bucket
from support import Twins, export

STRATEGIES = [str(strategy.value) for strategy in jde.ScoreStrategy]


def make(strategy: str, **options) -> Twins:
    options = {"dim": 4, "capacity": 256} | options
    return Twins(jde.TableConfig(name="t", score_strategy=strategy, **options))


def scores_of(twins: Twins) -> dict[int, int]:
    return {k: row.score for k, row in export(twins.coll, twins.state, "t").items()}


def test_the_list_of_strategies():
    assert STRATEGIES == ["step", "timestamp", "lfu", "customized", "no_eviction"]


@pytest.mark.parametrize("strategy", ["step", "no_eviction"])
def test_step(platform, strategy):
    twins = make(strategy)
    twins.lookup({"t": [1, 2]})
    twins.lookup({"t": [2, 3, 3]})
    assert scores_of(twins) == {1: 1, 2: 2, 3: 2}


def test_lfu(platform):
    twins = make("lfu")
    twins.lookup({"t": [1, 2, 2, -1]})
    twins.lookup({"t": [2, 3, 3, 3]})
    assert scores_of(twins) == {1: 1 << 32 | 1, 2: 3 << 32 | 2, 3: 3 << 32 | 2}
    twins.check()


def test_lfu_many_duplicates(platform):
    twins = make("lfu")
    keys = np.random.default_rng(0).integers(0, 5, 20_000)
    twins.lookup({"t": keys})
    assert scores_of(twins) == {
        k: int(n) << 32 | 1 for k, n in enumerate(np.bincount(keys))
    }


def test_lfu_keeps_the_frequent_rows(platform):
    twins = make("lfu")
    keys = keys_of_bucket(0, 2, 228)
    twins.lookup({"t": keys[:128] + keys[:28]})
    twins.lookup({"t": keys[128:]})  # newcomers displace, though used once only
    assert set(scores_of(twins)) == set(keys[:28] + keys[128:])
    twins.check()


def test_lfu_saturates(platform):
    twins = make("lfu")
    almost = np.array([2**29 - 3, 2**30 - 1], np.uint64) << np.uint64(32)
    twins.insert({"t": [5, 6]}, {"t": np.zeros((2, 4), "f")}, scores={"t": almost})
    twins.lookup({"t": [5, 6, 7] + [5] * 6})
    counts = {key: score >> 32 for key, score in scores_of(twins).items()}
    assert counts == {5: 2**29, 6: 2**29, 7: 1}
    twins.check()


def test_customized(platform):
    twins = make("customized")
    twins.lookup({"t": [1, 2]}, scores={"t": jnp.uint32(7)})
    twins.lookup({"t": [2, 3]}, scores={"t": jnp.uint32(2)})
    assert scores_of(twins) == {1: 7, 2: 2, 3: 2}
    keys = keys_of_bucket(1, 2, 200, start=100)
    twins.lookup({"t": keys[:64]}, scores={"t": jnp.uint32(9)})
    twins.lookup({"t": keys[64:120]}, scores={"t": jnp.uint32(4)})
    twins.lookup({"t": keys[120:]}, scores={"t": jnp.uint32(0)})
    twins.check()


def test_customized_scores_keep_32_bits_of_one_word(platform):
    twins = make("customized")
    twins.lookup({"t": [1]}, scores={"t": jnp.uint32(2**32 - 1)})
    assert scores_of(twins) == {1: 2**32 - 1}  # more bits: test_given_scores.py


def test_timestamps_grow(platform):
    twins = make("timestamp")
    keys = keys_of_bucket(1, 2, 130)
    twins.lookup({"t": keys[:128]})
    twins.lookup({"t": keys[1:128]})
    twins.lookup({"t": keys[128:]})
    scores = scores_of(twins)
    assert keys[0] not in scores and keys[1] not in scores
    assert scores[keys[129]] > scores[keys[2]] > 10**18  # nanoseconds since 1970
    twins.check()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_all_strategies_under_pressure(platform, strategy):
    twins = make(strategy)
    rng = np.random.default_rng(1)
    scores = None
    for step in range(4):
        if strategy == "customized":
            scores = {"t": jnp.uint32(rng.integers(0, 5))}
        _, residuals = twins.lookup({"t": rng.integers(0, 500, 300)}, scores=scores)
        twins.apply(residuals, {"t": np.full((300, 4), step)})
        twins.check()
