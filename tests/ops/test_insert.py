# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""insert: rows that come from elsewhere."""

import numpy as np
import pytest

import jax_dynemb as jde
from keys import keys_of_bucket
from oracle import hash_rank
from support import Twins, export, gradients, stat


def make(**options) -> Twins:
    options = {"dim": 4, "capacity": 256} | options
    return Twins(jde.TableConfig(name="t", **options))


def rows_of(n: int, dim: int = 4, start: float = 0.0) -> np.ndarray:
    return start + np.arange(n * dim, dtype=np.float32).reshape(n, dim)


def test_rows_are_stored_and_found(platform):
    twins = make()
    keys = np.array([3, -10, 2**62, 0])
    twins.insert({"t": keys}, {"t": rows_of(4)})
    got, found = twins.find({"t": keys})
    np.testing.assert_array_equal(got["t"], rows_of(4))
    assert found["t"].all()
    assert stat(twins, "t/rows") == stat(twins, "t/inserted") == 4
    twins.check()


def test_present_rows_are_overwritten(platform):
    twins = make()
    twins.lookup({"t": [1, 2]})
    twins.insert({"t": [2, 3]}, {"t": rows_of(2, start=50.0)})
    got, _ = twins.find({"t": [1, 2, 3]})
    np.testing.assert_array_equal(got["t"][1:], rows_of(2, start=50.0))
    assert stat(twins, "t/rows") == 3 and stat(twins, "t/inserted") == 3
    twins.check()


def test_the_last_of_equal_ids_wins(platform):
    twins = make()
    keys = np.tile([7, 8], 50)
    twins.insert({"t": keys}, {"t": rows_of(100)})
    got, _ = twins.find({"t": [7, 8]})
    np.testing.assert_array_equal(got["t"], rows_of(100)[98:])
    assert stat(twins, "t/rows") == 2
    twins.check()


@pytest.mark.parametrize("distinct", [1, 40, 30_000])
def test_the_last_of_many_equal_ids_wins(platform, distinct):
    twins = make(capacity=65536, optimizer=jde.optim.adam(0.1))
    rng = np.random.default_rng(distinct)
    keys = rng.integers(0, distinct, 20_000) * 2**33
    keys[rng.random(20_000) < 0.1] = -1
    given = {"mu": rng.random((20_000, 4)).astype(np.float32)}
    rows = rng.random((20_000, 4)).astype(np.float32)
    twins.insert({"t": keys}, {"t": rows}, optimizer_state={"t": given})
    last = {int(key): i for i, key in enumerate(keys) if key != -1}
    stored = export(twins.coll, twins.state, "t")
    assert set(stored) == set(last)
    places = np.array([last[key] for key in stored])
    got = np.stack([row.values for row in stored.values()])
    np.testing.assert_array_equal(got, rows[places])
    mu = np.stack([row.state["mu"] for row in stored.values()])
    np.testing.assert_array_equal(mu, given["mu"][places])


@pytest.mark.parametrize("capacity", [1024, 65536])
@pytest.mark.parametrize("strategy", ["step", "lfu"])
def test_unique_ids_are_stored_like_any(platform, capacity, strategy):
    """Present ones, new ones, ones that evict or are refused, and padding."""
    twins = make(
        capacity=capacity, score_strategy=strategy, optimizer=jde.optim.adam(0.1)
    )
    rng = np.random.default_rng(capacity)
    for _ in range(3):
        keys = rng.choice(9_000, 6_000, replace=False) * 2**33
        keys[rng.random(6_000) < 0.1] = -1
        given = {"mu": rng.random((6_000, 4)).astype(np.float32)}
        rows = rng.random((6_000, 4)).astype(np.float32)
        twins.insert({"t": keys}, {"t": rows}, {"t": given}, unique_ids=True)
        twins.check()


def test_padding_is_skipped(platform):
    twins = make()
    twins.insert({"t": [-1, 5, -1]}, {"t": rows_of(3)})
    assert list(export(twins.coll, twins.state, "t")) == [5]
    twins.check()


def test_optimizer_state_is_initial_or_given(platform):
    twins = make(optimizer=jde.optim.adam(0.1))
    _, residuals = twins.lookup({"t": [1, 2]})
    twins.apply(residuals, {"t": gradients((2, 4), 0)})
    twins.insert({"t": [2, 3]}, {"t": rows_of(2)})
    twins.check()
    given = {"t": {"mu": rows_of(2, start=1.0), "nu": rows_of(2, start=2.0)}}
    twins.insert({"t": [3, 4]}, {"t": rows_of(2)}, optimizer_state=given)
    twins.check()
    assert export(twins.coll, twins.state, "t")[4].state["nu"][0] == 6


def test_rowwise_state(platform):
    twins = make(optimizer=jde.optim.rowwise_adagrad(0.1))
    given = {"t": {"sum_of_squares": np.array([4.0, 9.0], np.float32)}}
    twins.insert({"t": [3, 4]}, {"t": rows_of(2)}, optimizer_state=given)
    assert export(twins.coll, twins.state, "t")[4].state["sum_of_squares"] == 9
    twins.check()


def test_inserting_evicts_or_refuses_as_a_lookup_does(platform):
    keys = keys_of_bucket(1, 2, 140)
    evicting, refusing = make(), make(on_full="refuse")
    for twins in (evicting, refusing):
        twins.lookup({"t": keys[:120]})
        twins.insert({"t": keys[120:]}, {"t": rows_of(20)})
        twins.check()
    assert stat(evicting, "t/evicted") == 12 and stat(evicting, "t/rows") == 128
    winners = set(sorted(keys[120:], key=hash_rank)[:8])
    assert set(export(refusing.coll, refusing.state, "t")) == set(keys[:120]) | winners


def test_scores_are_given_back_as_exported(platform):
    twins = make(score_strategy="lfu")
    scores = {"t": np.array([5 << 32 | 9, 1, 2**61], np.uint64)}
    twins.insert({"t": [1, 2, 3]}, {"t": rows_of(3)}, scores=scores)
    assert export(twins.coll, twins.state, "t")[3].score == 2**61
    twins.check()


@pytest.mark.parametrize("strategy", ["step", "lfu"])
def test_restored_rows_do_not_outlive_rows_used_since(platform, strategy):
    # the scores come from a table with a longer history than this one
    twins = make(score_strategy=strategy)
    keys = keys_of_bucket(1, 2, 256)
    restored = 5000 + np.arange(127, dtype=np.uint64)
    if strategy != "step":
        restored |= np.uint64(1 << 32)
    twins.insert({"t": keys[:127]}, {"t": rows_of(127)}, scores={"t": restored})
    twins.lookup({"t": [keys[127]]})
    assert export(twins.coll, twins.state, "t")[keys[127]].score % 2**32 == 5127
    twins.lookup({"t": keys[:7]})
    twins.lookup({"t": keys[128:138]})
    twins.check()
    if strategy == "step":
        left = set(export(twins.coll, twins.state, "t"))
        assert set(keys[:138]) - left == set(keys[7:17])


@pytest.mark.parametrize("strategy", ["step", "lfu"])
def test_scores_stay_those_of_live_rows(platform, strategy):
    twins = make(score_strategy=strategy)
    scores = np.array([0, 2**64 - 1, 2**64 - 1, 7], np.uint64)
    with pytest.raises(ValueError, match="score"):
        twins.coll.insert(
            twins.state, {"t": [1, 2, 3, 4]}, {"t": rows_of(4)}, scores={"t": scores}
        )
    # what jit traces can not be refused by value
    twins.insert({"t": [1, 2, 3, 4]}, {"t": rows_of(4)}, scores={"t": scores})
    assert set(export(twins.coll, twins.state, "t")) == {1, 2, 3, 4}
    twins.check()
    twins.lookup({"t": [1, 5]})
    twins.check()


def test_outside_jit_numpy_is_enough(platform):
    twins = make(score_strategy="lfu")
    ids, rows = {"t": np.array([1, -10])}, {"t": rows_of(2)}
    scores = {"t": np.array([7 << 32 | 5, 2**61], np.uint64)}
    twins.state = twins.coll.insert(twins.state, ids, rows, scores=scores)
    twins.oracle.insert(ids, rows, scores=scores)
    twins.check()


def test_reserved_ids_are_refused(platform):
    twins = make()
    words = np.array([-2, 8], np.int64).view(np.uint32).reshape(2, 2)
    twins.state = twins.coll.insert(twins.state, {"t": words}, {"t": rows_of(2)})
    twins.oracle.insert({"t": np.array([-2, 8])}, {"t": rows_of(2)})
    assert stat(twins, "t/refused") == 1
    twins.check()


def test_unknown_states_are_named():
    twins = make(optimizer=jde.optim.adam(0.1))
    with pytest.raises(ValueError, match="sum_of_squares.*mu"):
        twins.insert(
            {"t": [1]},
            {"t": rows_of(1)},
            optimizer_state={"t": {"sum_of_squares": rows_of(1)}},
        )


@pytest.mark.parametrize("param_dtype", ["bfloat16", "float16"])
def test_rows_are_rounded_to_nearest_even(platform, param_dtype):
    twins = make(param_dtype=param_dtype)
    rows = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    twins.insert({"t": np.arange(64)}, {"t": rows})
    expected = rows.astype(np.dtype(twins.coll.tables["t"].param_dtype))
    for key, row in export(twins.coll, twins.state, "t").items():
        np.testing.assert_array_equal(row.values, expected[key])


def test_empty_insert(platform):
    twins = make()
    twins.insert({"t": np.zeros(0, np.int64)}, {"t": rows_of(0)})
    twins.check()
    assert stat(twins, "t/rows") == 0
