# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Several lookups, one update, on a mesh: gradients go to their rows, or are counted.

Later lookups take the rows of earlier ones, and ids come back to new rows. One device
says what becomes of each gradient; so does the oracle where no id came back.
"""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jax_dynemb as jde
from meshes import mesh_of
from support import Rows, Twins, came_back, compiled, export, gradients

TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}
FEATURES = ("a", "b")
# A device has more ids than there is room for with one owner, or room for all of them.
CASES = [
    ("row_wise", "rounds", 2),
    ("row_wise", "rounds", 8),
    ("row_wise", "rows", 4),
    ("row_wise", "sums", 4),
    ("table_wise", "rounds", 4),
    ("column_wise", "rows", 4),
    ("replicated", "rows", 2),
]
LOOKUPS = 3


@functools.cache
def tables(sharding: str, exchange: str, devices: int) -> tuple[Twins, jde.Tables]:
    """A table whose buckets a few lookups fill: on a mesh, and on one device."""
    config = {
        "dim": 8,
        "capacity": 512 * devices,
        "feature_names": FEATURES,
        "optimizer": jde.optim.adagrad(0.1),
        "pooling": "sum" if exchange == "sums" else None,
    }
    twins = Twins(
        jde.TableConfig("t", sharding=sharding, **config),
        mesh=mesh_of(devices),
        exchange_factor=max(0.4 / devices, 0.1) if exchange == "rounds" else devices,
        exchange_pooled="sums" if exchange == "sums" else "rows",
    )
    return twins, jde.Tables([jde.TableConfig("t", **config)])


def batches(rng, devices: int, pooled: bool) -> list[dict]:
    """Ids that are distinct in a lookup: an owner counts an id once for each device."""
    shape = (2, -1, 4) if pooled else (2, -1)
    drawn = [
        rng.choice(800 * devices, 320 * devices, replace=False).reshape(shape)
        for _ in range(LOOKUPS)
    ]
    return [dict(zip(FEATURES, one, strict=True)) for one in drawn]


def on_one_device(coll: jde.Tables, ids: list, d_rows: list, order: list[int]):
    """The state, and the gradients that were lost."""
    jit, state, residuals = compiled(coll), coll.init(0), []
    for each in ids:
        on_device = {name: jde.ids(x) for name, x in each.items()}
        _, residual, state = jit.lookup(state, on_device, None, None)
        residuals.append(residual)
    many = [residuals[n] for n in order], [d_rows[n] for n in order]
    state = jit.apply_gradients(state, *many, None)
    return export(coll, state, "t"), coll.stats(state)["t/lost_updates"]


@pytest.mark.parametrize(("sharding", "exchange", "devices"), CASES)
@settings(max_examples=4)
@given(seed=st.integers(0, 2**32 - 1), order=st.permutations(range(LOOKUPS)))
def test_random_lookups(sharding, exchange, devices, seed, order):
    twins, alone = tables(sharding, exchange, devices)
    twins.state = twins.coll.init(0)
    twins.oracle.clear()
    ids = batches(np.random.default_rng(seed), devices, exchange == "sums")
    pairs, d_rows = [], []
    for each in ids:
        rows, pair = twins.lookup(each)
        pairs.append(pair)
        d_rows.append({f: gradients(x.shape, seed % 97) for f, x in rows.items()})
    again = any(came_back(twins.oracle, theirs) for _, theirs in pairs)
    ours, theirs = ([pairs[n][i] for n in order] for i in range(2))
    twins.apply((ours, theirs), [d_rows[n] for n in order])
    want, lost = on_one_device(alone, ids, d_rows, order)
    assert twins.coll.stats(twins.state)["t/lost_updates"] == lost > 0
    got, want = Rows.of(export(twins.coll, twins.state, "t")), Rows.of(want)
    np.testing.assert_array_equal(got.keys, want.keys)
    np.testing.assert_allclose(got.values, want.values, **TOLERANCE)
    if not again:
        twins.check(TOLERANCE)
