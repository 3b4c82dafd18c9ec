# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Stores go back to their commits, also where a call was interrupted."""

import numpy as np
import pytest

import jax_dynemb as jde
from stores.conftest import random_rows, table_config
from walks import rows_in

KEEP = 3
PARTS = (
    "_put_rows",
    "_discard_rows",
    "_write_history",
    "_restore_epoch",
    "_drop_epoch",
)


class Truth:
    """A dict of rows, and of the rows of the last commits."""

    def __init__(self):
        self.rows: dict[int, bytes] = {}
        self.commits: list[tuple[str, dict[int, bytes]]] = []

    def commit(self, tag: str) -> None:
        self.commits = [each for each in self.commits if each[0] != tag]
        self.commits = [*self.commits, (tag, dict(self.rows))][-KEEP:]

    def open(self, number: int) -> str:
        self.commits = self.commits[: number + 1]
        tag, rows = self.commits[number]
        self.rows = dict(rows)
        return tag


def changed(store, truth: Truth, rng: np.random.Generator, step: int) -> None:
    """Puts or discards rows; some keys come twice in a call."""
    keys = rng.integers(0, 60, rng.integers(0, 40))
    if rng.random() < 0.6:
        rows = random_rows(rng, len(keys), store)
        store.put(keys, rows, step)
        truth.rows |= zip(keys.tolist(), [r.tobytes() for r in rows], strict=True)
    else:
        store.discard(keys)
        truth.rows = {k: v for k, v in truth.rows.items() if k not in keys}


def again(store, make_store, **options):
    """The same store as another process opens it."""
    getattr(store, "close", lambda: None)()
    return make_store(**options)


@pytest.mark.parametrize("make_store", ["Log", "RocksDB", "Redis"], indirect=True)
def test_random_walks_go_back_to_any_commit(make_store):
    rng, truth = np.random.default_rng(11), Truth()
    store = make_store(keep=KEEP)
    for step in range(200):
        draw = rng.random()
        if draw < 0.6:
            changed(store, truth, rng, step)
        elif draw < 0.85:
            tag = f"step-{rng.integers(0, 9)}"  # some are replaced
            store.commit(tag, step)
            truth.commit(tag)
        elif truth.commits:
            tag = truth.open(int(rng.integers(0, len(truth.commits))))
            store.open(tag)
            if rng.random() < 0.5:
                store = again(store, make_store, keep=KEEP)
                store.open(tag)  # a log begins with its last commit
        assert rows_in(store) == truth.rows
    assert store.stats()["commits"] >= len(truth.commits)


class Died(Exception):
    """A call that did not return."""


@pytest.mark.parametrize("make_store", ["RocksDB", "Redis"], indirect=True)
@pytest.mark.parametrize("opens", [True, False])
def test_interrupted_at_any_part(make_store, monkeypatch, opens):
    """A commit that was made is there, whichever part of a later call failed."""
    rng, truth = np.random.default_rng(5), Truth()
    store = make_store(keep=KEEP)
    died = ended = 0
    for step in range(150):
        left = int(rng.integers(0, 12))

        def dies(part):
            def run(*args):
                nonlocal left
                left -= 1
                if left == 0:
                    raise Died
                result = part(*args)
                if left == 1 and rng.random() < 0.5:
                    raise Died
                return result

            return run

        with monkeypatch.context() as patch:
            for name in PARTS:
                patch.setattr(store, name, dies(getattr(store, name)))
            commits = list(truth.commits)
            try:
                for _ in range(3):
                    changed(store, truth, rng, step)
                if commits and rng.random() < 0.5:
                    store.open(truth.open(int(rng.integers(0, len(commits)))))
                else:
                    store.commit(f"step-{step}")
                    truth.commit(f"step-{step}")
                continue
            except Died:
                died += 1
        store = again(store, make_store, keep=KEEP)
        truth.commits = commits
        last = store.last_tag()
        if last is None:
            truth.rows = rows_in(store)
            continue
        if last == f"step-{step}":  # it was made before the call failed
            truth.commit(last)
        truth.open([tag for tag, _ in truth.commits].index(last))
        history = store._read_history()
        if opens or history.highest == history.number:
            store.open(last)
        else:  # the next write ends what was begun
            store.discard([])
            ended += 1
        assert rows_in(store) == truth.rows
    assert ended > 0 or opens
    assert died > 20


@pytest.mark.parametrize("make_store", ["RocksDB", "Redis"], indirect=True)
def test_without_older_rows(make_store):
    rng, truth = np.random.default_rng(2), Truth()
    store = make_store(keep=0)
    assert not store.goes_back
    for step in range(4):
        changed(store, truth, rng, step)
        store.commit("one", step)
    store.open("one")
    assert rows_in(store) == truth.rows and store.last_tag() == "one"
    kept = again(store, make_store, keep=2)
    with pytest.raises(FileNotFoundError, match="no commit 'one'; there are: none"):
        kept.open("one")
    kept.commit("two")
    truth.commit("two")
    changed(kept, truth, rng, 5)
    kept.open("two")
    truth.open(0)
    assert rows_in(kept) == truth.rows
    store = again(kept, make_store, keep=0)
    changed(store, truth, rng, 6)
    kept = again(store, make_store, keep=2)
    with pytest.raises(FileNotFoundError, match="no commit 'two'"):
        kept.open("two")  # its rows have changed
    assert rows_in(kept) == truth.rows


@pytest.mark.parametrize("keep", [-1, True, 1.5])
def test_keep_is_a_number(make_store, keep):
    if make_store().__class__ in (jde.stores.RocksDB, jde.stores.Redis):
        with pytest.raises(ValueError, match="keep must be a whole number from 0 on"):
            make_store(name="b", keep=keep)


def test_a_server_that_removes_rows_is_refused(redis_url, tmp_path):
    import redis

    client = redis.Redis.from_url(redis_url)
    row = np.zeros((1, jde.stores.Layout.of(table_config()).row_bytes), np.uint8)
    try:
        client.config_set("maxmemory", "1gb")
        client.config_set("maxmemory-policy", "allkeys-lru")
        store = jde.stores.Redis(redis_url, table_config(), name=str(tmp_path))
        with pytest.raises(RuntimeError, match="Set maxmemory-policy noeviction"):
            store.put([1], row)
        client.config_set("maxmemory-policy", "noeviction")
        assert store.put([1], row).all()
    finally:
        client.config_set("maxmemory", "0")
        client.config_set("maxmemory-policy", "noeviction")
