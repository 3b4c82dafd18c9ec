# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Operations outside of jit return arrays that are committed as those they were given.

A step compiles for that too; see tests/files/test_one_program.py.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jax_dynemb as jde

IDS = jde.ids(np.arange(1, 100))
NEVER = jde.lifecycle.Rule(unused_for=1 << 40)
TABLES = {
    "plain": {},
    "optax": {"optimizer": optax.adam(0.1)},
    "admission": {"admission": jde.admission.Frequency(2, jde.admission.Sketch(1024))},
    "tier": {"tier": jde.tiers.host(hbm_fraction=0.5)},
    "lfu": {"score_strategy": "lfu", "log_removed": 64},
}
OPERATIONS = {
    "insert": lambda coll, s: coll.insert(s, {"t": IDS}, {"t": jnp.ones((99, 8))}),
    "erase": lambda coll, s: coll.erase(s, {"t": IDS}),
    "pin": lambda coll, s: coll.pin(s, {"t": IDS}),
    "erase_where": lambda coll, s: coll.erase_where(s, {"t": NEVER})[1],
    "grow": lambda coll, s: coll.grow(s, {"t": 4096})[1],
    "clear": lambda coll, s: coll.clear(s),
    "set_step": lambda coll, s: coll.set_step(s, {"t": 5}),
    "set_score": lambda coll, s: coll.set_score(s, {"t": 50}),
    "lookup": lambda coll, s: coll.lookup(s, {"t": IDS})[2],
    "update": lambda coll, s: updated(coll, s),
}


def refused(table, operation):
    """Whether a table's scores are no steps."""
    return table == "lfu" and operation == "set_score"


def updated(coll, state):
    rows, residual, state = coll.lookup(state, {"t": IDS})
    return coll.apply_gradients(state, residual, rows)


def kinds(state):
    leaves = jax.tree.leaves_with_path(state)
    return {jax.tree_util.keystr(path): leaf.committed for path, leaf in leaves}


@pytest.mark.parametrize(
    ("table", "operation"),
    [(t, o) for t in TABLES for o in OPERATIONS if not refused(t, o)],
)
@pytest.mark.parametrize("is_committed", [False, True], ids=["free", "committed"])
def test_arrays_stay_committed_or_free(table, operation, is_committed):
    coll = jde.Tables([jde.TableConfig("t", 8, 1024, **TABLES[table])])
    state = coll.init(0)
    if is_committed:
        state = jax.tree.map(lambda leaf: jax.device_put(leaf, leaf.sharding), state)
    before = kinds(state)
    assert len(set(before.values())) == 1
    assert kinds(OPERATIONS[operation](coll, state)) == before
