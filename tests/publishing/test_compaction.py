# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Snapshots are made of earlier parts while segments go on."""

import sys
import threading

import numpy as np
import pytest
from safetensors.numpy import load_file

import jax_dynemb as jde
from jax_dynemb._src.files.integrity import numbers_in
from jax_dynemb._src.serving import publisher as publishing_publisher
from publishing.test_torch_subscriber import TORCH
from publishing.training import IDS, Training, same_rows, tables


@pytest.fixture
def held(monkeypatch):
    """Makes compaction wait until the event that it returns is set."""
    goes_on, compact = threading.Event(), publishing_publisher.compact

    def waiting(*arguments):
        goes_on.wait(60)
        return compact(*arguments)

    monkeypatch.setattr(publishing_publisher, "compact", waiting)
    yield goes_on
    goes_on.set()


def publish(run, publisher):
    """Publishes a moment, and waits for its segment but for no compaction."""
    run.step()
    run.publish(publisher)
    publisher._idle.wait()


def test_segments_go_on_and_the_snapshot_joins_them(tmp_path, held):
    coll = tables()
    run = Training(coll)
    with jde.serving.Publisher(coll, tmp_path, snapshot_every=3) as publisher:
        for _ in range(8):
            publish(run, publisher)
        assert publisher.stats()["segments"] == 7
        assert numbers_in(tmp_path, "snapshot") == [1]
        held.set()
        publisher.flush()
        assert numbers_in(tmp_path, "snapshot") == [1, 4]
        served = jde.serving.Subscriber(tmp_path, tables(), interval=0)
        assert served.version().step == 8
        same_rows(coll, run.state, served)
        publish(run, publisher)  # 9 - 4 >= 3
        publisher.flush()
        assert numbers_in(tmp_path, "snapshot") == [4, 9]


def stored_rows(folder, part, name):
    """Reads which codes and scale files hold of each key, by safetensors itself."""
    found = {}
    for file in sorted(folder.glob(f"{part}/**/{name}*.safetensors")):
        tensors = load_file(file)
        assert tensors["rows"].dtype == np.int8
        columns = zip(tensors["rows"], tensors["scales"], strict=True)
        rows = [(codes.tobytes(), scale.tobytes()) for codes, scale in columns]
        for key in tensors.get("removed", np.empty(0)).tolist():
            found[key] = None
        found |= dict(zip(tensors["keys"].tolist(), rows, strict=True))
    return found


def test_a_snapshot_has_the_codes_of_the_segments(tmp_path, held):
    coll = tables()
    run = Training(coll)
    with jde.serving.Publisher(
        coll, tmp_path, dtype="int8", snapshot_every=3
    ) as publisher:
        for _ in range(4):
            publish(run, publisher)
        names = list(coll.engine.catalog.dynamic)
        parts = "snapshot-*", "segment-*[2]", "segment-*[3]", "segment-*[4]"
        expected = {}
        for name in names:
            expected[name] = {}
            for part in parts:
                expected[name] |= stored_rows(tmp_path, part, name)
        held.set()
        publisher.flush()
    snapshot = max(tmp_path.glob("snapshot-*")).name
    for name in names:
        kept = {key: row for key, row in expected[name].items() if row is not None}
        assert stored_rows(tmp_path, snapshot, name) == kept and kept


def test_a_publisher_that_comes_back_goes_on_behind_a_late_snapshot(tmp_path, held):
    coll = tables()
    run = Training(coll)
    with jde.serving.Publisher(coll, tmp_path, snapshot_every=3) as publisher:
        for _ in range(6):
            publish(run, publisher)
        held.set()  # close waits for it
    assert numbers_in(tmp_path, "snapshot") == [1, 4]
    with jde.serving.Publisher(coll, tmp_path) as publisher:
        publish(run, publisher)
        assert publisher.stats() | {"segments": 1, "number": 7} == publisher.stats()
    served = jde.serving.Subscriber(tmp_path, tables(), interval=0)
    same_rows(coll, run.state, served)


def test_an_error_of_a_compaction_is_raised_and_segments_stay(tmp_path, monkeypatch):
    def failing(*_):
        raise OSError(28, "No space left on device")

    coll = tables()
    run = Training(coll)
    with jde.serving.Publisher(coll, tmp_path, snapshot_every=2) as publisher:
        publish(run, publisher)
        publish(run, publisher)
        with monkeypatch.context() as patched:
            patched.setattr(publishing_publisher, "compact", failing)
            publish(run, publisher)
            with pytest.raises(OSError, match="No space left"):
                publisher.flush()
        publish(run, publisher)
        publisher.flush()
        assert numbers_in(tmp_path, "snapshot") == [1, 4]
    served = jde.serving.Subscriber(tmp_path, tables(), interval=0)
    same_rows(coll, run.state, served)


def test_a_late_snapshot_brings_no_reader_back(tmp_path, held, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(sys, "path", [str(TORCH), *sys.path])
    import jax_dynemb_torch  # noqa: PLC0415 (it lies in this repository)
    from jax_dynemb_torch import _subscriber  # noqa: PLC0415

    steps = []
    serve = jax_dynemb_torch.Subscriber._serve

    def noted(self, part, *rest):
        steps.append(part.step)
        serve(self, part, *rest)

    monkeypatch.setattr(_subscriber, "_MOST_OVERLAY", 0.0)
    monkeypatch.setattr(jax_dynemb_torch.Subscriber, "_serve", noted)
    coll = tables()
    run = Training(coll)
    with jde.serving.Publisher(coll, tmp_path, snapshot_every=3) as publisher:
        publish(run, publisher)
        served = jax_dynemb_torch.Subscriber(tmp_path, interval=0)
        for _ in range(5):
            publish(run, publisher)
            served.update()
        held.set()
        publisher.flush()
        publish(run, publisher)
        served.update()
        assert served.stats()["snapshots"] >= 2
        assert served.version().step == 7
    assert steps == sorted(steps)
    found = served({name: torch.arange(IDS) for name in "ab"})
    want, stored, _ = coll.find(run.state, {"a": jde.ids(np.arange(IDS))})
    kept = np.asarray(stored["a"])
    np.testing.assert_array_equal(found["a"].numpy()[kept], np.asarray(want["a"])[kept])
