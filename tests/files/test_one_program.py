# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A step compiles once, wherever its first state comes from.

An array is committed to its devices or not, and that is part of the type that a jitted
function compiles for. So a state with arrays of both kinds would compile twice: a step
returns arrays of one kind.
"""

import jax
import numpy as np
import pytest

import jax_dynemb as jde

IDS = {name: jde.ids(np.arange(1, 200)) for name in "abc"}


def tables(capacity=1024):
    options = {"optimizer": jde.optim.adagrad(0.1), "log_removed": 256}
    return jde.Tables(
        [
            jde.TableConfig("a", 8, capacity, **options),
            jde.TableConfig("b", 8, capacity, **options),
            jde.TableConfig("c", 12, capacity, **options),
        ]
    )


def trained(coll, state):
    rows, residual, state = coll.lookup(state, IDS)
    return coll.apply_gradients(state, residual, rows)


def from_safetensors(folder, coll, state):
    jde.export.safetensors(folder, coll, trained(coll, state))
    return coll, jde.import_.safetensors(folder, coll).state


def into_a_state(folder, coll, state):
    jde.export.safetensors(folder, coll, trained(coll, state))
    return coll, jde.import_.safetensors(folder, coll, coll.init(3)).state


def from_dynamicemb(folder, coll, state):
    jde.export.dynamicemb(folder, coll, trained(coll, state))
    return coll, jde.import_.dynamicemb(folder, coll).state


def from_stores(folder, coll, state):
    state, stores = trained(coll, state), {}
    for name, config in coll.tables.items():
        stores[name] = jde.stores.Memory(config)
    jde.export.to_store(coll, state, stores)
    return coll, jde.import_.from_store(coll, stores).state


def from_a_checkpoint(folder, coll, state):
    jde.checkpoint.save(folder, 1, trained(coll, state), tables=coll)
    return coll, jde.checkpoint.restore(folder, coll.init(3), tables=coll).tree


def grown(folder, coll, state):
    return coll.grow(trained(coll, state), {"a": 4096})


def with_a_delta(folder, coll, state):
    state = trained(coll, state)
    _, marks = coll.export_delta(state)
    new = trained(coll, jax.tree.map(jax.numpy.copy, state))
    deltas, _ = coll.export_delta(new, marks)
    for name, delta in deltas.items():
        state = coll.apply_delta(state, name, delta, at=marks[name])
    return coll, state


def erased_and_cleared(folder, coll, state):
    state = coll.erase(trained(coll, state), {"a": IDS["a"]})
    return coll, coll.clear(state)


@pytest.mark.parametrize(
    "make",
    [
        from_safetensors,
        into_a_state,
        from_dynamicemb,
        from_stores,
        from_a_checkpoint,
        grown,
        with_a_delta,
        erased_and_cleared,
    ],
    ids=lambda make: make.__name__,
)
@pytest.mark.parametrize("is_committed", [False, True], ids=["free", "committed"])
def test_a_step_compiles_once(tmp_path, make, is_committed):
    coll = tables()
    state = coll.init(0)
    if is_committed:
        state = jax.device_put(state, jax.devices()[0])
    coll, state = make(tmp_path, coll, state)
    kinds = jax.tree.leaves_with_path(state)
    kinds = {jax.tree_util.keystr(path): leaf.committed for path, leaf in kinds}
    assert len(set(kinds.values())) == 1, kinds
    step = jax.jit(lambda state: trained(coll, state))
    for _ in range(3):
        state = step(state)
    assert step._cache_size() == 1
