# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Checks which row a full bucket evicts, and which ids it refuses."""

import numpy as np
import pytest

import jax_dynemb as jde
from jax_dynemb._src.ffi import code
from keys import keys_of_bucket
from oracle import hash_rank
from support import Twins, export, stat, stored

DEBUG = jde.initializers.debug()
EACH_HASH = pytest.mark.parametrize("hash_seed", [0, 0x243F6A8885A308D3])


def make(**options) -> Twins:
    options = {"dim": 4, "capacity": 256, "initializer": DEBUG} | options
    return Twins(jde.TableConfig(**{"name": "t"} | options))


@EACH_HASH
def test_the_least_recently_used_row_leaves(platform, hash_seed):
    twins = make(hash_seed=hash_seed)
    keys = keys_of_bucket(0, 2, 132, hash_seed=hash_seed)
    twins.lookup({"t": keys[:128]})
    twins.lookup({"t": keys[4:128]})
    rows, _ = twins.lookup({"t": keys[128:]})
    assert stored(twins) == set(keys[4:])
    assert rows["t"][:, 0].tolist() == [key % 100_000 for key in keys[128:]]
    assert stat(twins, "t/evicted") == 4 and stat(twins, "t/rows") == 128
    twins.check()


def test_the_smaller_keys_of_equal_scores_leave(platform):
    twins = make()
    keys = keys_of_bucket(1, 2, 133)
    twins.lookup({"t": keys[:128][::-1]})
    twins.lookup({"t": keys[128:]})
    assert stored(twins) == set(keys[5:])


def test_negative_ids_count_as_large_keys(platform):
    twins = make()
    keys = keys_of_bucket(1, 2, 64) + keys_of_bucket(1, 2, 64, start=-1_000_000)
    twins.lookup({"t": keys})
    newcomers = keys_of_bucket(1, 2, 66, start=10**6)
    twins.lookup({"t": newcomers})
    assert stored(twins) == set(newcomers) | set(sorted(keys[64:])[2:])


@EACH_HASH
def test_rows_of_the_same_call_never_leave(platform, hash_seed):
    twins = make(hash_seed=hash_seed)
    keys = keys_of_bucket(0, 2, 300, hash_seed=hash_seed)
    twins.lookup({"t": keys[:128]})
    twins.lookup({"t": keys[100:300]})  # 28 present, 172 new, 100 places
    winners = sorted(keys[128:], key=lambda key: hash_rank(key, hash_seed))[:100]
    assert stored(twins) == set(keys[100:128]) | set(winners)
    assert stat(twins, "t/refused") == 72
    twins.check()


def test_two_features_share_one_call(platform):
    twins = make(feature_names=("a", "b"))
    keys = keys_of_bucket(0, 2, 256)
    twins.lookup({"a": keys[:128]})
    # the rows that "b" reads are safe from the newcomers of "a"
    twins.lookup({"a": keys[128:], "b": keys[:128]})
    assert stored(twins) == set(keys[:128])
    assert stat(twins, "t/refused") == 128 and stat(twins, "t/evicted") == 0


def test_an_evicted_row_starts_anew(platform):
    twins = make(optimizer=jde.optim.adagrad(0.5, initial_accumulator_value=0.25))
    keys = keys_of_bucket(1, 2, 256)
    _, residuals = twins.lookup({"t": keys[:128]})
    twins.apply(residuals, {"t": np.ones((128, 4))})
    twins.lookup({"t": keys[128:]})
    twins.check()
    rows, _ = twins.lookup({"t": keys[:128]})
    assert rows["t"][:, 0].tolist() == [key % 100_000 for key in keys[:128]]
    row = export(twins.coll, twins.state, "t")[keys[0]]
    assert row.state["sum_of_squares"].tolist() == [0.25] * 4
    twins.check()


def test_updates_of_rows_that_left_are_counted(platform):
    twins = make()
    keys = keys_of_bucket(1, 2, 140)
    _, residuals = twins.lookup({"t": keys[:128] + keys[:16]})
    twins.lookup({"t": keys[128:]})  # pushes out the twelve smallest
    twins.apply(residuals, {"t": np.ones((144, 4))})
    assert stat(twins, "t/lost_updates") == 24
    twins.check()


@EACH_HASH
@pytest.mark.parametrize("on_full", ["refuse", "error"])
def test_full_tables_that_do_not_evict(platform, on_full, hash_seed):
    twins = make(on_full=on_full, hash_seed=hash_seed)
    keys = keys_of_bucket(1, 2, 150, hash_seed=hash_seed)
    twins.lookup({"t": keys[:100]})
    rows, _ = twins.lookup({"t": np.array(keys[100:] + keys[140:])})
    winners = sorted(keys[100:], key=lambda key: hash_rank(key, hash_seed))[:28]
    assert stored(twins) == set(keys[:100]) | set(winners)
    assert rows["t"][:50, 0].tolist() == [key % 100_000 for key in keys[100:]]
    refused = 22 + len(set(keys[140:]) - set(winners))
    if on_full == "error":
        with pytest.raises(RuntimeError, match="capacity"):
            twins.coll.stats(twins.state)
    else:
        assert stat(twins, "t/refused") == refused


def test_no_eviction_is_a_strategy_that_refuses(platform):
    twins = make(score_strategy="no_eviction")
    keys = keys_of_bucket(1, 2, 129)
    twins.lookup({"t": keys[:128]})
    _, residuals = twins.lookup({"t": keys[128:]})
    twins.apply(residuals, {"t": np.ones((1, 4))})
    assert stored(twins) == set(keys[:128])
    assert stat(twins, "t/refused") == 1 and stat(twins, "t/lost_updates") == 0
    twins.check()


@pytest.mark.parametrize("strategy", [jde.ScoreStrategy.STEP, jde.ScoreStrategy.LFU])
@pytest.mark.parametrize("batch", [300, 20_000, 270_000])
def test_batches_of_any_size_that_evict(platform, batch, strategy):
    """On a GPU one kernel sees to new ids of a small batch, else there are several."""
    twins = make(capacity=8_192, score_strategy=strategy)
    rng = np.random.default_rng(batch)
    for step in range(3):
        twins.lookup({"t": rng.integers(0, 9_000, batch) + 4_500 * step})
        waiting = code("counters", "waiting")
        assert not np.asarray(twins.state["t"].counters[:, waiting]).any()
    assert batch < 8_192 or stat(twins, "t/evicted") > 0
    twins.check()


@pytest.mark.slow
@pytest.mark.parametrize("batch", [600, 100_000])
def test_full_tables_in_one_call(platform, batch):
    """Ids of several buckets and tables come together; one bucket has thousands."""
    tables = {
        "one_bucket": {"capacity": 128},
        "leaves": {"capacity": 4_096, "dim": 20, "optimizer": jde.optim.adam(0.1)},
        "counts": {"capacity": 1_024, "score_strategy": jde.ScoreStrategy.LFU},
        "refuses": {"capacity": 1_024, "on_full": "refuse"},
    }
    common = {"dim": 4, "initializer": DEBUG}
    twins = Twins(*(jde.TableConfig(n, **common | own) for n, own in tables.items()))
    rng = np.random.default_rng(batch)
    for step in range(3):
        ids = rng.integers(0, max(batch // 8, 4_000), (len(tables), batch))
        ids[:, -7:] = -1  # padding
        twins.train(dict(zip(tables, ids + 2_000 * step, strict=True)), seed=step)
    assert stat(twins, "one_bucket/refused") > 0 and stat(twins, "refuses/refused") > 0
    assert batch < 1_000 or stat(twins, "leaves/evicted") > 0
    twins.check()


def test_ids_in_tables_with_and_without_room(platform):
    """A key that loses its place in one table keeps it in another."""
    twins = Twins(
        *(
            jde.TableConfig(name, dim=4, capacity=8_192, initializer=DEBUG)
            for name in ("room", "crowd")
        )
    )
    keys = keys_of_bucket(0, 64, 900)
    for step in range(3):
        own = keys[300 * step : 300 * (step + 1)]
        twins.lookup({"room": own[200:], "crowd": own[::-1]})
        assert set(own[200:]) <= set(export(twins.coll, twins.state, "room"))
    assert stat(twins, "crowd/refused") > 0
    twins.check()


def test_refused_ids_are_a_warning_once_they_have_doubled(platform):
    twins = make(on_full="warn", name="warns")
    keys = keys_of_bucket(0, 2, 134)
    twins.lookup({"warns": keys[:129]})
    with pytest.warns(RuntimeWarning, match="'warns' refused 1 ids"):
        twins.coll.stats(twins.state)
    twins.coll.stats(twins.state)  # an error of pytest if it warned again
    twins.lookup({"warns": keys[129:134]})
    with pytest.warns(RuntimeWarning, match="refused 6 ids"):
        twins.check()
