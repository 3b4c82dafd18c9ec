# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A state knows its run, its segments and its latest lookups."""

import dataclasses

import jax
import numpy as np
import pytest

import jax_dynemb as jde
from jax_dynemb._src import ffi as _ffi
from support import export

CONFIG = jde.TableConfig("t", dim=4, capacity=256, optimizer=jde.optim.sgd(1.0))
COLL = jde.Tables([CONFIG])
NONCES = _ffi.constants()["num_nonces"]


def counters(state, name="t"):
    """The counters of a table by name, its ancestors and its nonces as lists."""
    words = np.array(state[name].counters)
    numbers = dict(
        zip(_ffi.constants()["counters"], words.view(np.uint64)[0, :, 0], strict=True)
    )
    found = {name: int(x) for name, x in numbers.items()}
    pairs = [int(x) for name, x in numbers.items() if name.startswith("ancestors")]
    ring = [int(x) for name, x in numbers.items() if name.startswith("nonces")]
    ancestors = list(zip(pairs[::2], pairs[1::2], strict=True))
    run = found["stamp"] | found["stamp_high"] << 64
    return found | {"run": run, "ancestors": ancestors, "nonces": ring}


def look(coll, state, first=0):
    return coll.lookup(state, {"t": jde.ids(np.arange(first, first + 20))})[2]


def saved_and_restored(directory, coll, state, into=None):
    """As a job that begins again: freshly made tables."""
    into = into or coll
    jde.checkpoint.save(directory, 1, state, tables=coll, wait=True)
    return jde.checkpoint.restore(directory, into.init(3), tables=into).tree


def test_tables_of_one_init_have_one_run(platform):
    wide = jde.TableConfig("wide", dim=8, capacity=256)
    coll = jde.Tables([CONFIG, wide])
    one, other = coll.init(0), coll.init(0)
    a, b, c = counters(one), counters(one, "wide"), counters(other)
    assert a["run"] == b["run"] != c["run"]
    assert a["run"] >> 64 and a["segment"] == b["segment"] != c["segment"]
    assert a["moment"] == a["nonce"] == 0 and not any(a["nonces"])
    assert not any(a["ancestors"][0])


def test_a_lookup_draws_a_nonce(platform):
    state = COLL.init(0)
    drawn = []
    for moment in range(1, NONCES + 4):
        state = look(COLL, state)
        now = counters(state)
        drawn.append(now["nonce"])
        assert now["moment"] == moment
        assert now["nonces"][moment % NONCES] == now["nonce"]
    assert len(set(drawn)) == len(drawn) and 0 not in drawn
    assert sorted(now["nonces"]) == sorted(drawn[-NONCES:])
    branches = {counters(look(COLL, state))["nonce"] for _ in range(20)}
    assert len(branches) == 20


def test_other_calls_keep_the_moment(platform):
    state = look(COLL, COLL.init(0))
    before = counters(state)
    ids = {"t": jde.ids(np.arange(50))}
    inserted = COLL.insert(state, ids, {"t": np.ones((50, 4), np.float32)})
    touched = COLL.find(state, ids, touch=True)[2]
    cleared = COLL.clear(state)
    grown, larger = COLL.grow(state, {"t": 512})
    for new in (inserted, touched, cleared, larger):
        now = counters(new)
        for name in ("run", "segment", "moment", "nonce", "nonces", "ancestors"):
            assert now[name] == before[name]
    assert counters(look(grown, larger))["moment"] == 2


@pytest.mark.parametrize("capacity", [256, 1024])
def test_a_restore_begins_a_segment(tmp_path, platform, capacity):
    """Also where the rows are inserted again, into a table of another size."""
    into = jde.Tables([dataclasses.replace(CONFIG, capacity=capacity)])
    coll, state, history = COLL, look(COLL, look(COLL, COLL.init(0))), []
    for n in range(10):
        before = counters(state)
        state = saved_and_restored(tmp_path / str(n), coll, state, into)
        history.insert(0, (before["segment"], before["clock"]))
        coll, now = into, counters(state)
        assert now["run"] == before["run"]
        assert now["segment"] not in {0, *(segment for segment, _ in history)}
        assert now["ancestors"] == (history + [(0, 0)] * 8)[:8]
        assert now["moment"] == before["moment"] + 1
        assert now["nonce"] == 0 and not any(now["nonces"])
        state = look(coll, state)


def test_two_restores_of_one_checkpoint_are_two_segments(tmp_path):
    state = look(COLL, COLL.init(0))
    once = counters(saved_and_restored(tmp_path / "a", COLL, state))
    again = counters(saved_and_restored(tmp_path / "b", COLL, state))
    assert once["segment"] != again["segment"]
    assert once["ancestors"] == again["ancestors"]


def test_rows_of_files_begin_a_run(tmp_path):
    state = look(COLL, COLL.init(0))
    jde.export.safetensors(tmp_path, COLL, state)
    new = jde.import_.safetensors(tmp_path, COLL, state=COLL.init(0)).state
    assert len(export(COLL, new, "t")) == 20
    assert counters(new)["run"] not in (0, counters(state)["run"])


def test_a_traced_init_draws_too():
    make = jax.jit(COLL.init)
    assert counters(make(np.uint32(0)))["run"] != counters(COLL.init(0))["run"]
