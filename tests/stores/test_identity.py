# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Stores say whose rows they have, and a log says which commit is its newest."""

import dataclasses
import json

import numpy as np
import pytest

import jax_dynemb as jde
from jax_dynemb._src.files.integrity import sum_of_json
from jax_dynemb._src.rows import Identity

TABLE = jde.TableConfig("cat", dim=3, capacity=256)
OTHER = dataclasses.replace(TABLE, name="dog", feature_names=())
IDENTITY = Identity(1 << 100, 7, 5, 4, tuple(range(16)), ((3, 2),))


def put(store, *keys: int) -> None:
    store.put(np.array(keys), np.zeros((len(keys), store.layout.row_bytes), np.uint8))


def log(path, table=TABLE, **options):
    return jde.stores.Log(path, table, **options)


def committed(path, *tags: str) -> None:
    with log(path) as store:
        for number, tag in enumerate(tags):
            put(store, number)
            store.identity = dataclasses.replace(IDENTITY, clock=number)
            store.commit(tag)


def at(clock: int) -> Identity:
    return dataclasses.replace(IDENTITY, clock=clock)


def put_at(store, clock: int) -> None:
    store.identity = at(clock)
    put(store, clock)


def test_a_commit_keeps_the_identity(make_store, tmp_path):
    store = make_store()
    assert isinstance(store, jde.stores.Identified) and store.identity is None
    for clock in (1, 2, 3):
        put_at(store, clock)
        store.commit(f"at-{clock}")
    store.identity = None
    for clock in (3, 2):  # a store may forget the later ones
        store.open(f"at-{clock}")
        assert store.identity == at(clock)
    if not isinstance(store, jde.stores.Memory):
        store.commit("again")
        getattr(store, "close", lambda: None)()
        assert make_store().identity == at(2)


def test_a_reader_of_a_log_knows_the_identity(tmp_path):
    committed(tmp_path, "a", "b")
    with log(tmp_path, None, read_only=True) as reader:
        assert reader.identity == at(1)


@pytest.mark.parametrize("make_store", ["RocksDB", "Redis"], indirect=True)
@pytest.mark.parametrize("keep", [0, 2])
def test_rows_that_change_in_place_say_so(make_store, keep):
    """A program that is killed leaves rows that no commit has."""
    store = make_store(keep=keep)
    put_at(store, 1)
    store.commit("at-1")
    for clock in (2, 3):
        store.identity = at(clock)
        if clock == 2:
            put(store, clock)
        else:
            store.discard([1])
        getattr(store, "close", lambda: None)()
        store = make_store(keep=keep)
        assert store.identity == at(clock)
    store.open("at-1")  # keep=0 goes on with the rows as they are
    assert store.identity == at(1)
    assert sorted(store.keys().tolist()) == ([1] if keep else [2])
    getattr(store, "close", lambda: None)()
    assert make_store(keep=keep).identity == at(1)


@pytest.mark.parametrize("make_store", ["RocksDB", "Redis"], indirect=True)
def test_an_identity_while_a_store_goes_back(make_store, monkeypatch):
    store = make_store()
    for clock in (1, 2):
        put_at(store, clock)
        store.commit(f"at-{clock}")
    with monkeypatch.context() as patch:
        patch.setattr(store, "_drop_epoch", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            store.open("at-1")
    getattr(store, "close", lambda: None)()
    store = make_store()
    assert store.identity == at(1)
    put(store, 5)  # ends what was begun
    assert store.identity == at(1) and sorted(store.keys().tolist()) == [1, 5]


@pytest.mark.parametrize("make_store", ["RocksDB", "Redis"], indirect=True)
def test_lists_of_commits_of_older_versions(make_store, monkeypatch):
    store = make_store()
    monkeypatch.setattr(type(store), "_said", b"null")
    put(store, 1)
    store.commit("old")
    (stored,) = store._read_values([store._commits])
    assert json.loads(stored)["commits"] == [[1, "old", 0]]
    getattr(store, "close", lambda: None)()
    store = make_store()
    assert store.identity is None and store.last_tag() == "old"


@pytest.mark.parametrize("make_store", ["RocksDB", "Redis"], indirect=True)
def test_a_damaged_identity_is_named(make_store, monkeypatch):
    store = make_store()
    monkeypatch.setattr(type(store), "_said", b'{"run": 1}')
    put(store, 1)
    getattr(store, "close", lambda: None)()
    with pytest.raises(jde.DamagedFileError, match="this is no identity"):
        make_store()


def test_a_table_of_another_name(tmp_path):
    committed(tmp_path / "log", "a")
    with pytest.raises(ValueError, match="rows of table 'cat', not of 'dog'"):
        log(tmp_path / "log", OTHER)
    with pytest.raises(ValueError, match="rows of table 'cat', not of 'dog'"):
        log(tmp_path / "log", OTHER, read_only=True)
    coll = jde.Tables([OTHER])
    with log(tmp_path / "log", None, read_only=True) as store:  # the advice
        state = jde.import_.from_store(coll, {"dog": store}).state
    assert coll.stats(state)["dog/rows"] == 1


def test_stores_of_two_tables_are_not_exchanged():
    def memory(table):
        return jde.stores.Memory(table)

    tier = jde.tiers.external(memory, host_rows=256)
    tables = [dataclasses.replace(each, tier=tier) for each in (TABLE, OTHER)]
    stores = {"cat": jde.stores.Memory(OTHER), "dog": jde.stores.Memory(TABLE)}
    with pytest.raises(ValueError, match="rows of table 'dog', not of 'cat'"):
        jde.tiers.prefetch_rows(jde.Tables(tables), iter(()), stores=stores)


def test_the_newest_commit_is_missing(tmp_path):
    committed(tmp_path, "a", "b", "c")
    manifest = tmp_path / "commits" / "c.json"
    manifest.unlink()
    for read_only in (True, False):
        with pytest.raises(jde.DamagedFileError, match="it is missing") as error:
            log(tmp_path, read_only=read_only)
        assert error.value.path == str(manifest)
    with log(tmp_path, tag="b") as store:  # the advice
        store.commit("back")
    with log(tmp_path) as store:
        assert store.stats()["tag"] == "back" and len(store.keys()) == 2


def test_all_commits_are_missing(tmp_path):
    committed(tmp_path, "a")
    (tmp_path / "commits" / "a.json").unlink()
    with pytest.raises(jde.DamagedFileError, match="it is missing") as error:
        log(tmp_path)
    assert error.value.path == str(tmp_path / "commits" / "a.json")


def test_a_writer_that_died_before_it_named_its_commit(tmp_path):
    committed(tmp_path, "a")
    newest = tmp_path / "commits" / "NEWEST"
    before = newest.read_bytes()
    committed(tmp_path, "b")
    newest.write_bytes(before)
    with log(tmp_path) as store:
        assert store.stats()["tag"] == "b"
        store.commit("a")  # of a name that there was
    with log(tmp_path) as store:
        assert store.stats()["tag"] == "a"


def test_a_log_of_an_older_version(tmp_path):
    committed(tmp_path, "a", "b")
    (tmp_path / "commits" / "NEWEST").unlink()
    for path in (tmp_path / "commits").glob("*.json"):
        fields = json.loads(path.read_text())
        for name in ("crc32", "identity", "is_named"):
            del fields[name]
        path.write_text(json.dumps(fields | {"crc32": sum_of_json(fields)}))
    with log(tmp_path) as store:
        assert store.identity is None and store.stats()["tag"] == "b"
        store.commit("c")
    (tmp_path / "commits" / "c.json").unlink()
    with pytest.raises(jde.DamagedFileError, match="it is missing"):
        log(tmp_path)
