# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Scores of customized tables: 62 bits, kept by lookups without any."""

import dataclasses
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde
from keys import keys_of_bucket
from meshes import mesh_of
from support import Twins, export

TABLE = jde.TableConfig("t", 4, 256, ("a", "b"), score_strategy="customized")
NOW = 1_795_690_263_107_960_892  # nanoseconds, in 2026
MOST = 2**62 - 1


def wide(rng, n: int) -> np.ndarray:
    """Scores of which neither the low words nor the high ones alone tell the order."""
    return rng.integers(0, 3, n) << 60 | rng.integers(0, 3, n) << 31 | rng.integers(9)


def stored(twins: Twins) -> dict[int, int]:
    rows = export(twins.coll, twins.state, "t")
    expected = twins.oracle.export("t")
    scores = {key: row.score for key, row in rows.items()}
    assert scores == {key: row.score for key, row in expected.items()}
    return scores


@pytest.mark.parametrize("score", [0, 1, 2**30, NOW, MOST])
def test_eager_and_traced_are_the_same(platform, score):
    coll, ids = jde.Tables([TABLE]), {"a": jde.ids([1, -1, 2])}
    jit = jax.jit(lambda s, x: coll.lookup(s, ids, scores=x)[2])
    each = np.array([score, 0, score], np.uint64)
    found = []
    for lookup in (lambda s, x: coll.lookup(s, ids, scores=x)[2], jit):
        for of_table in (np.uint64(score), np.int64(score), jde.scores(score)):
            if lookup is jit and np.shape(of_table) == ():
                continue  # JAX has no integers of 64 bits
            found.append(lookup(coll.init(0), {"t": of_table}))
        found.append(lookup(coll.init(0), {"a": jde.scores(each)}))
    found.append(coll.lookup(coll.init(0), ids, scores={"t": score})[2])
    found.append(coll.lookup(coll.init(0), ids, scores={"a": each})[2])
    for state in found:
        (chunk,) = coll.export(state, "t")
        assert chunk.scores.tolist() == [score, score]


def test_32_bit_arrays_are_small_scores(platform):
    coll, ids = jde.Tables([TABLE]), {"a": jde.ids([1, 2])}
    lookup = jax.jit(lambda s, x: coll.lookup(s, ids, scores=x)[2])
    for small in (jnp.uint32(2**32 - 1), jnp.int32(7)):
        (chunk,) = coll.export(lookup(coll.init(0), {"t": small}), "t")
        assert chunk.scores.tolist() == [int(small)] * 2
    state = lookup(coll.init(0), {"a": jnp.array([5, 9], jnp.int32)})
    assert {k: r.score for k, r in export(coll, state, "t").items()} == {1: 5, 2: 9}


def test_integers_of_64_bits_where_jax_has_them():
    coll, ids = jde.Tables([TABLE]), {"a": jde.ids([1, 2])}
    with jax.enable_x64(True):
        lookup = jax.jit(lambda s, x: coll.lookup(s, ids, scores=x)[2])
        state = lookup(coll.init(0), {"t": jnp.int64(NOW)})
        (chunk,) = coll.export(state, "t")
    assert chunk.scores.tolist() == [NOW] * 2


def test_a_lookup_without_scores_keeps_them(platform):
    twins = Twins(TABLE)
    twins.lookup({"a": [1, 2]}, scores={"t": NOW})
    twins.lookup({"a": [1, 3, 3], "b": [2]})
    assert stored(twins) == {1: NOW, 2: NOW, 3: 0}
    twins.lookup({"a": [1], "b": [2, 3]}, scores={"b": np.array([5, MOST])})
    assert stored(twins) == {1: NOW, 2: 5, 3: MOST}
    twins.lookup({"a": [1, 2, 4]}, scores={"t": 3}, touch=False)
    assert stored(twins) == {1: NOW, 2: 5, 3: MOST, 4: 3}
    each = np.array([9, 8, 7, 6])
    twins.lookup({"a": [1, 2, 5, 5]}, scores={"a": each}, touch=False)
    assert stored(twins) == {1: NOW, 2: 5, 3: MOST, 4: 3, 5: 7}
    twins.check()


def test_rows_leave_by_score_then_by_age_then_by_key(platform):
    twins, keys = Twins(TABLE), keys_of_bucket(0, 2, 140)
    for first, last, score in ((0, 2, MOST), (2, 4, 2**40), (4, 6, 5), (6, 128, 5)):
        twins.lookup({"a": keys[first:last]}, scores={"t": score})
    twins.lookup({"a": keys[128:131]}, scores={"t": 2**50})
    left = set(export(twins.coll, twins.state, "t"))
    assert set(keys[:131]) - left == {*keys[4:6], min(keys[6:128])}
    twins.check()


@pytest.mark.parametrize("options", [{}, {"on_full": "refuse"}, {"keep_for": 2}])
def test_a_stream_against_the_oracle(platform, options):
    twins = Twins(dataclasses.replace(TABLE, **options))
    rng = np.random.default_rng(5)
    for step in range(10):
        ids = {f: rng.zipf(1.1, 150) % 1500 for f in "ab"}
        scores = {"a": wide(rng, 150)} if step % 3 == 0 else {"t": int(wide(rng, 1)[0])}
        twins.lookup(ids, scores=None if step % 3 == 2 else scores)
    twins.erase_where({"t": {"score_below": 2**60 + 1}})
    twins.erase_where({"t": {"unused_for": 3, "keep_at_most": 20}})
    stored(twins)
    twins.check()


@pytest.mark.parametrize("factor", [0.5, 8.0])  # several rounds, or one
@pytest.mark.parametrize("sharding", ["row_wise", "replicated", "column_wise"])
def test_eight_devices_do_what_one_does(factor, sharding):
    table = dataclasses.replace(TABLE, capacity=1024, sharding=sharding, dim=32)
    rng, options = np.random.default_rng(3), {"exchange_factor": factor}
    twins = Twins(table, mesh=mesh_of(8), **options)
    for step in range(4):
        ids = {
            f: np.where(rng.random(64) < 0.1, -1, rng.zipf(1.2, 64) % 700) for f in "ab"
        }
        scores = {"a": wide(rng, 64)} if step % 2 == 0 else None
        twins.lookup(ids, scores=scores)
    stored(twins)


def test_exports_and_marks(platform):
    coll = jde.Tables([TABLE])
    state = coll.lookup(coll.init(0), {"a": jde.ids([1, 2])}, scores={"t": 5})[2]
    mark = coll.get_score(state)["t"]
    state = coll.lookup(state, {"a": jde.ids([2, 3])}, scores={"t": NOW})[2]
    (changed,) = coll.export(state, "t", since=mark)
    assert sorted(changed.keys.tolist()) == [2, 3]
    (high,) = coll.export(state, "t", min_score=6)
    assert sorted(high.keys.tolist()) == [2, 3] and set(high.scores.tolist()) == {NOW}
    state = coll.pin(state, {"t": jde.ids([3])})
    (chunk,) = coll.export(state, "t", min_score=6)
    assert chunk.scores.tolist() == [NOW] * 2
    assert chunk.pinned is not None and chunk.pinned.sum() == 1
    other = jde.Tables([dataclasses.replace(TABLE, capacity=512)])
    new = other.insert(
        other.init(0),
        {"t": jde.ids(chunk.keys)},
        {"t": chunk.rows},
        scores={"t": chunk.scores},
    )
    assert {r.score for r in export(other, new, "t").values()} == {NOW}


def test_growth_and_slots_keep_scores(platform):
    coll = jde.Tables([TABLE])
    ids = np.arange(150)
    scores = {"a": np.int64(2**40) + ids}
    _, _, state = coll.lookup(coll.init(0), {"a": jde.ids(ids)}, scores=scores)
    before = {k: row.score for k, row in export(coll, state, "t").items()}
    coll, state = coll.grow(state, {"t": 1024})
    after = {k: row.score for k, row in export(coll, state, "t").items()}
    assert before == after == {int(k): 2**40 + int(k) for k in ids}
    slots = jnp.arange(1024, dtype=jnp.int32)
    rows, state = coll.gather(state, {"t": slots})
    words = np.ascontiguousarray(rows["t"]["scores"]).view(np.uint64)[:, 0]
    assert sorted(words[words > 0].tolist()) == sorted(after.values())


def test_now_is_a_score():
    coll, ids = jde.Tables([TABLE]), {"a": jde.ids([1, 2, 3])}
    lookup = jax.jit(lambda s, now: coll.lookup(s, ids, scores={"t": now})[2])
    before = time.time_ns()
    (chunk,) = coll.export(lookup(coll.init(0), jde.now()), "t")
    assert before <= int(chunk.scores[0]) <= time.time_ns()
