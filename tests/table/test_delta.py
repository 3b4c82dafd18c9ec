# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Checks what changed since a mark, and a replica that takes it over."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jax_dynemb as jde
from keys import keys_of_bucket
from support import assert_same_rows, compiled, export, gradients

CONFIG = jde.TableConfig(
    "t", dim=3, capacity=256, optimizer=jde.optim.adagrad(0.5), score_strategy="step"
)
STRATEGIES = ["step", "timestamp", "lfu", "customized", "no_eviction"]
# So many that two buckets of 128 can not hold them.
CROWD = np.array(keys_of_bucket(0, 2, 200) + keys_of_bucket(1, 2, 200), np.int64)
BATCH = 64


def tables(strategy: str, **options) -> jde.Tables:
    config = dataclasses.replace(CONFIG, score_strategy=strategy, on_full=None)
    return jde.Tables([dataclasses.replace(config, **options)])


def step(coll: jde.Tables, state, seed: int):
    """A lookup and its update."""
    rng, jit = np.random.default_rng(seed), compiled(coll)
    ids = {"t": jde.ids(rng.choice(CROWD, BATCH))}
    customized = coll.tables["t"].score_strategy is jde.ScoreStrategy.CUSTOMIZED
    scores = {"t": jnp.uint32(rng.integers(0, 5))} if customized else None
    rows, residual, state = jit.lookup(state, ids, None, scores)
    d_rows = {"t": jnp.asarray(gradients(rows["t"].shape, seed))}
    return jit.apply_gradients(state, residual, d_rows, None)


def erase(coll: jde.Tables, state, seed: int):
    ids = np.random.default_rng(seed).choice(CROWD, BATCH)
    return compiled(coll).erase(state, {"t": jde.ids(ids)})


def insert(coll: jde.Tables, state, seed: int):
    rng = np.random.default_rng(seed)
    rows = jnp.asarray(gradients((BATCH, 3), seed))
    ids = {"t": jde.ids(rng.choice(CROWD, BATCH))}
    return compiled(coll).insert(state, ids, {"t": rows}, None, None)


def erase_all(coll: jde.Tables, state, seed: int):
    """Everything leaves, but the clock goes on."""
    keys = np.array(list(export(coll, state, "t")), np.int64)
    padded = np.full(-(-len(keys) // BATCH) * BATCH, -1)
    padded[: len(keys)] = keys
    for start in range(0, len(padded), BATCH):
        ids = {"t": jde.ids(padded[start : start + BATCH])}
        state = compiled(coll).erase(state, ids)
    return state


EVENTS = {"step": step, "erase": erase, "insert": insert, "erase_all": erase_all}


def brought_up_to_date(coll, state, replica_coll, replica, since):
    keys = np.array(list(export(replica_coll, replica, "t")), np.int64)
    delta = list(coll.export(state, "t", since=since, known_keys=keys))
    return replica_coll.apply_delta(replica, "t", delta), delta


events = st.lists(st.tuples(st.sampled_from(sorted(EVENTS)), st.integers(0, 99)))


@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(max_examples=8)
@given(rounds=st.lists(events, min_size=1, max_size=4))
def test_a_replica_follows_whatever_happens(strategy, rounds):
    coll = tables(strategy)
    state, replica, since = coll.init(1), coll.init(2), 0
    for happened in rounds:
        for name, seed in happened:
            state = EVENTS[name](coll, state, seed)
        replica, _ = brought_up_to_date(coll, state, coll, replica, since)
        since = coll.get_score(state)["t"]
        assert_same_rows(export(coll, replica, "t"), export(coll, state, "t"))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_only_what_changed_is_sent(strategy):
    coll = tables(strategy, capacity=4096)
    jit = compiled(coll)
    scores = {"t": jnp.uint32(3)} if strategy == "customized" else None
    _, _, state = jit.lookup(coll.init(0), {"t": jde.ids(CROWD)}, None, scores)
    mark = coll.get_score(state)["t"]
    assert list(coll.export(state, "t", since=mark)) == []
    touched = np.resize(CROWD[:7], len(CROWD))
    _, _, state = jit.lookup(state, {"t": jde.ids(touched)}, None, scores)
    gone = np.resize(CROWD[50:53], BATCH)
    state = compiled(coll).erase(state, {"t": jde.ids(gone)})
    first, *chunks = coll.export(state, "t", since=mark, known_keys=CROWD)
    assert first.removed is not None and len(first.keys) == 0
    assert set(first.removed.tolist()) == set(gone.tolist())
    assert {k for c in chunks for k in c.keys.tolist()} == set(touched.tolist())
    assert all(chunk.removed is None for chunk in chunks)


def test_a_replica_of_another_capacity():
    coll, larger = tables("step"), tables("step", capacity=1024)
    state, replica, since = coll.init(0), larger.init(0), 0
    for seed in range(6):
        state = step(coll, state, seed)
        replica, _ = brought_up_to_date(coll, state, larger, replica, since)
        since = coll.get_score(state)["t"]
        assert_same_rows(export(larger, replica, "t"), export(coll, state, "t"))


def test_keys_of_32_bits():
    config = dataclasses.replace(CONFIG, key_dtype="int32")
    coll = jde.Tables([config])
    ids = np.array([5, -7, 2**31 - 1], np.int32), np.array([2**31 + 5], np.uint32)
    state = coll.init(0)
    for each in ids:
        _, _, state = coll.lookup(state, {"t": jnp.asarray(each)})
    replica = coll.apply_delta(coll.init(1), "t", coll.export(state, "t"))
    assert_same_rows(export(coll, replica, "t"), export(coll, state, "t"))
    assert set(export(coll, replica, "t")) == {5, -7, 2**31 - 1, 2**31 + 5}
    known = np.array([5, -7, 2**31 + 5, 99])
    state = coll.erase(state, {"t": jnp.asarray(ids[1])})
    state = coll.erase(state, {"t": jnp.asarray(ids[0][1:2])})
    (first,) = coll.export(state, "t", since=10**6, known_keys=known)
    assert first.removed.tolist() == [-7, 99, 2**31 + 5]
    replica = coll.apply_delta(replica, "t", [first])
    assert set(export(coll, replica, "t")) == {5, 2**31 - 1}


def test_packed_clocks_wrap():
    """Scores keep 32 bits of the clock; the threshold is right across the wrap."""
    coll = tables("lfu")
    state = coll.init(0)
    counters = np.array(state["t"].counters)
    counters[:, 0] = [
        0xFFFF_FFFE,
        7,
    ]  # the clock: two lookups before its low word wraps
    table = dataclasses.replace(state["t"], counters=jnp.asarray(counters))
    state, seen = {"t": table}, {}
    for key in range(5):
        seen[key] = coll.get_score(state)["t"]
        _, _, state = coll.lookup(state, {"t": jde.ids(np.array([key]))})
    for key, mark in seen.items():
        keys = {k for c in coll.export(state, "t", since=mark) for k in c.keys.tolist()}
        assert keys == set(range(key, 5))


def test_scores_of_the_next_lookup():
    coll = tables("step")
    state = coll.init(0)
    assert coll.get_score(state) == {"t": 1}
    state = coll.set_score(state, {"t": 1000})
    assert coll.get_score(state) == {"t": 1000}
    _, _, state = coll.lookup(state, {"t": jde.ids(np.array([1]))})
    assert {r.score for r in export(coll, state, "t").values()} == {1000}
    assert coll.get_score(state) == {"t": 1001}
    with pytest.raises(
        ValueError, match=r"score 1000 is not in \[1001, 2\*\*62 - 2\*\*32\)"
    ):
        coll.set_score(state, {"t": 1000})
    for strategy in ("timestamp", "lfu", "customized"):
        other = tables(strategy)
        with pytest.raises(ValueError, match=f"'{strategy}', whose clock is not a ste"):
            other.set_score(other.init(0), {"t": 5})
    with pytest.raises(ValueError, match="Table 'u' is not known"):
        coll.set_score(state, {"u": 5})
