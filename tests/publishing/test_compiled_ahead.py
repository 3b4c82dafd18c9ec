# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""No step waits for a compiler, and no segment for one that its size needs first."""

import threading

import jax
import numpy as np
import pytest

import jax_dynemb as jde
from jax_dynemb._src.serving import room as publishing_room

COMPILED = "/jax/core/compile/backend_compile_duration"


@pytest.fixture
def compiling():
    """Lists the names of the threads that compile something, in order."""
    names = []

    def noted(event, _, **__):
        if event == COMPILED:
            names.append(threading.current_thread().name)

    jax.monitoring.register_event_duration_secs_listener(noted)
    yield names
    jax.monitoring.unregister_event_duration_listener(noted)


def tables():
    options = {"optimizer": jde.optim.sgd(1.0), "log_removed": 64}
    return jde.Tables(
        [
            jde.TableConfig("a", 7, 4096, **options),
            jde.TableConfig("b", 12, 4096, **options),
            jde.TableConfig("c", 7, 4096, **options),  # it shares the arrays of "a"
        ]
    )


def used(coll, state, start, count):
    """Uses so many ids of each table."""
    ids = jde.ids(np.arange(start, start + count))
    return coll.lookup(state, {name: ids for name in "abc"})[2]


@pytest.fixture
def small_rooms(monkeypatch):
    monkeypatch.setattr(publishing_room, "_FIRST", 16)


def test_new_sizes_are_compiled_by_the_thread(tmp_path, compiling, small_rooms):
    coll = tables()
    state = used(coll, coll.init(0), 0, 2000)
    with jde.serving.Publisher(coll, tmp_path, snapshot_every=10**9) as publisher:
        publisher.step(state)
        publisher.flush()
        publisher.step(used(coll, coll.init(1), 0, 2000))  # a history of its own
        publisher.flush()
        state = used(coll, state, 0, 4)
        publisher.step(state)
        publisher.flush()
        for count in (4, 40, 400, 1500, *[40] * 30):
            state = used(coll, state, 0, count)
            jax.block_until_ready(state["a"].counters)
            for _ in range(3):  # one finds too small buffers
                before = len(compiling)
                publisher.step(state)
                mine = compiling[before:].count(threading.current_thread().name)
                publisher.flush()
                assert mine == 0
        assert compiling.count("jax_dynemb.publisher") >= 3
        rooms = {each.rows for each in publisher._rooms.values()}
        assert rooms == {64}  # it shrank to what 40 rows need
        assert len(publisher._copies) == 1  # one program copies all tables of a device
    served = jde.serving.Subscriber(tmp_path, tables(), interval=0)
    ids = {name: jde.ids(np.arange(2000)) for name in "abc"}
    want, found = coll.find(state, ids)[0], served.find(ids)
    for name in ids:
        np.testing.assert_array_equal(found[name], want[name])


def test_a_reader_compiles_the_next_size_when_it_has_served(tmp_path, compiling):
    coll = tables()
    state = used(coll, coll.init(0), 0, 2000)
    with jde.serving.Publisher(coll, tmp_path, dtype="int8") as publisher:
        publisher.step(state)
        served = jde.serving.Subscriber(tmp_path, tables(), interval=0)
        for count in (100,) * 4:  # a table after each but the first
            state = used(coll, state, 0, count)
            publisher.flush(state)
            served.update()
        state = used(coll, state, 0, 400)  # more than 128, which the others needed
        publisher.flush(state)
        serve, before, at = served._serve, len(compiling), []
        served._serve = lambda *given: (at.append(len(compiling)), serve(*given))
        served.update()
    assert at == [before]
