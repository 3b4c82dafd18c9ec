# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""States of every optimizer through checkpoints, deltas, growth and exports.

A row without an update comes along in each: its states are initial on the other side.
"""

import copy
import pickle

import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde
from optimizer_kinds import KINDS
from support import assert_same_rows, compiled, export, gradients

EVERY_KIND = pytest.mark.parametrize("name", KINDS)


def tables(name: str, capacity: int = 256) -> jde.Tables:
    config = jde.TableConfig("t", 6, capacity, optimizer=KINDS[name])
    return jde.Tables([config])


def trained(coll: jde.Tables, state, seed: int):
    """Updates rows 0 to 19; the next five are looked up only."""
    jit = compiled(coll)
    ids = {"t": jde.ids(np.arange(20))}
    rows, residual, state = jit.lookup(state, ids, None, None)
    d_rows = {"t": jnp.asarray(gradients(rows["t"].shape, seed))}
    state = jit.apply_gradients(state, residual, d_rows, None)
    _, _, state = jit.lookup(state, {"t": jde.ids(np.arange(20, 25))}, None, None)
    return state


def assert_initial(rows, name: str) -> None:
    for key in range(20, 25):
        for state, first in KINDS[name].initial:
            assert (rows[key].state[state] == np.float32(first)).all()


@EVERY_KIND
def test_a_checkpoint_goes_on_where_it_was(tmp_path, name):
    coll = tables(name)
    state = trained(coll, coll.init(0), 1)
    jde.checkpoint.save(tmp_path, 1, {"tables": state}, tables=coll, wait=True)
    fresh = {"tables": coll.init(1)}
    restored = jde.checkpoint.restore(tmp_path, fresh, tables=coll).tree["tables"]
    assert_initial(export(coll, restored, "t"), name)
    both = [export(coll, trained(coll, s, 2), "t") for s in (state, restored)]
    assert_same_rows(*both)


@EVERY_KIND
def test_growth_keeps_every_state(name):
    coll = tables(name)
    state = trained(coll, coll.init(0), 1)
    before = export(coll, state, "t")
    larger, grown = coll.grow(state, {"t": 1000})
    assert_same_rows(before, export(larger, grown, "t"))
    assert_initial(export(larger, grown, "t"), name)


@EVERY_KIND
def test_an_export_inserted_elsewhere_trains_on(name):
    coll = tables(name)
    state = trained(coll, coll.init(0), 1)
    rows = export(coll, state, "t")
    keys = sorted(rows)
    values = np.stack([rows[k].values for k in keys])
    states = {
        s: np.stack([rows[k].state[s] for k in keys]) for s, _ in KINDS[name].initial
    }
    other = compiled(coll).insert(
        coll.init(7),
        {"t": jde.ids(np.array(keys))},
        {"t": jnp.asarray(values)},
        {"t": {s: jnp.asarray(x) for s, x in states.items()}},
        None,
    )
    got, want = export(coll, other, "t"), rows
    for key in keys:
        np.testing.assert_array_equal(got[key].values, want[key].values)
        for s in states:
            np.testing.assert_array_equal(got[key].state[s], want[key].state[s])


@EVERY_KIND
def test_a_delta_takes_states_along(name):
    coll = tables(name)
    state = trained(coll, coll.init(0), 1)
    replica = coll.apply_delta(coll.init(1), "t", coll.export(state, "t"))
    assert_same_rows(export(coll, replica, "t"), export(coll, state, "t"))
    assert_initial(export(coll, replica, "t"), name)


@EVERY_KIND
def test_an_optimizer_is_a_value(name):
    kind = KINDS[name]
    assert pickle.loads(pickle.dumps(kind)) == kind == copy.deepcopy(kind)
    assert hash(kind) == hash(copy.copy(kind))
    assert kind.clip_row_norm >= 0
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = kind.nothing
