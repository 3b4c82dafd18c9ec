# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Calls outside of jit: each compiles its programs once, however often it is made."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde
from jax_dynemb.admission import Frequency, Sketch
from jax_dynemb.lifecycle import Rule
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
    ids: dict[str, Any] = {"f": jde.ids(keys)}
    weights = {}
    if coll.tables["t"].pooling:
        ids["bag"] = jde.Jagged(jde.ids(keys), jnp.full(IDS // 4, 4, jnp.int32))
        weights = {"bag": jnp.ones(IDS)}
    rows, residual, state = coll.lookup(state, ids, weights)
    ones = jax.tree.map(jnp.ones_like, rows)
    calls = {
        "init": lambda: coll.init(1),
        "lookup": lambda: coll.lookup(state, ids, weights),
        "lookup, stats": lambda: coll.lookup(state, ids, weights, stats=True),
        "lookup, insert=False": lambda: coll.lookup(state, ids, weights, insert=False),
        "find": lambda: coll.find(state, ids, weights),
        "route": lambda: coll.lookup(state, coll.route(ids, weights)),
        "apply_gradients": lambda: coll.apply_gradients(
            state, residual, ones, learning_rate=0.1
        ),
        "reduce_gradients": lambda: coll.reduce_gradients(state, residual, ones),
        "prefetch": lambda: coll.prefetch(state, ids),
        "flush": lambda: coll.flush(state),
        "stats": lambda: coll.stats(state),
        "clear": lambda: coll.clear(state),
    }
    if weights:
        calls["weight_gradients"] = lambda: coll.weight_gradients(state, residual, ones)
    if isinstance(coll.tables["t"], jde.TTConfig):
        return calls
    calls["find, touch"] = lambda: coll.find(state, ids, weights, touch=True)
    return calls | of_rows(coll, state, ids["f"], residual, ones)


def of_rows(
    coll: jde.Tables, state: Any, ids: jax.Array, residual: Any, d_rows: Any
) -> dict[str, Callable[[], Any]]:
    """Calls on single rows, which tensor trains do not have."""
    reduced, _ = coll.reduce_gradients(state, residual, d_rows)
    slots = {name: each.slots for name, each in reduced.items()}
    read, _ = coll.gather(state, slots)
    keys, values = {"t": ids}, {"t": jnp.ones((IDS, coll.tables["t"].dim))}
    return {
        "gather": lambda: coll.gather(state, slots),
        "scatter": lambda: coll.scatter(state, slots, read),
        "insert": lambda: coll.insert(state, keys, values),
        "erase": lambda: coll.erase(state, keys),
        "pin": lambda: coll.pin(state, keys),
        "unpin": lambda: coll.unpin(state, keys),
        "erase_where": lambda: coll.erase_where(state, {"t": Rule(keep_at_most=9)}),
        "bucket_stats": lambda: coll.bucket_stats(state),
        "export": lambda: list(coll.export(state, "t")),
        "get_score": lambda: coll.get_score(state),
    }


@pytest.mark.slow
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
    assert again == {}


def test_another_captured_value_is_another_program():
    placement = jde.Tables(COLLECTIONS["plain"], mesh=mesh_of(2)).placement
    assert placement is not None

    def times(factor: Any) -> jax.Array:
        def body(x: jax.Array) -> jax.Array:
            return x * factor

        split = placement.split
        return placement.mapped(body, (split,), split)(jnp.arange(4, dtype=jnp.int32))

    three, four = jnp.int32(3), jnp.int32(4)  # arrays have no hash
    for factor in (2, 5, 2, three, four):
        np.testing.assert_array_equal(times(factor), np.arange(4) * int(factor))


def test_programs_keep_no_batch():
    coll = jde.Tables(COLLECTIONS["plain"], mesh=mesh_of(2))
    weights = jnp.ones(IDS)
    ids = jde.Jagged(jde.ids(np.arange(IDS)), jnp.full(IDS // 4, 4, jnp.int32))
    batch, factors = {"bag": ids}, {"bag": weights}
    rows, residual, state = coll.lookup(coll.init(0), batch, factors)
    coll.find(state, batch, factors)
    coll.apply_gradients(state, residual, rows)
    alive = [weakref.ref(x) for x in (ids.values, weights, state["t"].values)]
    del ids, weights, batch, factors, rows, residual, state
    gc.collect()
    assert [each() for each in alive] == [None, None, None]
