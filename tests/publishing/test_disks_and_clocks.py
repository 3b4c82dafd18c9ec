# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Disks that are full, and clocks that go back: nothing is lost, none is torn."""

import contextlib
import resource
import time

import pytest

import jax_dynemb as jde
from publishing.training import Training, same_rows, tables


@contextlib.contextmanager
def full_disk(room):
    """Lets no file grow beyond some bytes: a write ends in the middle, with OSError."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("room", [0, 1000, 5000])  # segments have files of 7 to 15 KB
def test_a_publisher_on_a_full_disk_raises_and_goes_on(tmp_path, room):
    coll = tables()
    run = Training(coll)
    with jde.serving.Publisher(coll, tmp_path) as publisher:
        run.publish(publisher)
        served = jde.serving.Subscriber(tmp_path, tables(), interval=0)
        for _ in range(3):
            run.step()
            with full_disk(room), pytest.raises(OSError):
                run.publish(publisher)
                publisher.flush()
            assert served.update() == 0 and served.version().step == 0
        run.step()
        run.publish(publisher)
        publisher.flush()
        assert served.update() == 1 and served.version().step == run.steps
        same_rows(coll, run.state, served)  # with the rows of all four steps
    assert not list(tmp_path.glob("*draft*")) and not list(tmp_path.glob(".*"))


def test_a_snapshot_on_a_full_disk_is_written_later(tmp_path):
    coll = tables()
    run = Training(coll)
    with jde.serving.Publisher(coll, tmp_path) as publisher:
        with full_disk(2000), pytest.raises(OSError):
            run.publish(publisher)
        with pytest.raises(FileNotFoundError, match="has no snapshot"):
            jde.serving.Subscriber(tmp_path, tables(), interval=0, wait=0.0)
        run.step()
        run.publish(publisher)
        same_rows(coll, run.state, jde.serving.Subscriber(tmp_path, tables()))


def test_a_subscriber_on_a_full_disk_serves_on(tmp_path):
    """Copies of parts that come over a network lie on its disk."""
    coll = tables()
    run = Training(coll)
    listener = jde.serving.Listener(tmp_path / "published", "127.0.0.1:0")
    with jde.serving.Publisher(coll, listener) as publisher:
        run.publish(publisher)
        publisher.flush()
        source = jde.serving.Socket(f"127.0.0.1:{listener.port}")
        with jde.serving.Subscriber(source, tables(), interval=0) as served:
            before = run.state
            run.step()
            run.publish(publisher)
            publisher.flush()
            with full_disk(1000), pytest.raises(OSError):
                served.update()
            assert served.version().step == 0
            same_rows(coll, before, served)
            assert served.update() == 1
            same_rows(coll, run.state, served)


@pytest.mark.parametrize("back", [10.0, 1e8])
def test_clocks_that_go_back_change_no_order(tmp_path, monkeypatch, back):
    """That of the host of both; a publisher begins again, readers too."""
    coll, real, passed = tables(), time.time, 0.0
    run = Training(coll)
    monkeypatch.setattr(time, "time", lambda: real() - passed)
    served, times = None, []
    for _ in range(2):
        with jde.serving.Publisher(coll, tmp_path, snapshot_every=3) as publisher:
            for _ in range(5):
                run.step()
                run.publish(publisher)
                publisher.flush()
                if served is None:
                    served = jde.serving.Subscriber(tmp_path, tables(), interval=0)
                served.update()
                assert served.version().step == run.steps
                same_rows(coll, run.state, served)
                assert 0.0 <= served.version().age() < 60.0
                times.append(served.version().time)
                passed += back  # set back
                assert served.version().age() == 0.0
                late = jde.serving.Subscriber(tmp_path, tables(), interval=0)
                assert late.version().step == run.steps
    assert times == sorted(times, reverse=True)
    assert served is not None and served.stats()["snapshots"] == 1
