# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""States of every optimizer through checkpoints, deltas, growth, exports and files.

One collection has a table for each optimizer, and a second one with rows and wide
states of bfloat16 where it has such states. A row without an update comes along in
each operation: its states are initial on the other side.
"""

import copy
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde
from optimizer_kinds import KINDS
from support import Rows, assert_same_rows, export, gradients

TUNED = {
    "sgd": jde.optim.sgd(0.1),
    "adagrad": jde.optim.adagrad(0.1, initial_accumulator_value=0.25),
    "rowwise_adagrad": jde.optim.rowwise_adagrad(0.1, initial_accumulator_value=0.5),
    "adam": jde.optim.adam(0.01, weight_decay=0.1),
}
ALL = TUNED | KINDS
DIM = 6
UPDATED, LOOKED_UP = range(20), range(20, 25)


def config(name: str, capacity: int, half: bool) -> jde.TableConfig:
    wide = [n for n, spec in ALL[name].states(DIM).items() if spec.shape]
    halves = {
        "state_dtype": dict.fromkeys(wide, "bfloat16"),
        "param_dtype": "bfloat16",
        "rounding": "stochastic",
    }
    return jde.TableConfig(
        f"{name}_16" if half else name,
        DIM,
        capacity,
        optimizer=ALL[name],
        **(halves if half else {}),
    )


def tables(capacity: int = 256) -> jde.Tables:
    has_wide = {n for n, o in ALL.items() if any(s.shape for s in o.states(1).values())}
    of_floats = [config(name, capacity, half=False) for name in ALL]
    return jde.Tables(
        [*of_floats, *(config(name, capacity, half=True) for name in sorted(has_wide))]
    )


COLL = tables()
NAMES = list(COLL.tables)


@jax.jit
def step(state, d_rows):
    """Updates some rows, then looks up others."""
    ids = dict.fromkeys(NAMES, jde.ids(np.array(UPDATED)))
    _, residual, state = COLL.lookup(state, ids)
    state = COLL.apply_gradients(state, residual, d_rows)
    others = dict.fromkeys(NAMES, jde.ids(np.array(LOOKED_UP)))
    return COLL.lookup(state, others)[2]


def trained(state, seed: int):
    return step(
        state,
        {
            name: jnp.asarray(gradients((len(UPDATED), DIM), 100 * seed + n))
            for n, name in enumerate(NAMES)
        },
    )


@pytest.fixture(scope="module")
def state():
    # Three updates: `catch_up_start=3` writes `last` from the third one on.
    return trained(trained(trained(COLL.init(0), 1), 2), 4)


@pytest.fixture(scope="module")
def rows(state):
    """Reads what ``export`` gives, by table; each state with every dtype."""
    result = {name: export(COLL, state, name) for name in NAMES}
    dtypes = {
        str(array.dtype)
        for name in NAMES
        for array in state[COLL.state_name(name)].optimizer.values()
    }
    assert dtypes == {"float32", "bfloat16", "int32"}
    return result


def assert_all_same(coll, state, rows) -> None:
    """Every row has its states; those without an update have initial ones."""
    for name, want in rows.items():
        got = export(coll, state, name)
        assert_same_rows(got, want)
        for leaf, spec in coll.tables[name].states.items():
            for key in LOOKED_UP:
                assert (got[key].state[leaf] == np.float32(spec.initial)).all()
            moved = [
                np.any(got[key].state[leaf] != np.float32(spec.initial))
                for key in UPDATED
            ]
            assert all(moved), (name, leaf)


def test_a_checkpoint_goes_on_where_it_was(tmp_path, state, rows):
    jde.checkpoint.save(tmp_path, 1, {"tables": state}, tables=COLL, wait=True)
    fresh = {"tables": COLL.init(1)}
    restored = jde.checkpoint.restore(tmp_path, fresh, tables=COLL).tree["tables"]
    assert_all_same(COLL, restored, rows)
    both = trained(state, 3), trained(restored, 3)
    for name in NAMES:
        assert_same_rows(*(export(COLL, each, name) for each in both))


@pytest.mark.slow
def test_growth_keeps_every_state(state, rows):
    larger, grown = COLL.grow(state, dict.fromkeys(NAMES, 1_000))
    assert_all_same(larger, grown, rows)


@pytest.mark.slow
def test_an_export_may_be_inserted_elsewhere(rows):
    arrays = {name: Rows.of(each) for name, each in rows.items()}
    inserted = COLL.insert(
        COLL.init(7),
        {name: jde.ids(each.keys) for name, each in arrays.items()},
        {name: jnp.asarray(each.values, jnp.float32) for name, each in arrays.items()},
        optimizer_state={
            name: {leaf: jnp.asarray(x) for leaf, x in each.state.items()}
            for name, each in arrays.items()
        },
    )
    for name, want in arrays.items():
        got = Rows.of(export(COLL, inserted, name))
        np.testing.assert_array_equal(got.keys, want.keys)
        np.testing.assert_array_equal(got.values, want.values)
        for leaf, states in want.state.items():
            np.testing.assert_array_equal(got.state[leaf], states)
            assert got.state[leaf].dtype == COLL.tables[name].states[leaf].dtype


@pytest.mark.slow
def test_a_delta_takes_states_along(state, rows):
    replica = COLL.init(1)
    for name in NAMES:
        replica = COLL.apply_delta(replica, name, COLL.export(state, name))
    assert_all_same(COLL, replica, rows)


@pytest.mark.parametrize("half", [False, True])
def test_files_of_dynamicemb_hold_the_states_that_it_has(tmp_path, half):
    names = [name for name in TUNED if not half or ALL[name].states(2)]
    names = [n for n in names if not half or n != "rowwise_adagrad"]  # nothing wide
    coll = jde.Tables([config(name, 256, half) for name in names])
    state = coll.init(0)
    for seed in range(2):
        ids = {name: jde.ids(np.array(UPDATED)) for name in coll.tables}
        found, residual, state = coll.lookup(state, ids)
        d_rows = {n: jnp.asarray(gradients(x.shape, seed)) for n, x in found.items()}
        state = coll.apply_gradients(state, residual, d_rows)
    jde.export.dynamicemb(tmp_path / "dump", coll, state, quiet=True)
    again = jde.import_.dynamicemb(tmp_path / "dump", coll).state
    for name in coll.tables:
        got, want = (Rows.of(export(coll, each, name)) for each in (again, state))
        np.testing.assert_array_equal(got.keys, want.keys)
        np.testing.assert_array_equal(got.values, want.values)
        for leaf, states in want.state.items():
            np.testing.assert_array_equal(got.state[leaf], states)


@pytest.mark.parametrize("name", KINDS)
def test_an_optimizer_is_a_value(name):
    kind = KINDS[name]
    assert pickle.loads(pickle.dumps(kind)) == kind == copy.deepcopy(kind)
    assert hash(kind) == hash(copy.copy(kind))
    assert kind.clip_row_norm >= 0
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = kind.nothing
