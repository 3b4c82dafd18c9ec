# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A mesh counts gradients of rows that were evicted between lookup and update."""

import dataclasses

import jax
import numpy as np
import optax
import pytest

import jax_dynemb as jde
from meshes import mesh_of
from support import compiled, gradients, without_identity

# Each device has ids of its own; some of them leave.
IDS, GONE = np.arange(64), np.arange(20, 41)


@pytest.mark.parametrize(
    "optimizer", [jde.optim.sgd(0.5), optax.adam(0.1)], ids=["sgd", "optax"]
)
@pytest.mark.parametrize(
    "sharding", ["row_wise", "table_wise", "column_wise", "replicated"]
)
def test_every_way_out_between_lookup_and_update(sharding, optimizer):
    configs = [
        jde.TableConfig(name, 32, 1024, optimizer=optimizer, sharding=sharding)
        for name in "ab"
    ]
    coll = jde.Tables(configs, mesh_of(8))
    jit, state = compiled(coll), coll.init(0)
    ids = {name: jde.ids(IDS) for name in "ab"}
    for step in range(1, 3):
        rows, residual, state = jit.lookup(state, ids, None, None)
        state = jit.erase(state, {"a": jde.ids(GONE)})
        d_rows = {name: gradients(x.shape, step) for name, x in rows.items()}
        state = jit.apply_gradients(state, residual, d_rows, None)
        stats = coll.stats(state)
        assert stats["a/lost_updates"] == step * len(GONE)
        assert stats["b/lost_updates"] == 0
        assert stats["a/step"] == stats["b/step"] == step
    own = state[coll.state_name("a")]
    numbers = [without_identity(s.data) for s in own.counters.addressable_shards]
    for copy in numbers if sharding == "replicated" else []:
        np.testing.assert_array_equal(copy, numbers[0])
    arrays = jax.tree.leaves(dataclasses.replace(own, counters=own.index))
    for copies in [[np.asarray(s.data) for s in x.addressable_shards] for x in arrays]:
        for copy in copies if sharding == "replicated" else []:
            np.testing.assert_array_equal(copy, copies[0])
