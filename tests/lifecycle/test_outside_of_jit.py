# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Calls outside of jit: each compiles its programs once, however often it is made."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde
from jax_dynemb.admission import Frequency, Sketch
from meshes import mesh_of

IDS, ROWS = 32, 512
ADAGRAD = jde.optim.adagrad(0.1)
FREQUENCY = Frequency(2, Sketch(bytes=1 << 12), halve_every=3)
TIER = jde.tiers.host(hbm_fraction=4 / 128, spill_rows=4)
COLLECTIONS = {
    "plain": [jde.TableConfig("t", 4, ROWS, ("f", "bag"), pooling="sum")],
    "table_wise": [
        jde.TableConfig("t", 4, ROWS, ("f", "bag"), sharding="table_wise"),
        jde.TableConfig("u", 4, ROWS, sharding="table_wise"),
    ],
    "column_wise": [jde.TableConfig("t", 8, ROWS, ("f",), sharding="column_wise")],
    "replicated": [
        jde.TableConfig(
            "t",
            4,
            ROWS,
            ("f",),
            sharding="replicated",
            score_strategy="lfu",
            lfu_halflife=8,
        )
    ],
    "sketched": [
        jde.TableConfig("t", 4, ROWS, ("f",), score_strategy="lfu", admission=FREQUENCY)
    ],
    "tiered": [jde.TableConfig("t", 4, ROWS, ("f",), tier=TIER)],
    "tensor_train": [
        jde.TTConfig("t", 4, ROWS, 4, feature_names=("f",), optimizer=ADAGRAD)
    ],
}


def calls_of(coll: jde.Tables, state: Any) -> dict[str, Callable[[], Any]]:
    """The calls that a notebook would make, by name, on a state with rows."""
    keys = np.arange(IDS, dtype=np.int64)
    dynamic = not isinstance(coll.tables["t"], jde.TTConfig)
    ids = {"f": jde.ids(keys)}
    weights = {}
    if coll.tables["t"].pooling:
        ids["bag"] = jde.Jagged(jde.ids(keys), jnp.full(IDS // 4, 4, jnp.int32))
        weights = {"bag": jnp.ones(IDS)}
    rows, residual, state = coll.lookup(state, ids, weights)
    ones = jax.tree.map(jnp.ones_like, rows)
    by_table = {"t": ids["f"]}
    calls = {
        "lookup": lambda: coll.lookup(state, ids, weights),
        "lookup, stats": lambda: coll.lookup(state, ids, weights, stats=True),
        "lookup, insert=False": lambda: coll.lookup(state, ids, weights, insert=False),
        "find": lambda: coll.find(state, ids, weights),
        "apply_gradients": lambda: coll.apply_gradients(
            state, residual, ones, learning_rate=0.1
        ),
        "reduce_gradients": lambda: coll.reduce_gradients(state, residual, ones),
        "stats": lambda: coll.stats(state),
        "clear": lambda: coll.clear(state),
        "init": lambda: coll.init(1),
        "prefetch": lambda: coll.prefetch(state, ids),
        "flush": lambda: coll.flush(state),
        "route": lambda: coll.lookup(state, coll.route(ids, weights)),
    }
    if weights:
        calls["weight_gradients"] = lambda: coll.weight_gradients(state, residual, ones)
    if not dynamic:
        return calls
    slots = {
        n: x.slots for n, x in coll.reduce_gradients(state, residual, ones)[0].items()
    }
    read, _ = coll.gather(state, slots)
    values = {"t": jnp.ones((IDS, coll.tables["t"].dim))}
    return calls | {
        "find, touch": lambda: coll.find(state, ids, weights, touch=True),
        "gather": lambda: coll.gather(state, slots),
        "scatter": lambda: coll.scatter(state, slots, read),
        "insert": lambda: coll.insert(state, by_table, values),
        "erase": lambda: coll.erase(state, by_table),
        "pin": lambda: coll.pin(state, by_table),
        "unpin": lambda: coll.unpin(state, by_table),
        "erase_where": lambda: coll.erase_where(
            state, {"t": jde.lifecycle.Rule(keep_at_most=9)}
        ),
        "bucket_stats": lambda: coll.bucket_stats(state),
        "export": lambda: list(coll.export(state, "t")),
        "get_score": lambda: coll.get_score(state),
    }


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("kind", COLLECTIONS)
def test_second_call_compiles_nothing(compilations, kind, devices):
    coll = jde.Tables(COLLECTIONS[kind], mesh=mesh_of(devices) if devices > 1 else None)
    again: dict[str, list[str]] = {}
    for name, call in calls_of(coll, coll.init(0)).items():
        jax.block_until_ready(call())
        compilations.clear()
        jax.block_until_ready(call())
        if compilations:
            again[name] = list(compilations)
    print(kind, devices, again)
    assert again == {}
