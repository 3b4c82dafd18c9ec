# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Everything pinned, more ids than frames, a disk that fails, and mistakes of paths."""

import dataclasses
import os
import resource
import signal

import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde
from support import Twins
from tiered import ADAM, TIER, Both, batch
from walks import BELOW, PLAIN, Walk, cold_batches, rows_in, rows_of


def test_uniform_ids_that_fill_every_bucket(platform):
    """1,024 distinct ids of one batch, 16 frames in device memory."""
    both = Both(jde.TableConfig("t", 4, 512, optimizer=ADAM))
    rng = np.random.default_rng(0)
    for _ in range(3):
        ids = rng.choice(4000, 1024, replace=False)
        both.train({"t": ids}, {"t": jnp.ones((1024, 4))})
    both.check()
    stats = both.colls[1].stats(both.states[1])
    assert stats["t/bypassed"] == 3 * (512 - 16) and stats["t/refused"] > 0


def test_everything_is_pinned(platform):
    """Pinned rows stay and are trained; other ids are refused, as without a tier."""
    twins = Twins(jde.TableConfig("t", 4, 256, optimizer=ADAM, tier=TIER))
    twins.train({"t": batch(600, 0)}, seed=0)
    keys = np.concatenate([chunk.keys for chunk in twins.coll.export(twins.state, "t")])
    assert len(keys) == 256
    twins.state = twins.coll.pin(twins.state, {"t": jde.ids(keys)})
    twins.oracle.pin({"t": keys})
    for seed in range(1, 4):
        twins.train({"t": batch(300, seed)}, seed=seed)
        new = {"t": jde.ids(batch(300, seed + 1))}
        twins.state = twins.coll.prefetch(twins.state, new)
    twins.check()
    left = np.concatenate([c.keys for c in twins.coll.export(twins.state, "t")])
    assert set(left.tolist()) == set(keys.tolist())
    assert twins.coll.stats(twins.state)["t/refused"] > 300


def test_everything_is_pinned_above_a_store():
    """A pinned table evicts no row; rows below stay there, and are not lost."""
    walk, batches = Walk(jde.stores.Memory(PLAIN)), cold_batches(1, 60)
    with walk.prefetcher(batches) as prefetcher:
        walk.run(prefetcher, batches[:40])
        keys = np.array(sorted(rows_of(walk.coll, walk.state)))
        walk.state = walk.coll.pin(walk.state, {"cat": jde.ids(keys)})
        walk.state = prefetcher.drain(walk.state)
        below = rows_in(walk.stores["cat"])
        for _ in batches[40:]:
            ids, walk.state = prefetcher.next(walk.state)
            _, _, walk.state = walk.coll.lookup(walk.state, ids)
        walk.state = prefetcher.drain(walk.state)
    assert rows_of(walk.coll, walk.state).keys() >= set(keys.tolist())
    assert rows_in(walk.stores["cat"]).items() >= below.items()
    assert walk.coll.stats(walk.state)["cat/refused"] > 0


def test_a_disk_that_fails_in_the_middle_of_a_write(tmp_path):
    """The write ends at a bound of the file's size; the last commit has every row."""
    batches = cold_batches(2, 80)
    log = jde.stores.Log(tmp_path / "log", PLAIN)
    walk = Walk(log)
    prefetcher = walk.prefetcher(batches)
    walk.run(prefetcher, batches[:40])
    path = tmp_path / "checkpoints"
    tables = {"tables": walk.coll}
    jde.checkpoint.save(
        path, 40, walk.state, **tables, prefetcher=prefetcher, wait=True
    )
    expected = rows_of(walk.plain, walk.whole)
    largest = max(x.stat().st_size for x in (tmp_path / "log").rglob("*.*"))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest + 100, before[1]))
        with pytest.raises(OSError, match="File too large"):
            walk.run(prefetcher, batches[40:])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    with pytest.raises(OSError, match="File too large"):
        prefetcher.drain(walk.state)
    prefetcher.close()
    log.close()
    with jde.stores.Log(tmp_path / "log", PLAIN) as again:
        back = jde.checkpoint.restore(
            path, walk.coll.init(0), **tables, stores={"cat": again}
        )
        above, below = rows_of(walk.coll, back.tree), rows_in(again)
        assert above | below == expected and not above.keys() & below.keys()
        assert len(below) > 100


def tables_at(path: os.PathLike[str]) -> jde.Tables:
    tier = jde.tiers.ssd(path, host_rows=512)
    return jde.Tables([dataclasses.replace(BELOW, tier=tier)])


def test_a_path_that_is_no_directory(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(NotADirectoryError, match=r"give jde\.tiers\.ssd a directory"):
        jde.tiers.prefetch_rows(tables_at(file), [])
    with pytest.raises(OSError, match=r"give jde\.tiers\.ssd a directory"):
        jde.tiers.open_stores(tables_at("/proc/none"))


def test_two_writers_of_one_path(tmp_path):
    """The second is refused by name, and reads beside the first one's commits."""
    coll, batches = tables_at(tmp_path), [{"cat": x} for x in cold_batches(3, 30)]
    state = coll.init(0)
    with jde.tiers.prefetch_rows(coll, batches) as prefetcher:
        with pytest.raises(RuntimeError, match="has a writer already"):
            jde.tiers.prefetch_rows(coll, batches)
        for _ in range(25):
            ids, state = prefetcher.next(state)
            state = coll.lookup(state, ids)[2]
        prefetcher.commit(state, "one")
        beside = jde.stores.Log(tmp_path / "cat", PLAIN, read_only=True)
        assert rows_in(beside) == rows_in(prefetcher.stores["cat"]) != {}
        with pytest.raises(ValueError, match="this Log is read_only"):
            beside.put(np.array([1]), np.zeros((1, beside.layout.row_bytes), np.uint8))
