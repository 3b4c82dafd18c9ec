# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Ids after the last bag: whatever stands there, all is as with padding."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde
from jax_dynemb.admission import Frequency, Sketch
from support import assert_same_rows, export, gradients, without_identity

LENGTHS = {"a": [3, 0, 2, 30, 1], "b": [0, 4, 9, 1, 3]}
ROOM = 60  # positions of a feature, so that many are after the bags
CONFIGS = {
    "sum": {"pooling": "sum", "optimizer": jde.optim.adam(0.1)},
    "mean": {"pooling": "mean", "optimizer": jde.optim.rowwise_adagrad(0.1)},
    "wide": {"pooling": "sum", "dim": 132, "dtype": "bfloat16"},
    "lfu": {"pooling": "sum", "score_strategy": "lfu"},
    "admission": {
        "pooling": "mean",
        "admission": Frequency(2, Sketch(bytes=1 << 12)),
    },
    "full": {"pooling": "sum", "capacity": 128},
}


def tails(rng, kind: str, count: int) -> np.ndarray:
    """Padding, or ids that the tables have, or ids that they have not."""
    if kind == "padding":
        return np.full(count, -1)
    return rng.integers(0, 200, count) + (0 if kind == "stored" else 10**12)


def batch(step: int, kind: str) -> dict[str, jde.Jagged]:
    rng, of_tails, result = np.random.default_rng(step), np.random.default_rng(9), {}
    for feature, lengths in LENGTHS.items():
        ids = rng.integers(0, 200, ROOM)
        ids[rng.random(ROOM) < 0.1] = -1
        ids[sum(lengths) :] = tails(of_tails, kind, ROOM - sum(lengths))
        result[feature] = jde.Jagged(jde.ids(ids), jnp.array(lengths, jnp.int32))
    return result


def numbers(step: int, low: float, high: float, dtype) -> dict[str, jax.Array]:
    rng = np.random.default_rng(step + 100)
    return {f: jnp.asarray(rng.uniform(low, high, ROOM), dtype) for f in LENGTHS}


def run(coll: jde.Tables, kind: str, weighted: bool, counted: bool) -> tuple:
    """Trains four steps; returns what they saw, what counted, and the rows.

    Slots of a bucket that two keys claim at the same time are theirs in any order on a
    GPU, so indexes are not compared.
    """
    state, seen = coll.init(0), []
    for step in range(4):
        ids = batch(step, kind)
        weights = numbers(step, -1, 1, jnp.float32) if weighted else None
        counts = numbers(step, 0, 4, jnp.uint32) if counted else None
        rows, residual, state = jax.jit(coll.lookup)(state, ids, weights, counts=counts)
        d_rows = {f: jnp.asarray(gradients(rows[f].shape, step)) for f in rows}
        if weighted:
            seen.append(coll.weight_gradients(state, residual, d_rows)[0])
        state = jax.jit(coll.apply_gradients)(state, residual, d_rows)
        seen += [rows, jax.jit(coll.find)(state, ids, weights)[0]]
    table = state["t"]
    seen += jax.tree.map(without_identity, [table.counters, table.sketch])
    return seen, export(coll, state, "t")


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_ids_after_the_bags_change_nothing(platform, name, weighted):
    options = {"dim": 8, "capacity": 512} | CONFIGS[name]
    coll = jde.Tables([jde.TableConfig("t", feature_names=("a", "b"), **options)])
    counted = name in ("lfu", "admission")
    wanted, wanted_rows = run(coll, "padding", weighted, counted)
    for kind in ("stored", "unseen"):
        seen, rows = run(coll, kind, weighted, counted)
        jax.tree.map(np.testing.assert_array_equal, seen, wanted)
        assert_same_rows(rows, wanted_rows)


def copies_ids(pooling: str | None) -> list[bool]:
    """Whether programs of a step and of ``find`` write ids with padding."""
    config = jde.TableConfig("t", 8, 512, ("a", "b"), pooling=pooling)
    coll = jde.Tables([config])

    def step(state, ids):
        rows, residual, state = coll.lookup(state, ids)
        return coll.apply_gradients(state, residual, rows)

    state, ids = coll.init(0), batch(0, "stored")
    programs = [jax.jit(each).lower(state, ids).compile() for each in (step, coll.find)]
    select = re.compile(rf"\[{ROOM},2\]\S* select\(")
    return [select.search(each.as_text()) is not None for each in programs]


def test_no_program_writes_ids_with_padding(platform):
    """Kernels know where bags end; without bags they have no offsets."""
    assert copies_ids("sum") == [False, False]
    if platform == "cpu":  # elsewhere XLA may write it in another way
        assert copies_ids(None) == [True, True]
