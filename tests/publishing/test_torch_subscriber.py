# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""PyTorch follows a training in JAX: the same rows, at every part."""

import sys
import threading
from pathlib import Path

import numpy as np
import optax
import pytest

import jax_dynemb as jde
from jax_dynemb._src.files.integrity import segment_path
from processes import run_job
from publishing.publish_in_processes import IDS as COUNTED_IDS
from publishing.publish_in_processes import SHARDINGS, counts_at
from publishing.training import IDS, Training, tables

torch = pytest.importorskip("torch")
TORCH = Path(__file__).resolve().parents[2] / "jax_dynemb_torch/src"


@pytest.mark.parametrize("dtype, rtol", [("float32", 0.0), ("int8", 1 / 200)])
def test_pytorch_reads_the_rows_of_each_part(tmp_path, monkeypatch, dtype, rtol):
    monkeypatch.setattr(sys, "path", [str(TORCH), *sys.path])
    import jax_dynemb_torch  # noqa: PLC0415 (it lies in this repository)

    coll = tables()
    run = Training(coll)
    served = None
    with jde.serving.Publisher(
        coll, tmp_path, dtype=dtype, snapshot_every=4
    ) as publisher:
        for _ in range(10):
            run.step()
            run.publish(publisher)
            publisher.flush()
            if served is None:
                served = jax_dynemb_torch.Subscriber(tmp_path, interval=0)
            served.update()
            version = served.version()
            assert version.step == run.steps
            assert version.dense["w"].tolist() == [run.steps] * 3
            found = served({name: torch.arange(IDS) for name in "ab"})
            for name in "ab":
                ids = {name: jde.ids(np.arange(IDS))}
                want = np.asarray(coll.find(run.state, ids)[0][name])
                stored = np.asarray(coll.find(run.state, ids)[1][name])
                bound = rtol * np.abs(want).max(axis=1, keepdims=True)
                near = np.abs(found[name].numpy() - want) <= bound
                assert near[stored].all()
                assert (found[name].numpy()[~stored] == 0).all()


def test_a_part_that_goes_before_its_dense_arrays_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(TORCH), *sys.path])
    import jax_dynemb_torch  # noqa: PLC0415 (it lies in this repository)

    coll = tables()
    run = Training(coll)
    with jde.serving.Publisher(coll, tmp_path) as publisher:
        run.publish(publisher)
        served = jax_dynemb_torch.Subscriber(tmp_path, interval=0)
        run.step()
        run.publish(publisher)
        publisher.flush()
    module, away = jax_dynemb_torch._subscriber, tmp_path / "removed-x"
    dense_path = module.dense_path

    def removed(part):
        part.path.rename(away)
        return dense_path(part)

    with monkeypatch.context() as patch:
        patch.setattr(module, "dense_path", removed)
        assert served.update() == 0
    assert served.version().dense["w"].tolist() == [0] * 3
    away.rename(segment_path(tmp_path, 2))
    assert served.update() == 1 and served.version().dense["w"].tolist() == [1] * 3
    ids = {name: jde.ids(np.arange(IDS)) for name in "ab"}
    want, stored, _ = coll.find(run.state, ids)
    found = served({name: torch.arange(IDS) for name in "ab"})
    for name in "ab":
        rows = np.where(np.asarray(stored[name])[:, None], want[name], 0)
        np.testing.assert_array_equal(found[name].numpy(), rows)


def test_pytorch_reads_the_cores_of_a_tensor_train(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(TORCH), *sys.path])
    import jax_dynemb_torch  # noqa: PLC0415 (it lies in this repository)

    train = jde.TTConfig("t", 900, 6, [4, 5], optimizer=optax.sgd(0.1))
    coll = jde.Tables([train, jde.TableConfig("a", 8, 1024, log_removed=64)])
    state = coll.init(0)
    with jde.serving.Publisher(coll, tmp_path) as publisher:
        publisher.step(state)
    bag = jax_dynemb_torch.Subscriber(tmp_path, interval=0).version().tensor_trains["t"]
    ids = np.arange(900)[:, None]
    want = np.asarray(coll.find(state, {"t": jde.ids(ids)})[0]["t"])[:, 0]
    found = bag(torch.from_numpy(ids)).detach()
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)


def faults_of(version):
    """The tables that do not hold what the step of a version says."""
    ids = {name: torch.arange(COUNTED_IDS) for name in SHARDINGS}
    want = np.repeat(counts_at(version.step)[:, None], 4, 1)  # 0: it is not there
    found = version.collection(ids)
    assert version.dense["w"].tolist() == [version.step] * 2
    return [n for n in SHARDINGS if not np.array_equal(found[n].numpy(), want)]


@pytest.mark.slow
def test_pytorch_sees_one_moment_of_two_processes(tmp_path, monkeypatch):
    """Shards of two processes, each with its own gaps; snapshots of several numbers."""
    monkeypatch.setattr(sys, "path", [str(TORCH), *sys.path])
    import jax_dynemb_torch  # noqa: PLC0415 (it lies in this repository)

    script = Path(__file__).with_name("publish_in_processes.py")
    folders, steps = [tmp_path / f"process-{n}" for n in range(2)], []
    job = threading.Thread(target=run_job, args=(script, 2, tmp_path, 2, 40, 25))
    job.start()
    served = jax_dynemb_torch.Subscriber(folders, interval=0, wait=240)
    alive = True
    while alive:
        alive = job.is_alive()  # before the last look
        served.update()
        if not steps or steps[-1] != served.version().step:
            steps.append(served.version().step)
            assert faults_of(served.version()) == []
    job.join()
    assert steps == sorted(steps) and len(steps) > 5 and steps[-1] == 40
    late = jax_dynemb_torch.Subscriber(folders, interval=0)
    assert late.version().step == 40 and faults_of(late.version()) == []
