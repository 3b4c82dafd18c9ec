# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Subscribers hold what the training program held at the moment of a part."""

import dataclasses
import gc
import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jax_dynemb as jde
from jax_dynemb._src.files.integrity import (
    FolderChannel,
    newest,
    numbers_in,
)
from jax_dynemb._src.files.safetensors import safetensors
from meshes import mesh_of
from publishing.training import IDS, Training, same_rows, step_of, tables


def test_each_segment_is_one_moment(tmp_path):
    coll = tables()
    run = Training(coll)
    with jde.serving.Publisher(coll, tmp_path) as publisher:
        run.step()
        run.publish(publisher)
        served = jde.serving.Subscriber(tmp_path, tables(), interval=0)
        for _ in range(12):
            run.step()
            run.publish(publisher)
            publisher.flush()
            assert served.update() == 1
            version = served.version()
            assert version.step == run.steps and version.number == run.steps
            assert version.dense["w"].tolist() == [run.steps] * 3
            assert version.dense["deep.0"] == run.steps
            same_rows(coll, run.state, served)
        assert served.stats()["snapshots"] == 1
        assert publisher.stats()["skipped"] == 0


def test_rows_that_leave_are_gone_and_rows_that_return_are_back(tmp_path):
    coll = tables()
    run = Training(coll)
    ids = {n: jde.ids(np.arange(100)) for n in "ab"}
    run.state = step_of(coll)(run.state, ids, 1.0)
    with jde.serving.Publisher(coll, tmp_path) as publisher:
        publisher.step(run.state)
        run.state = coll.erase(run.state, {n: jde.ids(np.arange(50)) for n in "ab"})
        again = {n: jde.ids(np.arange(40, 60)) for n in "ab"}
        run.state = step_of(coll)(run.state, again, 2.0)
        publisher.flush(run.state)
    served = jde.serving.Subscriber(tmp_path, tables(), interval=0)
    assert served.version().number == 2
    same_rows(coll, run.state, served)


def test_calls_that_find_the_thread_at_work_lose_nothing(tmp_path):
    coll = tables()
    run = Training(coll)
    with jde.serving.Publisher(coll, tmp_path) as publisher:
        for _ in range(40):  # as fast as they come
            run.step()
            run.publish(publisher)
        publisher.flush(run.state, run.dense, step=run.steps)
        counts = publisher.stats()
    served = jde.serving.Subscriber(tmp_path, tables(), interval=0)
    assert served.version().step == 40
    assert counts["calls"] == 40 and counts["segments"] + counts["skipped"] >= 40
    same_rows(coll, run.state, served)


def test_more_rows_than_the_buffers_have(tmp_path, monkeypatch):
    monkeypatch.setattr("jax_dynemb._src.serving.room._FIRST", 8)
    monkeypatch.setattr("jax_dynemb._src.serving.compaction._LEAST_BEHIND", 8)
    coll = tables()
    run = Training(coll)
    with jde.serving.Publisher(coll, tmp_path) as publisher:
        for _ in range(6):
            run.step()
            run.publish(publisher)
            publisher.flush(run.state, step=run.steps)
            same_rows(
                coll, run.state, jde.serving.Subscriber(tmp_path, tables(), interval=0)
            )


@pytest.mark.parametrize("dtype, rtol", [("bfloat16", 2**-8), ("int8", 1 / 200)])
def test_rows_are_rounded_as_asked(tmp_path, dtype, rtol):
    coll = tables()
    run = Training(coll)
    with jde.serving.Publisher(
        coll, tmp_path, dtype=dtype, snapshot_every=3
    ) as publisher:
        for _ in range(9):
            run.step()
            run.publish(publisher)
            publisher.flush()
    served = jde.serving.Subscriber(tmp_path, tables(), interval=0)
    for name in "ab":
        ids = {name: jde.ids(np.arange(IDS))}
        want = np.asarray(coll.find(run.state, ids)[0][name])
        bound = rtol * np.abs(want).max(axis=1, keepdims=True)
        assert (np.abs(served.find(ids)[name] - want) <= bound + 1e-7).all()


def test_snapshots_of_segments_hold_the_same_rows_and_old_parts_go(tmp_path):
    coll = tables()
    run = Training(coll)
    early = None
    with jde.serving.Publisher(coll, tmp_path, snapshot_every=4, keep=2) as publisher:
        for number in range(1, 20):
            run.step()
            run.publish(publisher)
            publisher.flush()
            if number == 2:
                early = jde.serving.Subscriber(tmp_path, tables(), interval=0)
    assert numbers_in(tmp_path, "snapshot") == [13, 17]
    assert numbers_in(tmp_path, "segment") == [14, 15, 16, 17, 18, 19]
    late = jde.serving.Subscriber(tmp_path, tables(), interval=0)
    assert late.stats()["segments"] == 2
    same_rows(coll, run.state, late)
    early.update()  # its next segments are gone
    assert early.stats()["snapshots"] == 2 and early.version().number == 19
    same_rows(coll, run.state, early)


def bytes_of_arrays():
    gc.collect()
    return sum(array.nbytes for array in jax.live_arrays())


def test_a_second_state_is_made_when_a_segment_comes(tmp_path, monkeypatch):
    coll = tables()
    run = Training(coll)
    whole = sum(array.nbytes for array in jax.tree.leaves(run.state))

    def states_added(call):
        before = bytes_of_arrays()
        result = call()
        return result, (bytes_of_arrays() - before) / whole

    with jde.serving.Publisher(coll, tmp_path, snapshot_every=2, keep=1) as publisher:
        run.publish(publisher)
        served, added = states_added(
            lambda: jde.serving.Subscriber(tmp_path, tables(), interval=0)
        )
        assert added == pytest.approx(1, abs=0.1)
        for number in range(1, 7):
            run.step()
            run.publish(publisher)
            publisher.flush()
            if number == 1:
                _, added = states_added(served.update)
                assert added == pytest.approx(1, abs=0.1)
                same_rows(coll, run.state, served)
    before, free = bytes_of_arrays(), []

    def loads(*arguments, **options):
        free.append((before - bytes_of_arrays()) / whole)
        return safetensors(*arguments, **options)

    monkeypatch.setattr("jax_dynemb._src.serving.subscriber.safetensors", loads)
    served.update()  # its next segments are gone: only what is served stays meanwhile
    assert served.stats()["snapshots"] == 2 and free == [pytest.approx(1, abs=0.1)]
    same_rows(coll, run.state, served)


def test_a_new_process_continues_a_history(tmp_path):
    coll, folder = tables(), tmp_path / "published"
    run = Training(coll)
    served = None
    for _ in range(3):
        with jde.serving.Publisher(coll, folder) as publisher:
            for _ in range(3):
                run.step()
                run.publish(publisher)
                publisher.flush()
                if served is None:
                    served = jde.serving.Subscriber(folder, tables(), interval=0)
        served.update()
        same_rows(coll, run.state, served)
    assert numbers_in(folder, "snapshot") == [1] and served.version().number == 9


def test_an_older_checkpoint_or_another_run_begins_a_history(tmp_path):
    coll, folder = tables(), tmp_path / "published"
    run = Training(coll)
    run.step()
    jde.checkpoint.save(tmp_path / "saved", 1, {"tables": run.state}, tables=coll)
    with jde.serving.Publisher(coll, folder) as publisher:
        for _ in range(3):
            run.publish(publisher)
            publisher.flush()
            run.step()
    served = jde.serving.Subscriber(folder, tables(), interval=0)
    tree = {"tables": coll.init(0)}
    restored = jde.checkpoint.restore(tmp_path / "saved", tree, tables=coll)
    run.state = restored.tree["tables"]
    with jde.serving.Publisher(coll, folder) as publisher:
        for _ in range(2):
            run.step()
            run.publish(publisher)
            publisher.flush()
    served.update()
    assert served.stats()["snapshots"] == 2
    same_rows(coll, run.state, served)
    other = Training(coll, seed=5)
    other.step()
    with jde.serving.Publisher(coll, folder) as publisher:
        other.publish(publisher)
    served.update()
    assert served.stats()["snapshots"] == 3
    same_rows(coll, other.state, served)


def test_a_log_that_does_not_reach_back_leads_to_a_snapshot(tmp_path):
    coll = tables(log_removed=16)
    run = Training(coll, batch=600)
    with jde.serving.Publisher(coll, tmp_path) as publisher:
        for _ in range(6):
            run.step()
            run.publish(publisher)
            publisher.flush()
        publisher.flush(run.state)
    served = jde.serving.Subscriber(tmp_path, tables(), interval=0)
    assert len(numbers_in(tmp_path, "snapshot")) >= 2
    same_rows(coll, run.state, served)


def test_a_folder_has_one_publisher(tmp_path):
    coll = tables()
    run = Training(coll)
    first = jde.serving.Publisher(coll, tmp_path)
    with pytest.raises(RuntimeError, match="has a publisher already"):
        jde.serving.Publisher(coll, tmp_path)
    first.close()
    with jde.serving.Publisher(coll, tmp_path) as second:
        run.publish(second)
        # Where a file system has no locks, a token tells.
        (tmp_path / "publisher.json").write_text(json.dumps({"token": "another"}))
        run.step()
        run.publish(second)
        with pytest.raises(RuntimeError, match="Another publisher has taken"):
            second.flush()
    assert newest(FolderChannel(tmp_path))[1].number == 1


def test_a_thread_follows(tmp_path):
    coll = tables()
    run = Training(coll)
    with jde.serving.Publisher(coll, tmp_path) as publisher:
        run.publish(publisher)
        with jde.serving.Subscriber(tmp_path, tables(), interval=0.01) as served:
            for _ in range(20):
                run.step()
                run.publish(publisher)
                with served.reading() as (version, state):
                    ids = {n: jde.ids(np.arange(IDS)) for n in "ab"}
                    rows = served._coll.find(state, ids)[0]
                    assert version.dense["w"].tolist() == [version.step] * 3
                np.asarray(rows["a"])
            publisher.flush(run.state, step=99)
            for _ in range(1000):
                if served.version().step == 99:
                    break
                served.update()
            same_rows(coll, run.state, served)


def test_what_cannot_be_published_is_refused_with_the_fix(tmp_path):
    with pytest.raises(ValueError, match="log_removed=n"):
        jde.serving.Publisher(tables(log_removed=0), tmp_path)
    with pytest.raises(ValueError, match="dtype must be one of"):
        jde.serving.Publisher(tables(), tmp_path, dtype="int4")
    with pytest.raises(ValueError, match="every=0 must be"):
        jde.serving.Publisher(tables(), tmp_path, every=0)
    publisher = jde.serving.Publisher(tables(), tmp_path)
    with publisher, pytest.raises(ValueError, match="step=-1 must be"):
        publisher.step(tables().init(0), step=-1)
    with pytest.raises(TypeError, match="module.coll"):
        jde.serving.Publisher({}, tmp_path)
    with pytest.raises(FileNotFoundError, match="has no snapshot"):
        jde.serving.Subscriber(tmp_path / "none", tables(), wait=0.0)


def test_a_smaller_replica_is_refused_and_serves_on(tmp_path):
    coll = tables()
    run = Training(coll)
    with jde.serving.Publisher(coll, tmp_path) as publisher:
        run.publish(publisher)
        small = jde.Tables(
            [
                jde.TableConfig("a", 8, 128, optimizer=jde.optim.none()),
                jde.TableConfig("b", 16, 512, optimizer=jde.optim.none()),
            ]
        )
        served = jde.serving.Subscriber(tmp_path, small, interval=0)
        for _ in range(4):
            run.step()
        run.publish(publisher)
        publisher.flush()
        for _ in range(2):
            with pytest.raises(ValueError, match="the padding_id of the publisher.s"):
                served.update()
            assert served.version().number == 1


@pytest.mark.parametrize("dtype, rtol", [("float32", 0.0), ("int8", 1 / 127)])
@pytest.mark.parametrize(
    "sharding, devices",
    [("row_wise", 4), ("replicated", 4), ("table_wise", 4), ("column_wise", 2)],
)
def test_a_mesh_publishes_for_one_device(tmp_path, sharding, devices, dtype, rtol):
    coll = tables(mesh=mesh_of(devices), sharding=sharding)
    run = Training(coll)
    served = None
    with jde.serving.Publisher(
        coll, tmp_path, snapshot_every=3, dtype=dtype
    ) as publisher:
        for _ in range(5):
            run.step()
            run.publish(publisher)
            publisher.flush()
            served = served or jde.serving.Subscriber(tmp_path, tables(), interval=0)
            served.update()
            assert served.version().step == run.steps
            same_rows(coll, run.state, served, rtol=rtol)
    late = jde.serving.Subscriber(tmp_path, tables(), interval=0)
    same_rows(coll, run.state, late, rtol=rtol)


def test_rows_in_host_memory_are_published(tmp_path):
    tier = jde.tiers.host(hbm_rows=256)
    config = jde.TableConfig("a", 8, 2048, tier=tier, log_removed=4096)
    coll = jde.Tables([config])
    state = coll.init(0)
    draw = np.random.default_rng(0)
    plain = jde.Tables([dataclasses.replace(config, tier=None)])
    with jde.serving.Publisher(coll, tmp_path) as publisher:
        for value in range(6):
            ids = {"a": jde.ids(draw.integers(0, IDS, 150))}
            state = step_of(coll)(state, ids, float(value))
            publisher.step(state)
            publisher.flush()
    served = jde.serving.Subscriber(tmp_path, plain, interval=0)
    ids = {"a": jde.ids(np.arange(IDS))}
    want = coll.find(state, ids)[0]["a"]
    np.testing.assert_array_equal(served.find(ids)["a"], want)


def test_tables_that_grow_are_published_on(tmp_path):
    coll = tables()
    run = Training(coll)
    with jde.serving.Publisher(coll, tmp_path) as publisher:
        run.step()
        run.publish(publisher)
        run.coll, run.state = coll.grow(run.state, {"a": 2048})
        with pytest.raises(ValueError, match=r"publisher.use\(coll\)"):
            run.publish(publisher)
        publisher.use(run.coll)
        for _ in range(3):
            run.step()
            publisher.flush(run.state, step=run.steps)
    larger = dataclasses.replace(tables().tables["a"], capacity=2048)
    replica = jde.Tables([larger, tables().tables["b"]])
    served = jde.serving.Subscriber(tmp_path, replica, interval=0)
    assert served.version().step == 4
    same_rows(run.coll, run.state, served)


def test_inside_jit_it_says_where_it_belongs(tmp_path):
    coll = tables()
    publisher = jde.serving.Publisher(coll, tmp_path)
    with publisher, pytest.raises(TypeError, match="cannot stand inside jax.jit"):
        jax.jit(lambda state: publisher.step(state))(coll.init(0))


def test_tensor_trains_send_their_cores(tmp_path):
    train = jde.TTConfig("t", 900, 6, [4, 5], optimizer=optax.sgd(0.1))
    hashed = jde.TableConfig("a", 8, 1024, log_removed=4096)
    coll = jde.Tables([train, hashed])
    state, ids = coll.init(0), {n: jde.ids(np.arange(60)[:, None]) for n in "t"}
    ids["a"] = jde.ids(np.arange(60))
    with jde.serving.Publisher(coll, tmp_path, snapshot_every=2) as publisher:
        for value in range(4):
            state = step_of(coll)(state, ids, float(value))
            publisher.step(state, {"w": jnp.ones(2)})
            publisher.flush()
    served = jde.serving.Subscriber(tmp_path, jde.Tables([train, hashed]), interval=0)
    assert list(served.version().dense) == ["w"]
    want, got = coll.find(state, ids)[0], served.find(ids)
    for name in "ta":
        np.testing.assert_array_equal(got[name], want[name])
    with pytest.raises(ValueError, match="all tables are tensor trains"):
        jde.serving.Publisher(jde.Tables([train]), tmp_path / "other")


def test_an_update_ends_although_segments_go_on_coming(tmp_path, monkeypatch):
    """Each applied segment is followed by a newer one, for ever."""
    coll = tables()
    run = Training(coll)
    with jde.serving.Publisher(coll, tmp_path, snapshot_every=100) as publisher:

        def publish():
            run.step()
            run.publish(publisher)
            publisher.flush()

        publish()
        take = jde.serving.Subscriber._take_segments

        def slow(self, segments):
            take(self, segments)
            publish()

        publish()
        publish()
        monkeypatch.setattr(jde.serving.Subscriber, "_take_segments", slow)
        served = jde.serving.Subscriber(tmp_path, tables(), interval=0)
        assert served.version().number == 3  # two more are there now
        assert served.update() == 2 and served.version().number == 5
    monkeypatch.undo()
    assert served.update() == 2 and served.update() == 0
    same_rows(coll, run.state, served)
