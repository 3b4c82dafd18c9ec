# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Checks what a log keeps on disk: files shared, rewritten, refused and reclaimed."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import jax_dynemb as jde
from jax_dynemb._src.stores import manifest
from stores.conftest import random_rows, table_config


def small_log(path, **options) -> jde.stores.Log:
    return jde.stores.Log(
        path, table_config(), **({"segment_megabytes": 1 / 64} | options)
    )


def segments(path) -> dict[str, int]:
    """Segment files and the times of their last change."""
    return {p.name: p.stat().st_mtime_ns for p in (path / "segments").iterdir()}


def test_commits_share_segments(tmp_path):
    log, rng = small_log(tmp_path), np.random.default_rng(0)
    log.put(np.arange(2000), random_rows(rng, 2000, log))
    log.commit("one")
    first = segments(tmp_path)
    assert len(first) > 5
    log.put(np.arange(2000, 2010), random_rows(rng, 10, log))
    log.commit("two")
    second = segments(tmp_path)
    assert first.items() <= second.items() and len(second) == len(first) + 1


def test_dead_rows_are_reclaimed(tmp_path):
    log, rng = small_log(tmp_path, keep=1), np.random.default_rng(1)
    truth = {}
    for step in range(40):  # 500 keys, put again and again
        keys = rng.permutation(500)[:300]
        rows = random_rows(rng, 300, log)
        log.put(keys, rows)
        truth.update(zip(keys.tolist(), rows, strict=True))
        log.commit(f"s{step}")
    stats = log.stats()
    assert stats["moved"] > 0
    assert stats["live_bytes"] == len(truth) * (log.layout.row_bytes + 12)
    assert stats["disk_bytes"] < 4 * stats["live_bytes"] + 10 * 2**14
    assert stats["disk_bytes"] == sum(
        p.stat().st_size for p in (tmp_path / "segments").iterdir()
    )
    keys = np.array(sorted(truth))
    np.testing.assert_array_equal(log.get(keys)[1], np.stack([truth[k] for k in keys]))
    log.discard(keys)
    log.commit("none")
    assert not segments(tmp_path)


def test_a_full_log_refuses_and_counts(tmp_path):
    log = small_log(tmp_path, disk_gigabytes=200e-6, keep=1)
    rng = np.random.default_rng(2)
    rows = random_rows(rng, 5000, log)
    stored = log.put(np.arange(5000), rows)
    kept = int(stored.sum())
    assert 0 < kept < 5000 and stored[:kept].all()
    assert log.stats()["refused"] == 5000 - kept
    np.testing.assert_array_equal(log.get(np.arange(5000))[0], stored)
    assert not log.put([1], rows[:1]).any()  # the key keeps the row that it has
    np.testing.assert_array_equal(log.get([1])[1], rows[1:2])
    log.commit("full")
    assert sum(p.stat().st_size for p in (tmp_path / "segments").iterdir()) <= 200_000
    log.discard(np.arange(kept - 100))
    log.commit("less")  # moves the other rows, and keeps the files of neither
    log.commit("lesser")
    assert log.put(np.arange(1000), rows[:1000]).all()
    np.testing.assert_array_equal(log.get(np.arange(1000))[1], rows[:1000])
    tail = np.arange(kept - 100, kept)
    np.testing.assert_array_equal(log.get(tail)[1][-50:], rows[tail][-50:])


def test_of_a_key_that_comes_twice_the_last_row_counts_in_a_full_log(tmp_path):
    log, rng = small_log(tmp_path, disk_gigabytes=100e-6), np.random.default_rng(3)
    keys = np.repeat(np.arange(3000), 2)
    rows = random_rows(rng, 6000, log)
    stored = log.put(keys, rows)
    np.testing.assert_array_equal(stored[::2], stored[1::2])
    found, packed = log.get(np.arange(3000))
    np.testing.assert_array_equal(found, stored[::2])
    assert 0 < found.sum() < 3000
    np.testing.assert_array_equal(packed[found], rows[1::2][found])


def test_one_writer(tmp_path):
    log = small_log(tmp_path)
    with pytest.raises(RuntimeError, match="has a writer already"):
        small_log(tmp_path)
    code = f"import jax_dynemb as j; j.stores.Log({str(tmp_path)!r})"
    paths = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert "RuntimeError" in done.stderr and "has a writer already" in done.stderr
    log.close()
    with pytest.raises(ValueError, match="this Log is closed"):
        log.get([1])
    small_log(tmp_path).close()


def test_a_reader_sees_commits_only(tmp_path):
    with pytest.raises(FileNotFoundError, match="no commit; there are: none yet"):
        jde.stores.Log(tmp_path / "none", read_only=True)
    assert not (tmp_path / "none").exists()
    log, rng = small_log(tmp_path, keep=1), np.random.default_rng(4)
    rows = random_rows(rng, 300, log)
    log.put(np.arange(100), rows[:100])
    log.commit("one")
    reader = jde.stores.Log(tmp_path, read_only=True)
    assert reader.layout.row_bytes == log.layout.row_bytes
    log.put(np.arange(100), rows[100:200])
    np.testing.assert_array_equal(reader.get(np.arange(100))[1], rows[:100])
    assert not reader.refresh()
    log.commit("two")
    # The files of "one" are gone by now, but for those that the reader has open.
    np.testing.assert_array_equal(reader.get(np.arange(100))[1], rows[:100])
    assert reader.refresh() and not reader.refresh()
    np.testing.assert_array_equal(reader.get(np.arange(100))[1], rows[100:200])
    for call in (lambda: reader.commit("x"), lambda: reader.discard([1])):
        with pytest.raises(ValueError, match="read_only"):
            call()


def test_going_back_leaves_later_commits_until_the_next(tmp_path):
    log, rng = small_log(tmp_path, keep=2), np.random.default_rng(5)
    for name in "ab":
        log.put([1, 2], random_rows(rng, 2, log))
        log.commit(name)
    log.open("a")
    assert log.tags() == ["a", "b"]
    row = random_rows(rng, 1, log)
    log.put([1], row)
    log.commit("c")
    assert log.tags() == ["a", "c"]  # what "c" came from, and not "b"
    log.close()
    with small_log(tmp_path) as again:
        assert again.stats()["tag"] == "c"
        np.testing.assert_array_equal(again.get([1])[1], row)
        again.open("a")
        assert again.get([1])[0].all()


def test_readers_beside_a_writer(tmp_path):
    """Rows of a key say which put they are of: readers see whole ones, never older."""
    log = small_log(tmp_path, keep=1, threads=2)
    keys = np.arange(500)
    width = log.layout.row_bytes

    def rows_of(step: int) -> np.ndarray:
        return np.full((len(keys), width), step, np.uint8)

    log.put(keys, rows_of(0))
    stop, errors, reads = threading.Event(), [], []

    def read() -> None:
        last, rng = 0, np.random.default_rng()
        try:
            while not stop.is_set():
                found, packed = log.get(rng.choice(keys, 400))
                assert found.all() and (packed == packed[:, :1]).all()
                assert packed.min() >= last
                last = int(packed.min())
                reads.append(1)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for step in range(1, 60):
        log.put(keys, rows_of(step))
        if step % 5 == 0:
            log.commit(f"s{step}")
    stop.set()
    for thread in threads:
        thread.join()
    assert not errors, errors
    assert reads


@pytest.mark.slow
def test_readers_that_open_beside_a_writer(tmp_path):
    """Commits come and go while they are opened; each reader sees a whole one."""
    log = small_log(tmp_path, keep=1)
    keys, stop, errors, opened = np.arange(200), threading.Event(), [], []

    def write(step: int) -> None:
        log.put(keys, np.full((len(keys), log.layout.row_bytes), step, np.uint8))
        log.commit(f"s{step}" if step % 2 else "same")

    def read() -> None:
        try:
            while not stop.is_set():
                with jde.stores.Log(tmp_path, read_only=True) as reader:
                    found, packed = reader.get(keys)
                    assert found.all() and (packed == packed[0, 0]).all()
                    reader.refresh()
                    opened.append(int(packed[0, 0]))
        except BaseException as error:
            errors.append(error)

    write(0)
    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for step in range(1, 100):
        write(step)
    stop.set()
    for thread in threads:
        thread.join()
    assert not errors, errors
    assert len(set(opened)) > 2


@pytest.mark.parametrize("again", [True, False], ids=["replaced", "removed"])
def test_a_commit_goes_while_it_is_read(tmp_path, monkeypatch, again):
    """Removed and made again between two looks, it is as good as before."""
    with small_log(tmp_path, keep=4) as log:
        keys = np.arange(20)
        for tag in ("first", "same"):
            log.put(keys, np.full((20, log.layout.row_bytes), len(tag), np.uint8))
            log.commit(tag)
    read, gone = manifest.read_json, []

    def interrupted(path):
        if path.stem != "same" or gone:
            return read(path)
        gone.append(path.read_bytes())
        path.unlink()
        try:
            return read(path)
        finally:
            if again:
                path.write_bytes(gone[0])

    monkeypatch.setattr(manifest, "read_json", interrupted)
    kept, bad = manifest.manifests(tmp_path)
    assert gone and not bad
    assert [each.tag for each in kept] == ["first", "same"][: 2 if again else 1]


def test_a_huge_batch(tmp_path):
    config = table_config(dim=1, optimizer=jde.optim.sgd(0.1))
    with jde.stores.Log(tmp_path, config) as log:
        rng = np.random.default_rng(6)
        keys = rng.permutation(1_000_000) * 2_654_435_761
        rows = np.zeros((len(keys), log.layout.row_bytes), np.uint8)
        rows[:, :8] = keys[:, None].view(np.uint8)
        log.put(keys, rows)
        log.commit("one")
        log.open()
        found, packed = log.get(rng.permutation(keys))
        assert found.all() and len(log.keys()) == len(keys)
        np.testing.assert_array_equal(
            np.sort(packed[:, :8].copy().view(np.int64)[:, 0]), np.sort(keys)
        )
        assert not log.get(keys + 1)[0].any()
        assert log.stats()["index_bytes"] <= 25 * len(keys)


def test_arguments_are_checked(tmp_path):
    for options, named in [
        ({"keep": 0}, "keep must be at least 1"),
        ({"threads": 0}, "threads must be between"),
        ({"segment_megabytes": 0}, "segment_megabytes must be"),
        ({"disk_gigabytes": 0}, "disk_gigabytes must be at least"),
    ]:
        with pytest.raises(ValueError, match=named):
            small_log(tmp_path, **options)
    with pytest.raises(ValueError, match="no commit yet, so its rows are not known"):
        jde.stores.Log(tmp_path)
