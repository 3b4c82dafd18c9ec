# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The rules of the oracle, each by one example worked out by hand."""

from typing import Any

import numpy as np

import jax_dynemb as jde
from keys import keys_of_bucket
from oracle import ReferenceTables, hash_rank

DEBUG = jde.initializers.debug()


def make(**options: Any) -> ReferenceTables:
    options = {"initializer": DEBUG, "optimizer": jde.optim.sgd(1.0)} | options
    return ReferenceTables([jde.TableConfig(name="t", dim=2, capacity=256, **options)])


def ids(*keys: int) -> dict[str, np.ndarray]:
    return {"t": np.array(keys, np.int64)}


def test_lookup_inserts_find_does_not():
    oracle = make()
    rows, found = oracle.find(ids(7, -1))
    assert rows["t"].tolist() == [[0, 0], [0, 0]] and found["t"].tolist() == [0, 0]
    rows, _ = oracle.lookup(ids(7, -1, 7))
    assert rows["t"].tolist() == [[7, 7], [0, 0], [7, 7]]
    assert oracle.find(ids(7, 8))[1]["t"].tolist() == [True, False]
    assert oracle.stats()["t/rows"] == 1 and oracle.stats()["t/inserted"] == 1


def test_one_update_by_the_sum_of_the_gradients():
    oracle = make(optimizer=jde.optim.adagrad(1.0, eps=0.0))
    _, residual = oracle.lookup(ids(3, 4, 3))
    oracle.apply_gradients(residual, {"t": np.array([[1, 4], [5, 5], [2, -1]])})
    row = oracle.export("t")[3]
    assert row.state["sum_of_squares"].tolist() == [9, 9]
    assert row.values.tolist() == [2, 2]


def test_the_least_recently_used_row_leaves():
    oracle = make()
    keys = keys_of_bucket(0, 2, 129)
    oracle.lookup(ids(*keys[:128]))
    oracle.lookup(ids(*keys[1:128]))
    oracle.lookup(ids(keys[128]))
    left = oracle.export("t")
    assert keys[0] not in left and keys[128] in left and len(left) == 128
    assert oracle.stats()["t/evicted"] == 1


def test_the_smaller_key_of_equal_scores_leaves():
    oracle = make()
    keys = keys_of_bucket(1, 2, 130)
    oracle.lookup(ids(*keys[:128]))
    oracle.lookup(ids(*keys[128:]))
    assert set(keys) - oracle.export("t").keys() == {keys[0], keys[1]}


def test_rows_of_this_call_stay_and_the_smallest_hashes_win():
    oracle = make()
    keys = keys_of_bucket(1, 2, 140)
    oracle.lookup(ids(*keys[:128]))
    # 126 rows are in use, so of twelve newcomers two find a place
    rows, _ = oracle.lookup(ids(*keys[:126], *keys[128:], keys[139]))
    winners = sorted(keys[128:], key=hash_rank)[:2]
    assert set(keys[128:]) & oracle.export("t").keys() == set(winners)
    assert set(keys[:128]) - oracle.export("t").keys() == {keys[126], keys[127]}
    assert rows["t"][130].tolist() == [keys[132] % 100_000] * 2  # refused: initial row
    refused = 10 + (keys[139] not in winners)
    assert oracle.stats()["t/refused"] == refused


def test_no_eviction_refuses():
    oracle = make(score_strategy="no_eviction")
    keys = keys_of_bucket(1, 2, 129)
    oracle.lookup(ids(*keys[:128]))
    _, residual = oracle.lookup(ids(keys[128]))
    oracle.apply_gradients(residual, {"t": np.ones((1, 2))})
    assert keys[128] not in oracle.export("t")
    assert oracle.stats()["t/refused"] == 1 and oracle.stats()["t/lost_updates"] == 0


def test_frequency_counts_occurrences():
    oracle = make(score_strategy="lfu")
    oracle.lookup(ids(5, 5, 6))
    oracle.lookup(ids(5))
    rows = oracle.export("t")
    assert (rows[5].score, rows[6].score) == (3 << 32 | 2, 1 << 32 | 1)


def test_an_update_of_a_row_that_left_is_lost():
    oracle = make()
    _, residual = oracle.lookup(ids(1, 1, 2))
    oracle.erase(ids(1))
    oracle.apply_gradients(residual, {"t": np.ones((3, 2))})
    assert oracle.stats()["t/lost_updates"] == 2
    assert oracle.export("t")[2].values.tolist() == [1, 1]


def test_reserved_ids_are_refused():
    oracle = make()
    rows, _ = oracle.lookup(ids(-2, -3, -4, -5))
    assert oracle.stats()["t/refused"] == 3 and list(oracle.export("t")) == [-5]
    assert rows["t"][0, 0] == (2**64 - 2) % 100_000


def test_means_divide_by_valid_ids():
    oracle = make(pooling="mean")
    bags = {"t": np.array([[2, 4, -1], [-1, -1, -1]])}
    weights = {"t": np.array([[1, 0.5, 9], [1, 1, 1]])}
    rows, residual = oracle.lookup(bags, weights)
    assert rows["t"].tolist() == [[2, 2], [0, 0]]
    oracle.apply_gradients(residual, {"t": np.ones((2, 2))})
    assert oracle.export("t")[4].values.tolist() == [3.75, 3.75]
    inner = oracle.weight_gradients(residual, {"t": np.ones((2, 2))})
    assert inner["t"].tolist() == [[2, 4, 0], [0, 0, 0]]
