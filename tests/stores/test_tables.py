# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of tables that go into stores and come back, bit for bit."""

import os

import jax
import numpy as np
import pytest

import jax_dynemb as jde
from meshes import mesh_of
from stores.conftest import table_config
from support import advised_capacity

NIGHTLY_ROWS = int(os.environ.get("DYNEMB_DEPARTURES", "0"))


def rows_of(coll, state, table="cat") -> dict[int, bytes]:
    """Score, columns and states of every row by key."""
    layout, rows = jde.stores.Layout.of(coll.tables[table]), {}
    for chunk in coll.export(state, table):
        packed = layout.pack(chunk)
        rows |= {int(k): p.tobytes() for k, p in zip(chunk.keys, packed, strict=True)}
    return rows


def trained(coll, ids, state=None):
    """Looks ids up and trains them once."""
    state = coll.init(0) if state is None else state
    rows, residual, state = coll.lookup(state, {"cat": jde.ids(ids)})
    grads = {"cat": rows["cat"] * 0.5 + np.float32(1)}
    return coll.apply_gradients(state, residual, grads)


@pytest.mark.parametrize("param_dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("strategy", ["step", "lfu", "no_eviction"])
def test_there_and_back_on_any_mesh(tmp_path, strategy, param_dtype):
    config = table_config(score_strategy=strategy, param_dtype=param_dtype)
    coll = jde.Tables([config])
    state = trained(coll, np.arange(500) * 17)
    state = trained(coll, np.arange(100) * 17, state)
    log = jde.stores.Log(tmp_path, config)
    assert jde.export.to_store(coll, state, {"cat": log}, step=2) == {"cat": 500}
    log.commit("two")
    expected = rows_of(coll, state)
    for devices in (None, 4):
        mesh = {} if devices is None else {"mesh": mesh_of(devices), "axis": "data"}
        other = jde.Tables(
            [
                table_config(
                    score_strategy=strategy, param_dtype=param_dtype, capacity=4000
                )
            ],
            **mesh,
        )
        result = jde.import_.from_store(other, {"cat": log})
        assert result.notes == ()
        found = rows_of(other, result.state)
        if strategy == "no_eviction":  # scores are numbers of rows there
            found, wanted = (
                {k: v[8:] for k, v in r.items()} for r in (found, expected)
            )
        else:
            wanted = expected
        assert found == wanted
        if strategy == "step":
            assert (
                other.get_score(result.state)["cat"] > coll.get_score(state)["cat"] - 1
            )


@pytest.mark.parametrize(
    "optimizer",
    [
        jde.optim.adam(0.1, bias_correction="row"),
        jde.optim.rowwise_adagrad(0.1),
        jde.optim.none(),
    ],
    ids=lambda optimizer: optimizer.kind,
)
def test_states_of_any_kind_come_back(tmp_path, optimizer):
    coll = jde.Tables([table_config(optimizer=optimizer)])
    state = trained(coll, np.arange(100))
    state = trained(coll, np.arange(50), state)
    with jde.stores.Log(tmp_path, coll.tables["cat"]) as log:
        jde.export.to_store(coll, state, {"cat": log})
        log.commit("one")
    log = jde.stores.Log(tmp_path)  # knows the states from the files
    back = jde.import_.from_store(coll, {"cat": log}).state
    assert rows_of(coll, back) == rows_of(coll, state)


def test_only_what_changed_is_written(tmp_path):
    coll = jde.Tables([table_config()])
    log = jde.stores.Log(tmp_path, coll.tables["cat"])
    state = trained(coll, np.arange(300))
    marks = coll.get_score(state)
    jde.export.to_store(coll, state, {"cat": log})
    state = trained(coll, np.arange(250, 320), state)
    state = coll.erase(state, {"cat": jde.ids(np.arange(10))})
    written = jde.export.to_store(coll, state, {"cat": log}, since=marks, mirror=True)
    assert written == {"cat": 70}
    stored = log.get(keys := np.array(sorted(rows_of(coll, state))))
    assert stored[0].all() and sorted(log.keys()) == keys.tolist()
    assert [r.tobytes() for r in stored[1]] == [rows_of(coll, state)[k] for k in keys]


def test_what_found_no_room_is_said(tmp_path):
    coll = jde.Tables([table_config()])
    state = trained(coll, np.arange(600))
    log = jde.stores.Log(tmp_path, coll.tables["cat"], disk_gigabytes=1e-4)
    with pytest.raises(RuntimeError, match="the table still has every row"):
        for ids in range(3):
            state = trained(coll, np.arange(600) + 600 * ids, state)
            jde.export.to_store(coll, state, {"cat": log})
    store = jde.stores.Memory(coll.tables["cat"])
    small = jde.Tables([table_config(capacity=128)])
    jde.export.to_store(coll, state, {"cat": store})
    with pytest.raises(ValueError, match="rows would find no place") as raised:
        jde.import_.from_store(small, {"cat": store})
    with pytest.warns(UserWarning, match="found no place in their bucket"):
        result = jde.import_.from_store(small, {"cat": store}, allow_drop=True)
    assert "found no place in their bucket" in result.notes[0]
    large = jde.Tables([table_config(capacity=advised_capacity(raised.value))])
    assert jde.import_.from_store(large, {"cat": store}).notes == ()


def test_mistakes_are_named():
    coll = jde.Tables([table_config()])
    state = coll.init(0)
    other = jde.stores.Memory(table_config(dim=7))
    with pytest.raises(ValueError, match="dim 7 there, 5 here"):
        jde.export.to_store(coll, state, {"cat": other})
    with pytest.raises(ValueError, match="dim 7 there, 5 here"):
        jde.import_.from_store(coll, {"cat": other}, state)
    with pytest.raises(TypeError, match="stores go by table"):
        jde.export.to_store(coll, state, jde.stores.Memory(table_config()))
    with pytest.raises(ValueError, match="dim 7 there"):
        jde.lifecycle.evict_to_store(coll, state, "cat", other, count=1)
    with pytest.raises(ValueError, match="give one of count=, below= and keys="):
        mine = jde.stores.Memory(table_config())
        jde.lifecycle.evict_to_store(coll, state, "cat", mine)


def tables_on(devices: int | None, **changes) -> jde.Tables:
    mesh = {} if devices is None else {"mesh": mesh_of(devices), "axis": "data"}
    return jde.Tables([table_config(**changes)], **mesh)


@pytest.mark.parametrize("key_dtype", ["int64", "int32"])
def test_keys_at_the_ends_come_back(tmp_path, key_dtype):
    ends = np.array([0, 1, 2**31 - 1, -5, -6], np.int64)
    if key_dtype == "int64":
        ends = np.concatenate([ends, [2**63 - 1, -(2**63)]])
    coll = jde.Tables([table_config(key_dtype=key_dtype)])
    ids = jde.ids(ends) if key_dtype == "int64" else ends.astype(np.int32)
    rows, residual, state = coll.lookup(coll.init(0), {"cat": ids})
    state = coll.apply_gradients(state, residual, rows)
    before = rows_of(coll, state)
    assert len(before) == len(ends)
    store = jde.stores.Log(tmp_path, coll.tables["cat"])
    jde.export.to_store(coll, state, {"cat": store})
    assert rows_of(coll, jde.import_.from_store(coll, {"cat": store}).state) == before
    state, moved = jde.lifecycle.evict_to_store(coll, state, "cat", store, count=99)
    assert moved.rows == len(ends) and not rows_of(coll, state)
    keys = np.array(sorted(before))
    state, moved = jde.lifecycle.fetch_from_store(coll, state, "cat", store, keys)
    assert moved.rows == len(ends) and rows_of(coll, state) == before


@pytest.mark.parametrize("devices", [None, 4])
def test_the_lowest_scores_leave(devices):
    coll = tables_on(devices)
    store = jde.stores.Memory(coll.tables["cat"])
    state = trained(coll, np.arange(100))
    mark = coll.get_score(state)["cat"]
    state = trained(coll, np.arange(50, 150), state)
    before = rows_of(coll, state)
    state, moved = jde.lifecycle.evict_to_store(coll, state, "cat", store, count=30)
    assert moved.rows == 30 and not len(moved.stayed)
    assert sorted(store.keys()) == list(range(30))
    state, moved = jde.lifecycle.evict_to_store(coll, state, "cat", store, below=mark)
    assert moved.rows == 20 and sorted(store.keys()) == list(range(50))
    ids = np.array([60, 61, 999])
    state, moved = jde.lifecycle.evict_to_store(coll, state, "cat", store, keys=ids)
    assert moved.rows == 2
    held = rows_of(coll, state) | {
        int(k): store.get([k])[1][0].tobytes()
        for k in store.keys()  # noqa: SIM118
    }
    assert held == before and len(rows_of(coll, state)) == 98


@pytest.mark.slow
@pytest.mark.parametrize("devices", [None, 2])
def test_an_id_with_a_row_keeps_it_and_full_buckets_wait(devices):
    coll = tables_on(devices, capacity=256, score_strategy="step")
    config = coll.tables["cat"]
    store = jde.stores.Memory(config)
    state = trained(coll, np.arange(256))
    state, moved = jde.lifecycle.evict_to_store(coll, state, "cat", store, count=100)
    state = trained(coll, np.arange(1000, 1080), state)  # others take the room
    state = trained(coll, np.array([0]), state)  # and one is new again
    stats, stored = coll.stats(state), store.keys()
    before = rows_of(coll, state)
    state, moved = jde.lifecycle.fetch_from_store(
        coll, state, "cat", store, np.arange(-1, 256)
    )
    after = rows_of(coll, state)
    assert 0 in moved.stayed and 0 < moved.rows < 99
    assert before.items() <= after.items()
    assert len(after) == len(before) + moved.rows
    assert coll.stats(state)["cat/evicted"] == stats["cat/evicted"]
    assert sorted(store.keys()) == sorted(moved.stayed)
    assert set(stored) == set(store.keys()) | (set(after) - set(before))


@pytest.mark.parametrize("kind", ["Log", "Memory"])
def test_nothing_is_lost_over_many_departures_and_returns(tmp_path, kind):
    """A table of 2,000 rows for 20,000 ids; each row counts its updates.

    DYNEMB_DEPARTURES=100000000 by night; 100,000 otherwise.
    """
    departures = NIGHTLY_ROWS or 100_000
    config = jde.TableConfig(
        name="cat",
        dim=2,
        capacity=16_384,
        initializer=jde.initializers.constant(0.0),
        optimizer=jde.optim.sgd(1.0),
        score_strategy="no_eviction",
    )
    coll = jde.Tables([config])
    store = jde.stores.Memory(config)
    if kind == "Log":
        store = jde.stores.Log(tmp_path, config, segment_megabytes=1 / 8, keep=1)
    rng = np.random.default_rng(11)
    state, updates = coll.init(0), np.zeros(20_000, np.int64)
    step = jax.jit(lambda state, ids: _one_more(coll, state, ids), donate_argnums=0)
    left, came, turn = 0, 0, 0
    while left < departures:
        ids = rng.integers(0, 20_000, 4096)
        state, moved = jde.lifecycle.fetch_from_store(coll, state, "cat", store, ids)
        assert not len(moved.stayed)
        came += moved.rows
        state = step(state, jde.ids(ids))
        updates += np.bincount(ids, minlength=20_000)
        rows = int(coll.stats(state)["cat/rows"])
        state, moved = jde.lifecycle.evict_to_store(
            coll, state, "cat", store, count=rows - 500, step=turn
        )
        left += moved.rows
        turn += 1
        if turn % 10 == 0:
            store.commit(f"turn-{turn}")
    assert left > 0.9 * departures and came > 0.5 * departures
    state, moved = jde.lifecycle.evict_to_store(coll, state, "cat", store, count=20_000)
    keys = np.arange(20_000)
    found, packed = store.get(keys)
    np.testing.assert_array_equal(found, updates > 0)
    rows = store.layout.rows(packed)
    np.testing.assert_array_equal(rows[:, 0], -updates)
    np.testing.assert_array_equal(rows[:, 1], -updates)
    stats = coll.stats(state)
    assert stats["cat/rows"] == stats["cat/refused"] == stats["cat/lost_updates"] == 0


def _one_more(coll, state, ids):
    """Adds -1 to both columns of each row, for each time that its id comes."""
    rows, residual, state = coll.lookup(state, {"cat": ids})
    ones = jax.numpy.ones_like(rows["cat"])
    return coll.apply_gradients(state, residual, {"cat": ones})
