# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Features come in the order of the configs, though shard_map sorts its dicts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde
from meshes import mesh_of

COMMON = {"dim": 4, "capacity": 1024, "pooling": "sum"}
TABLES = [
    jde.TableConfig(name="zoo", feature_names=("m", "b"), **COMMON),
    jde.TableConfig(name="set", sharding="replicated", **COMMON),
    jde.TableConfig(name="art", feature_names=("y", "c"), **COMMON),
    jde.TableConfig(name="pen", sharding="column_wise", **COMMON),
]
ORDER = ["m", "b", "set", "y", "c", "pen"]


def batch(order) -> dict[str, jax.Array]:
    return {name: jde.ids(np.arange(7) + 100 * ORDER.index(name)) for name in order}


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("pooled", ["rows", "sums"])
def test_every_order_of_ids_gives_the_order_of_the_configs(jit, pooled):
    coll = jde.Tables(TABLES[:3], mesh=mesh_of(2), exchange_pooled=pooled)
    compile_ = jax.jit if jit else lambda f: f
    lookup, find = compile_(coll.lookup), compile_(coll.find)
    seen = []
    for order in (ORDER[:5], ["set", *"cbmy"], ["c", "m"]):
        wanted = [name for name in ORDER if name in order]
        rows, residual, state = lookup(coll.init(0), batch(order))
        found_rows, found, _ = find(state, batch(order))
        for given in (rows, residual.features, found_rows, found):
            assert list(given) == wanted
        seen.append(jnp.concatenate(list(rows.values()), -1))
    np.testing.assert_array_equal(seen[0], seen[1])


def test_columns_weights_and_gradients():
    coll = jde.Tables(TABLES, mesh=mesh_of(1))
    weights = {name: jnp.ones(7) for name in reversed(ORDER)}
    rows, residual, state = coll.lookup(coll.init(0), batch(reversed(ORDER)), weights)
    assert list(rows) == list(residual.features) == ORDER
    d_rows = {name: rows[name] for name in sorted(rows)}
    d_weights, state = coll.weight_gradients(state, residual, d_rows)
    assert list(d_weights) == ORDER
    for name in ORDER:
        expected = np.sum(np.asarray(rows[name]) ** 2, axis=-1)
        np.testing.assert_allclose(d_weights[name], expected, rtol=1e-5)
    state = coll.apply_gradients(state, residual, d_rows)
    after, _, _ = coll.find(state, batch(ORDER))
    for name in ORDER:
        np.testing.assert_allclose(
            after[name], 0.99 * np.asarray(rows[name]), rtol=1e-5
        )
