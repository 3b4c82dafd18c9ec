# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Counts and scores of single ids, and the time that a lookup brings."""

import dataclasses
import time

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import jax_dynemb as jde
from jax_dynemb.admission import Frequency, Sketch
from meshes import mesh_of
from support import HostJagged, Twins, export

FEATURES = ("a", "b")
LFU = jde.TableConfig("t", 4, 256, FEATURES, score_strategy="lfu")
CUSTOMIZED = jde.TableConfig("t", 4, 256, FEATURES, score_strategy="customized")
ADMITTED = jde.TableConfig(
    "t", 4, 256, FEATURES, admission=Frequency(5, Sketch(bytes=1 << 14))
)
TIMED = jde.TableConfig("t", 4, 256, score_strategy="timestamp")


def wider(config: jde.TableConfig) -> jde.TableConfig:
    """A table that eight devices can share."""
    return dataclasses.replace(config, capacity=1024)


def check(twins: Twins) -> None:
    """Rows, counters and scores are those of the reference."""
    twins.check()
    rows = export(twins.coll, twins.state, "t")
    expected = twins.oracle.export("t")
    assert {k: r.score for k, r in rows.items()} == {
        k: r.score for k, r in expected.items()
    }


def batch(rng, n: int = 64) -> dict[str, np.ndarray]:
    return {f: np.where(rng.random(n) < 0.1, -1, rng.zipf(1.2, n) % 700) for f in "ab"}


def numbers(rng, most: int, n: int = 64) -> np.ndarray:
    return rng.integers(0, most, n).astype(np.uint32)


@pytest.mark.parametrize("config", [LFU, ADMITTED], ids=["lfu", "admission"])
def test_counts(platform, config):
    twins, rng = Twins(config), np.random.default_rng(0)
    for _ in range(8):
        twins.lookup(batch(rng), counts={"a": numbers(rng, 4), "b": numbers(rng, 3)})
    check(twins)


def test_scores_of_ids(platform):
    twins, rng = Twins(CUSTOMIZED), np.random.default_rng(1)
    for _ in range(8):
        scores = {"t": jnp.uint32(7), "b": numbers(rng, 50)}
        twins.lookup(batch(rng), scores=scores)
    check(twins)


def test_the_highest_score_of_a_batch_counts(platform):
    twins = Twins(CUSTOMIZED)
    ids, scores = np.array([5, 6, 5, 5]), np.array([3, 1, 9, 4], np.uint32)
    for order in ([0, 1, 2, 3], [2, 3, 1, 0]):
        given = {"a": scores[order], "b": np.array([8], np.uint32)}
        twins.lookup({"a": ids[order], "b": np.array([6])}, scores=given)
        rows = export(twins.coll, twins.state, "t")
        assert {k: row.score for k, row in rows.items()} == {5: 9, 6: 8}


@given(hnp.arrays(np.uint32, 12, elements=st.integers(0, 2**30 - 1)))
def test_counts_saturate(counts):
    twins = Twins(LFU)
    for _ in range(2):
        twins.lookup({"a": np.arange(12) % 4, "b": [-1]}, counts={"a": counts})
    check(twins)


def test_jagged_ids(platform):
    twins, rng = Twins(LFU), np.random.default_rng(2)
    ids = {"a": HostJagged.of([[1, 2], [], [2, 3, 2]], 8), "b": np.array([2])}
    twins.lookup(ids, counts={"a": numbers(rng, 9, 8)})
    check(twins)


def test_find_touches_with_numbers():
    coll = jde.Tables([CUSTOMIZED])
    ids, low = {"a": jde.ids([1, 2])}, {"t": 1}
    state = coll.lookup(coll.init(0), ids, scores=low)[2]
    high = {"a": np.array([4, 6])}
    state = coll.find(state, ids, touch=True, scores=high)[2]
    rows = export(coll, state, "t")
    assert {k: row.score for k, row in rows.items()} == {1: 4, 2: 6}


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0.5, 8.0])  # several rounds, or one
def test_eight_devices_do_what_one_does(factor):
    rng = np.random.default_rng(3)
    for config in (LFU, CUSTOMIZED, ADMITTED):
        twins = Twins(wider(config), mesh=mesh_of(8), exchange_factor=factor)
        for _ in range(3):
            given = {"a": numbers(rng, 9)}
            name = "scores" if config is CUSTOMIZED else "counts"
            twins.lookup(batch(rng), **{name: given})
        check(twins)


@pytest.mark.parametrize("sharding", ["replicated", "column_wise"])
def test_devices_with_all_keys(sharding):
    rng = np.random.default_rng(4)
    config = jde.TableConfig(
        "t", 32, 256, FEATURES, score_strategy="customized", sharding=sharding
    )
    twins = Twins(config, mesh=mesh_of(8))
    for _ in range(2):
        scores = {"t": jnp.uint32(3), "a": numbers(rng, 9)}
        twins.lookup(batch(rng), scores=scores)
    check(twins)


def test_one_time_for_all(platform):
    twins, rng = Twins(TIMED), np.random.default_rng(5)
    start = 10**18
    for now in (start, start + 5, start + 3, start + 10**9):  # never backwards
        twins.lookup({"t": batch(rng)["a"]}, now=now)
    check(twins)
    assert twins.coll.get_score(twins.state)["t"] == start + 10**9 + 1


def test_one_time_on_a_mesh():
    twins, rng = Twins(wider(TIMED), mesh=mesh_of(8)), np.random.default_rng(6)
    for now in (10**18, 10**18 + 5):
        twins.lookup({"t": batch(rng)["a"]}, now=now)
    check(twins)


def test_a_time_of_events():
    low, high = jde.now(seconds=1_700_000_000.5).tolist()
    assert (high << 32) + low == 1_700_000_000_500_000_000
    assert jde.now(0).tolist() == [0, 0]
    for seconds in (-1, float("nan"), 1e10, 1_700_000_000_000):
        with pytest.raises(ValueError, match="a time since 1970"):
            jde.now(seconds)


def test_now_is_the_time_of_the_host():
    low, high = jde.now().tolist()
    assert abs((high << 32 | low) - time.time_ns()) < 10**10


def lookup(config, **numbers):
    coll = jde.Tables([config])
    name = config.feature_names[0]
    return coll.lookup(coll.init(0), {name: jde.ids([1, 2])}, **numbers)


@pytest.mark.parametrize(
    "config, numbers, error, fix",
    [
        (CUSTOMIZED, {"counts": {"a": [1, 1]}}, ValueError, "counts no uses"),
        (LFU, {"scores": {"a": [1, 1]}}, ValueError, "keeps its own scores"),
        (LFU, {"counts": {"a": [1, 1, 1]}}, ValueError, "one number for each id"),
        (LFU, {"counts": {"b": [1, 1]}}, ValueError, "no ids for it"),
        (LFU, {"counts": {"a": [1, -1]}}, ValueError, "from 0 to"),
        (LFU, {"counts": {"a": [1.0, 2.0]}}, TypeError, "must be integers"),
        (CUSTOMIZED, {"scores": {"a": [1, 2**62]}}, ValueError, r"2\*\*62 - 1"),
        (TIMED, {"now": 10**18}, TypeError, r"pass jde.now\(\) to the jitted"),
    ],
)
def test_mistakes(config, numbers, error, fix):
    with pytest.raises(error, match=fix):
        lookup(config, **numbers)


def test_a_batch_that_was_sent_ahead_has_no_numbers():
    coll = jde.Tables([wider(LFU)], mesh=mesh_of(8))
    routed = coll.route({"a": jde.ids(np.arange(8))})
    with pytest.raises(ValueError, match="Look up the ids themselves"):
        coll.lookup(coll.init(0), routed, counts={"a": np.ones(8, np.int32)})
