# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Inputs at the edge: all one key, nothing at all, more than fits."""

import numpy as np
import pytest

import jax_dynemb as jde
from keys import keys_of_bucket
from support import Twins, gradients, stat

MILLION = 1_000_000


def make(**options) -> Twins:
    options = {"dim": 4, "capacity": 256} | options
    return Twins(jde.TableConfig(name="t", **options))


@pytest.mark.parametrize("strategy", ["step", "lfu"])
def test_one_million_ids_of_one_unseen_key(platform, strategy):
    twins = make(score_strategy=strategy, optimizer=jde.optim.sgd(2.0**-20))
    ids = np.full(MILLION, 123_456_789_012_345)
    rows, residuals = twins.lookup({"t": ids})
    assert (rows["t"] == rows["t"][0]).all()
    assert stat(twins, "t/rows") == stat(twins, "t/inserted") == 1
    twins.apply(residuals, {"t": np.ones((MILLION, 4), np.float32)})
    twins.check()
    after, _ = twins.find({"t": ids[:1]})
    moved = rows["t"][0] - after["t"][0]
    np.testing.assert_allclose(moved, MILLION / 2**20, rtol=1e-6)


def test_a_batch_larger_than_the_table(platform):
    twins = make(capacity=1024, initializer=jde.initializers.debug())
    ids = np.random.default_rng(0).permutation(50_000)
    rows, residuals = twins.lookup({"t": ids})
    np.testing.assert_array_equal(rows["t"][:, 0], ids)  # the refused read it too
    assert stat(twins, "t/rows") == stat(twins, "t/inserted") == 1024
    assert stat(twins, "t/refused") == 50_000 - 1024
    assert stat(twins, "t/evicted") == 0
    twins.apply(residuals, {"t": gradients((50_000, 4), 0)})
    assert stat(twins, "t/lost_updates") == 0
    twins.check()
    twins.lookup({"t": ids + 50_000})
    assert stat(twins, "t/evicted") == 1024
    twins.check()


def test_a_full_bucket(platform):
    twins = make(capacity=1024, on_full="refuse")
    keys = keys_of_bucket(3, 8, 200)
    twins.lookup({"t": keys + keys})
    assert stat(twins, "t/rows") == 128 and stat(twins, "t/refused") == 144
    twins.lookup({"t": keys_of_bucket(4, 8, 100)})  # the neighbour has room
    assert stat(twins, "t/rows") == 228
    twins.check()


@pytest.mark.parametrize("pooling", [None, "sum"])
def test_an_empty_batch(platform, pooling):
    twins = make(pooling=pooling)
    shape = (0, 3) if pooling else (0,)
    rows, residuals = twins.lookup({"t": np.zeros(shape, np.int64)})
    assert rows["t"].shape == (0, 4)
    twins.find({"t": np.zeros(shape, np.int64)})
    twins.apply(residuals, {"t": np.zeros((0, 4))})
    assert stat(twins, "t/lookups") == stat(twins, "t/step") == 1
    assert stat(twins, "t/rows") == 0
    twins.check()


@pytest.mark.parametrize("pooling", [None, "mean"])
def test_all_padding(platform, pooling):
    twins = make(pooling=pooling, optimizer=jde.optim.adam(0.1))
    rows, residuals = twins.lookup({"t": np.full((64, 3), -1)})
    assert (rows["t"] == 0).all()
    twins.apply(residuals, {"t": np.ones(rows["t"].shape)})
    stats = twins.coll.stats(twins.state)
    assert stats["t/rows"] == stats["t/refused"] == stats["t/lost_updates"] == 0
    twins.check()


def test_every_bucket_full_and_every_row_in_use(platform):
    twins = make(capacity=512)
    keys = np.concatenate([keys_of_bucket(b, 4, 128) for b in range(4)])
    twins.lookup({"t": keys})
    assert stat(twins, "t/load_factor") == 1.0
    newcomers = np.arange(10**6, 10**6 + 100)
    twins.lookup({"t": np.concatenate([keys, newcomers])})
    assert stat(twins, "t/refused") == 100 and stat(twins, "t/evicted") == 0
    twins.check()
