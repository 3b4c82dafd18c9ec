# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Compares every store with a dict."""

import urllib.parse

import numpy as np
import pytest

import jax_dynemb as jde
from stores.conftest import random_rows, table_config


def assert_holds(store, truth: dict[int, bytes], asked: np.ndarray) -> None:
    found, packed = store.get(asked)
    assert found.dtype == bool and packed.dtype == np.uint8
    expected = [truth.get(int(key)) for key in asked]
    np.testing.assert_array_equal(found, [row is not None for row in expected])
    zeros = bytes(store.layout.row_bytes)
    assert [row.tobytes() for row in packed] == [row or zeros for row in expected]


def test_random_walk_equals_a_dict(make_store):
    store, rng = make_store(), np.random.default_rng(7)
    assert isinstance(store, jde.stores.Store)
    pool = rng.integers(-(2**63), 2**63 - 1, 300)
    pool = np.concatenate([pool[pool < -4], pool[pool >= 0], [0, 1, -5, 2**63 - 1]])
    truth: dict[int, bytes] = {}
    for step in range(60):
        keys = rng.choice(pool, rng.integers(0, 120))  # some come twice
        if rng.random() < 0.6:
            rows = random_rows(rng, len(keys), store)
            assert store.put(keys, rows, step).all()
            truth.update(zip(keys.tolist(), [r.tobytes() for r in rows], strict=True))
        else:
            there = {int(key) for key in keys if int(key) in truth}
            assert store.discard(keys) == len(there)
            truth = {k: v for k, v in truth.items() if k not in there}
        if step % 7 == 0:
            store.commit(f"step-{step}")
        assert_holds(store, truth, rng.choice(pool, 80))
    assert_holds(store, truth, pool)
    assert sorted(store.keys().tolist()) == sorted(truth)


def test_signed_and_unsigned_keys_are_the_same(make_store):
    store, rng = make_store(), np.random.default_rng(0)
    keys = np.array([0, 1, 2**63, 2**64 - 5], np.uint64)
    rows = random_rows(rng, 4, store)
    store.put(keys, rows)
    found, packed = store.get(keys.view(np.int64))
    assert found.all()
    np.testing.assert_array_equal(packed, rows)


def test_nothing_is_fine(make_store):
    store = make_store()
    none = np.empty((0, store.layout.row_bytes), np.uint8)
    assert store.put([], none).shape == (0,)
    found, packed = store.get(np.array([], np.int64))
    assert found.shape == (0,) and packed.shape == none.shape
    assert store.discard([]) == 0
    assert store.keys().dtype == np.int64 and len(store.keys()) == 0
    store.commit("empty")
    store.open("empty")


@pytest.mark.parametrize("key", [-1, -2, -3, -4])
def test_reserved_keys_are_refused(make_store, key):
    store = make_store()
    row = np.zeros((1, store.layout.row_bytes), np.uint8)
    for call in (store.get, store.discard, lambda keys: store.put(keys, row)):
        with pytest.raises(ValueError, match="1 keys are -1 to -4"):
            call(np.array([key]))


def test_mistakes_are_named(make_store):
    store = make_store()
    width = store.layout.row_bytes
    with pytest.raises(TypeError, match="integers of 64 bits, not float32"):
        store.get(np.ones(3, np.float32))
    with pytest.raises(ValueError, match=r"not of shape \(2, 2\)"):
        store.get(np.ones((2, 2), np.int64))
    with pytest.raises(ValueError, match=f"2 keys need rows of shape \\(2, {width}\\)"):
        store.put([1, 2], np.zeros((2, width + 1), np.uint8))
    with pytest.raises(ValueError, match="2 keys need rows"):
        store.put([1, 2], np.zeros((3, width), np.uint8))
    with pytest.raises(TypeError, match="not float32"):
        store.put([1], np.zeros((1, width), np.float32))
    for tag in ("", "a/b", "..", "a b", "x" * 101):
        with pytest.raises(ValueError, match="a tag is"):
            store.commit(tag)
    assert len(store.keys()) == 0


def test_unknown_commits_are_named(make_store):
    store = make_store()
    store.commit("one")
    with pytest.raises(FileNotFoundError, match="no commit 'two'; there are: one"):
        store.open("two")


def test_a_large_batch(make_store):
    store, rng = make_store(), np.random.default_rng(3)
    keys = rng.permutation(20_000) * 31
    rows = random_rows(rng, len(keys), store)
    store.put(keys, rows)
    order = rng.permutation(len(keys))
    found, packed = store.get(keys[order])
    assert found.all()
    np.testing.assert_array_equal(packed, rows[order])


@pytest.mark.parametrize("make_store", ["Log", "RocksDB", "Redis"], indirect=True)
@pytest.mark.parametrize(
    "changes, named",
    [
        ({"dim": 6}, "dim 5 there, 6 here"),
        ({"param_dtype": "bfloat16"}, "param_dtype float32 there"),
        ({"optimizer": jde.optim.sgd(0.1)}, "states {"),
        ({"score_strategy": "lfu"}, "score_strategy step there, lfu here"),
    ],
)
def test_rows_of_another_table_are_refused(make_store, changes, named):
    store = make_store()
    store.commit("one")
    getattr(store, "close", lambda: None)()
    with pytest.raises(ValueError, match=named):
        make_store(table=table_config(**changes))


@pytest.mark.parametrize("make_store", ["RocksDB", "Redis"], indirect=True)
def test_epochs_do_not_mix(make_store):
    rng = np.random.default_rng(1)
    first = make_store(epoch=1)
    rows = random_rows(rng, 2, first)
    first.put([1, 2], rows)
    getattr(first, "close", lambda: None)()
    second = make_store(epoch=2)
    assert not second.get([1, 2])[0].any() and len(second.keys()) == 0
    second.put([1], random_rows(rng, 1, second))
    getattr(second, "close", lambda: None)()
    again = make_store(epoch=1)
    found, packed = again.get([1, 2])
    assert found.all()
    np.testing.assert_array_equal(packed, rows)


@pytest.mark.parametrize("make_store", ["Memory", "Log"], indirect=True)
def test_open_goes_back_exactly(make_store):
    store, rng = make_store(), np.random.default_rng(5)
    before = random_rows(rng, 50, store)
    store.put(np.arange(50), before)
    store.commit("one")
    store.put(np.arange(40, 60), random_rows(rng, 20, store))
    store.discard(np.arange(10))
    store.commit("two")
    store.put(np.arange(100), random_rows(rng, 100, store))
    store.open("one")
    assert sorted(store.keys()) == list(range(50))
    found, packed = store.get(np.arange(50))
    assert found.all()
    np.testing.assert_array_equal(packed, before)
    store.open("two")
    assert sorted(store.keys()) == list(range(10, 60))


def test_values_of_others_are_refused(redis_url, tmp_path):
    import redis

    store = jde.stores.Redis(redis_url, table_config(), name=str(tmp_path))
    store.put([1, 2, 3], np.ones((3, store.layout.row_bytes), np.uint8))
    client = redis.Redis.from_url(redis_url)
    names = [n for n in client.scan_iter() if n.endswith(b"\0\0\0\2")]
    mine = urllib.parse.quote(str(tmp_path), safe="").encode()
    values = {n: client.get(n) for n in names if mine in n}
    assert len(values) == 1
    for name, value in values.items():
        damaged = bytearray(value)
        damaged[20] ^= 1
        for bad in (bytes(damaged), b"", value + b"x"):
            client.set(name, bad)
            with pytest.raises(jde.DamagedFileError, match="the value of key 2 is"):
                store.get([1, 2, 3])
        client.set(name, value)
    assert store.get([1, 2, 3])[0].all()
    with pytest.raises(ValueError, match="without decode_responses"):
        jde.stores.Redis(
            redis.Redis.from_url(redis_url, decode_responses=True), table_config()
        )
