# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Several lookups, one update, on a mesh: gradients go to their rows, or are counted.

Later lookups take the rows of earlier ones, and ids come back to new rows.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jax_dynemb as jde
from meshes import mesh_of
from oracle import ReferenceTables
from support import Rows, Twins, came_back, export, gradients

TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}
FEATURES = ("a", "b")
# A device has more ids than there is room for with one owner, or room for all of them.
CASES = [
    ("row_wise", "rounds", 2),
    ("row_wise", "rows", 8),
    ("row_wise", "sums", 4),
    ("table_wise", "rounds", 4),
    ("column_wise", "rows", 4),
    ("replicated", "rows", 2),
]
LOOKUPS = 3


@functools.cache
def tables(sharding: str, exchange: str, devices: int) -> Twins:
    """A table whose buckets a few lookups fill."""
    return Twins(
        jde.TableConfig(
            "t",
            dim=16,
            capacity=512 * devices,
            feature_names=FEATURES,
            optimizer=jde.optim.adagrad(0.1),
            pooling="sum" if exchange == "sums" else None,
            sharding=sharding,
        ),
        mesh=mesh_of(devices),
        # All ids that a device has for a bucket fit into a round.
        exchange_factor=0.3 if exchange == "rounds" else devices,
        exchange_pooled="sums" if exchange == "sums" else "rows",
    )


def batches(rng, devices: int, pooled: bool, again: bool) -> list[dict]:
    """Ids that are distinct in a lookup: an owner counts an id once for each device.

    Args:
      rng: draws them.
      devices: of the mesh.
      pooled: in bags of four.
      again: whether later lookups may have the ids of earlier ones.
    """
    size, shape = 320 * devices, (2, -1, 4) if pooled else (2, -1)
    drawn = [
        rng.choice(800 * devices, size, replace=False) + (0 if again else 2**40 * n)
        for n in range(LOOKUPS)
    ]
    return [dict(zip(FEATURES, each.reshape(shape), strict=True)) for each in drawn]


@pytest.mark.slow
@pytest.mark.parametrize(("sharding", "exchange", "devices"), CASES)
@settings(max_examples=4)
@given(
    seed=st.integers(0, 2**32 - 1),
    order=st.permutations(range(LOOKUPS)),
    again=st.booleans(),
)
def test_random_lookups(sharding, exchange, devices, seed, order, again):
    twins = tables(sharding, exchange, devices)
    twins.state = twins.coll.init(0)
    twins.oracle = ReferenceTables(twins.coll.tables.values(), 0)
    rng, pairs, d_rows = np.random.default_rng(seed), [], []
    for ids in batches(rng, devices, exchange == "sums", again):
        rows, pair = twins.lookup(ids)
        pairs.append(pair)
        d_rows.append({f: gradients(x.shape, seed % 97) for f, x in rows.items()})
    back = [came_back(twins.oracle, theirs) for _, theirs in pairs]
    ours, theirs = ([pairs[n][i] for n in order] for i in range(2))
    twins.apply((ours, theirs), [d_rows[n] for n in order])
    if not again:
        twins.check(TOLERANCE)
        assert twins.oracle.stats()["t/lost_updates"] > 0
        return
    # A new row may lie in the slot of the old one: then it gets the gradient.
    most = twins.oracle.stats()["t/lost_updates"]
    lost = twins.coll.stats(twins.state)["t/lost_updates"]
    assert 0 < most - sum(map(len, back)) <= lost <= most
    tables_now = export(twins.coll, twins.state, "t"), twins.oracle.export("t")
    others = {*tables_now[1]} - set().union(*back)
    got, want = (Rows.of({k: rows[k] for k in others}) for rows in tables_now)
    np.testing.assert_allclose(got.values, want.values, **TOLERANCE)


@pytest.mark.slow
@pytest.mark.parametrize(("sharding", "exchange", "devices"), CASES)
def test_lookups_that_scan_has_stacked(sharding, exchange, devices):
    """They are updated, and counted, as a list of lookups is."""
    coll = tables(sharding, exchange, devices).coll
    drawn = batches(np.random.default_rng(0), devices, exchange == "sums", False)
    stacked = {f: jde.ids(np.stack([each[f] for each in drawn])) for f in FEATURES}

    def one(state, ids):
        rows, residual, state = coll.lookup(state, ids)
        return state, (residual, jax.tree.map(jnp.ones_like, dict(rows)))

    @jax.jit
    def by_scan(state):
        state, many = jax.lax.scan(one, state, stacked)
        return coll.apply_gradients(state, *many)

    @jax.jit
    def by_list(state):
        pairs = []
        for n in range(LOOKUPS):
            state, pair = one(state, {f: ids[n] for f, ids in stacked.items()})
            pairs.append(pair)
        return coll.apply_gradients(state, *map(list, zip(*pairs, strict=True)))

    states = [step(coll.init(0)) for step in (by_scan, by_list)]
    stats = [coll.stats(state) for state in states]
    assert stats[0] == stats[1] and stats[0]["t/lost_updates"] > 0
    got, want = (Rows.of(export(coll, state, "t")) for state in states)
    np.testing.assert_array_equal(got.keys, want.keys)
    np.testing.assert_allclose(got.values, want.values, **TOLERANCE)
