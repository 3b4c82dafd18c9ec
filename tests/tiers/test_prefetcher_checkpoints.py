# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A checkpoint and the stores below its tables are of one step, always."""

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest

import jax_dynemb as jde
from meshes import mesh_of
from processes import NIGHTLY, counts_of
from stores.conftest import make_store, redis_url  # noqa: F401 (fixtures)
from stores.test_crashes import faults  # noqa: F401 (fixture)
from walks import (
    BELOW,
    PLAIN,
    TIER,
    Walk,
    cold_batches,
    rows_in,
    rows_of,
    stepper,
)

KILLER = Path(__file__).parent / "kill_prefetcher.py"


def saved(walk: Walk, path, batches, begin: int, end: int) -> None:
    """Trains, and saves after the last step."""
    with walk.prefetcher(batches[begin:end]) as prefetcher:
        walk.run(prefetcher, batches[begin:end])
        jde.checkpoint.save(
            path, end, walk.state, tables=walk.coll, prefetcher=prefetcher
        )


def restored(walk: Walk, path, step: int | None = None) -> int:
    """Brings the small table and its store to a step."""
    back = jde.checkpoint.restore(
        path, walk.coll.init(9), tables=walk.coll, stores=walk.stores, step=step
    )
    assert back.notes == ()
    walk.state = back.tree
    return back.step


@pytest.mark.parametrize("kind", ["Memory", "Log"])
def test_steps_after_a_save_are_taken_back(tmp_path, kind):
    log = tmp_path / "log"
    store = (
        jde.stores.Memory(PLAIN)
        if kind == "Memory"
        else jde.stores.Log(log, PLAIN, segment_megabytes=1 / 64, keep=3)
    )
    batches, path = cold_batches(1, 120), tmp_path / "checkpoints"
    walk = Walk(store)
    rng = np.random.default_rng(2)
    for begin in range(0, 120, 30):
        saved(walk, path, batches, begin, begin + 30)
        expected = rows_of(walk.plain, walk.whole)
        lost = cold_batches(100 + begin, int(rng.integers(1, 20)))
        with walk.prefetcher(lost) as prefetcher:  # steps that a crash takes back
            for _ in lost:
                ids, walk.state = prefetcher.next(walk.state)
                _, walk.state = stepper(walk.coll)(walk.state, ids)
        assert restored(walk, path) == begin + 30
        above, below = rows_of(walk.coll, walk.state), rows_in(store)
        assert above | below == expected and not above.keys() & below.keys()
    assert restored(walk, path, 90) == 90
    if kind == "Log":
        store.close()
        walk.stores["cat"] = jde.stores.Log(log, PLAIN)
        assert restored(walk, path, 60) == 60
        with pytest.raises(FileNotFoundError, match="step-30"):
            jde.stores.Log(log, PLAIN, read_only=True).open("step-30")


def test_training_goes_on_beside_a_save(tmp_path):
    """A save changes neither the state nor what the prefetcher does next."""
    batches = cold_batches(3, 60)
    walk = Walk(jde.stores.Memory(PLAIN))
    with walk.prefetcher(batches) as prefetcher:
        for begin in range(0, 60, 20):
            walk.run(prefetcher, batches[begin : begin + 20])
            jde.checkpoint.save(
                tmp_path, begin, walk.state, tables=walk.coll, prefetcher=prefetcher
            )
        walk.check(prefetcher)
    jde.checkpoint.wait(tmp_path)


OTHERS = {
    "no tier": (PLAIN, None),
    "host tier": (
        dataclasses.replace(PLAIN, tier=jde.tiers.host(hbm_fraction=0.25)),
        None,
    ),
    "more frames": (
        dataclasses.replace(BELOW, tier=dataclasses.replace(TIER, hbm_fraction=0.25)),
        None,
    ),
    "fewer rows": (
        dataclasses.replace(BELOW, tier=dataclasses.replace(TIER, host_rows=128)),
        None,
    ),
    "a mesh": (BELOW, 4),
}


@pytest.mark.parametrize("name", OTHERS)
def test_into_another_table_and_back(tmp_path, name):
    batches = cold_batches(4, 90)
    walk = Walk(jde.stores.Memory(PLAIN))
    saved(walk, tmp_path / "one", batches, 0, 60)
    expected = rows_of(walk.plain, walk.whole)
    config, devices = OTHERS[name]
    mesh = {} if devices is None else {"mesh": mesh_of(devices), "axis": "data"}
    other = jde.Tables([config], **mesh)
    tree = jde.checkpoint.restore(
        tmp_path / "one", other.init(7), tables=other, stores=walk.stores
    ).tree
    above = rows_of(other, tree)
    has_store = isinstance(config.tier, jde.tiers.StoreTier)
    below = rows_in(walk.stores["cat"]) if has_store else {}
    assert above | below == expected and not above.keys() & below.keys()

    empty = walk.stores if has_store else {"cat": jde.stores.Memory(PLAIN)}
    if has_store:
        with jde.tiers.prefetch_rows(other, [], stores=walk.stores) as prefetcher:
            jde.checkpoint.save(
                tmp_path / "two", 60, tree, tables=other, prefetcher=prefetcher
            )
    else:
        jde.checkpoint.save(tmp_path / "two", 60, tree, tables=other)
    back = Walk(empty["cat"])
    tree = jde.checkpoint.restore(
        tmp_path / "two", back.coll.init(7), tables=back.coll, stores=back.stores
    ).tree
    above, below = rows_of(back.coll, tree), rows_in(back.stores["cat"])
    assert above | below == expected and not above.keys() & below.keys()
    back.state, back.whole = tree, walk.whole
    with back.prefetcher(batches[60:]) as prefetcher:
        back.run(prefetcher, batches[60:])
        back.check(prefetcher)


def test_every_store_goes_back_with_the_table(make_store, tmp_path):  # noqa: F811
    batches = cold_batches(5, 60)
    walk = Walk(make_store(table=PLAIN))
    saved(walk, tmp_path, batches, 0, 30)
    expected = {30: rows_of(walk.plain, walk.whole)}
    saved(walk, tmp_path, batches, 30, 60)
    expected[60] = rows_of(walk.plain, walk.whole)
    for step in (60, 30):
        assert restored(walk, tmp_path, step) == step
        above, below = rows_of(walk.coll, walk.state), rows_in(walk.stores["cat"])
        assert above | below == expected[step]
        assert not above.keys() & below.keys()


class Newest:
    """A store as a user may write one: it cannot go back."""

    def __init__(self):
        self._store = jde.stores.Memory(PLAIN)
        self.layout, self.get = self._store.layout, self._store.get
        self.put, self.discard = self._store.put, self._store.discard
        self.keys, self.stats = self._store.keys, self._store.stats

    def commit(self, tag, step=None):
        """Names nothing."""

    def open(self, tag=None):
        """Changes nothing."""


@pytest.mark.slow
def test_a_store_that_cannot_go_back_loses_no_row(tmp_path):
    """Each checkpoint that stays finds all of its rows, some of them newer ones."""
    batches = list(np.random.default_rng(9).integers(0, 1500, (90, 40)))
    walk, path = Walk(Newest()), tmp_path
    with walk.prefetcher(batches) as prefetcher:
        known = {}
        for begin in range(0, 90, 5):
            walk.run(prefetcher, batches[begin : begin + 5])
            jde.checkpoint.save(
                path, begin, walk.state, tables=walk.coll, prefetcher=prefetcher
            )
            known[begin] = rows_of(walk.plain, walk.whole).keys()
            jde.checkpoint.wait(path)
            for step in list(known)[-3:] if begin % 20 == 0 else ():
                back = jde.checkpoint.restore(
                    path,
                    walk.coll.init(9),
                    tables=walk.coll,
                    stores=walk.stores,
                    step=step,
                )
                above = rows_of(walk.coll, back.tree)
                below = rows_in(walk.stores["cat"])
                assert known[step] <= above.keys() | below.keys()
        walk.state = prefetcher.drain(walk.state)
        assert prefetcher.stats()["cat/returned"] > 300
    above, below = rows_of(walk.coll, walk.state), rows_in(walk.stores["cat"])
    assert below | above == rows_of(walk.plain, walk.whole)  # the table's row counts
    assert 0 < len(above.keys() & below.keys()) < 500  # not yet discarded


def test_a_prefetcher_goes_on_from_no_state_that_lacks_rows(tmp_path):
    """An outage takes rows that had departed; a restored state has them."""
    batches = cold_batches(10, 80)
    walk = Walk(jde.stores.Memory(PLAIN))
    store, put = walk.stores["cat"], walk.stores["cat"].put
    prefetcher = walk.prefetcher(batches)
    walk.run(prefetcher, batches[:40])
    jde.checkpoint.save(
        tmp_path, 40, walk.state, tables=walk.coll, prefetcher=prefetcher
    )
    expected = rows_of(walk.plain, walk.whole)

    def refuses(*_):
        raise OSError("the server is away")

    store.put = refuses
    with pytest.raises(OSError, match="away"):
        walk.run(prefetcher, batches[40:])
    with pytest.raises(OSError, match="away"):
        prefetcher.next(walk.state)
    prefetcher.close()
    store.put = put
    with (
        walk.prefetcher(batches) as other,
        pytest.raises(RuntimeError, match="Go on from"),
    ):
        other.next(walk.state)
    restored(walk, tmp_path)
    with walk.prefetcher(batches[40:]) as other:
        _, walk.state = other.next(walk.state)
        walk.state = other.drain(walk.state)
    above, below = rows_of(walk.coll, walk.state), rows_in(store)
    assert above | below == expected and not above.keys() & below.keys()


def test_what_does_not_fit_is_named(tmp_path):
    batches = cold_batches(6, 60)
    walk = Walk(jde.stores.Memory(PLAIN))
    saved(walk, tmp_path, batches, 0, 60)
    tables = {"tables": walk.coll}
    with pytest.raises(ValueError, match="Pass stores="):
        jde.checkpoint.restore(tmp_path, walk.coll.init(0), **tables)
    with pytest.raises(FileNotFoundError, match="step-60"):
        other = {"cat": jde.stores.Memory(PLAIN)}
        jde.checkpoint.restore(tmp_path, walk.coll.init(0), **tables, stores=other)
    jde.checkpoint.save(tmp_path / "plain", 1, walk.whole, tables=walk.plain, wait=True)
    with pytest.raises(ValueError, match="rows of another run"):
        jde.checkpoint.restore(
            tmp_path / "plain", walk.coll.init(0), **tables, stores=walk.stores
        )


def test_a_new_table_over_old_rows_is_said():
    batches = cold_batches(7, 60)
    walk = Walk(jde.stores.Memory(PLAIN))
    with walk.prefetcher(batches) as prefetcher:
        walk.run(prefetcher, batches)
    walk.stores["cat"].identity = None  # of a store that notes none
    with (
        walk.prefetcher(batches) as prefetcher,
        pytest.warns(RuntimeWarning, match="new run"),
    ):
        prefetcher.next(walk.coll.init(0))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["RocksDB", "Redis"])
def test_killed_at_any_time(kind, tmp_path, request):
    """The same above a database or a server, which hold the rows of their commits."""
    pytest.importorskip("rocksdict" if kind == "RocksDB" else "redis")
    url = [request.getfixturevalue("redis_url")] if kind == "Redis" else []
    trials = 500 if NIGHTLY else 4
    seed = os.environ.get("SEED", 0)
    counts = counts_of(str(KILLER), tmp_path, trials, seed, kind, *url)
    assert counts["killed"] >= trials // 2
    assert counts["rows"] > counts["rows_below"] > 0


@pytest.mark.slow
def test_killed_at_any_call(faults, tmp_path, monkeypatch, capsys):  # noqa: F811
    """The latest checkpoint, with its commit, has the rows of its step."""
    monkeypatch.setenv("LD_PRELOAD", str(faults))
    trials = 80 if NIGHTLY else 5
    counts = counts_of(str(KILLER), tmp_path, trials, os.environ.get("SEED", 0))
    with capsys.disabled():
        print(f"\nkilled prefetchers: {counts}")
    assert counts["killed"] >= trials // 2
    assert counts["rows"] > counts["rows_below"] > 0
