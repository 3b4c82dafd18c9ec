# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Counts of uses that decay: LFU tables with a half-life."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jax_dynemb as jde
from jax_dynemb import checkpoint
from keys import keys_of_bucket
from meshes import mesh_of
from support import Twins, export

CONFIG = jde.TableConfig("t", 4, 256, score_strategy="lfu", lfu_halflife=5)


def scores_of(twins: Twins) -> dict[int, int]:
    return {k: row.score for k, row in export(twins.coll, twins.state, "t").items()}


def counts_of(coll, state) -> dict[int, float]:
    rows = export(coll, state, "t")
    scores = np.array([row.score for row in rows.values()], np.uint64)
    return dict(zip(rows, coll.use_counts(state, "t", scores), strict=True))


def skewed(rng, n: int = 200) -> np.ndarray:
    return rng.zipf(1.3, n) % 900


@pytest.mark.parametrize("halflife", [1, 7, 2**31 - 1])
def test_a_stream_equals_the_reference(platform, halflife):
    twins = Twins(dataclasses.replace(CONFIG, lfu_halflife=halflife))
    rng = np.random.default_rng(halflife)
    for step in range(12):
        twins.lookup({"t": skewed(rng)})
        if step % 4 == 3:
            twins.check()
            assert scores_of(twins) == {
                key: row.score for key, row in twins.oracle.export("t").items()
            }


@given(st.lists(st.integers(0, 4), min_size=1, max_size=40))
def test_counts_are_sums_of_halved_uses(uses):
    """A use weighs 2 ** (-age / half-life), in closed form."""
    coll, state, half = _lookups(), _lookups().init(0), CONFIG.lfu_halflife
    for count in uses:
        ids = np.where(np.arange(4) < count, 7, -1)
        state = _step(state, jde.ids(ids))
    ages = np.arange(len(uses))[::-1]
    exact = float(np.sum(np.array(uses) * 2.0 ** (-ages / half)))
    assert counts_of(coll, state).get(7, 0.0) == pytest.approx(
        exact, rel=0.01, abs=0.05
    )


def _lookups() -> jde.Tables:
    return jde.Tables([CONFIG])


@jax.jit
def _step(state, ids):
    return _lookups().lookup(state, {"t": ids})[2]


def test_newcomers_compete_with_decayed_counts(platform):
    twins = Twins(dataclasses.replace(CONFIG, on_full="compete"))
    rng = np.random.default_rng(5)
    for _ in range(12):
        twins.lookup({"t": skewed(rng)})
    twins.check()


def test_yesterdays_favourite_leaves(platform):
    keys = keys_of_bucket(0, 2, 140)
    for halflife, stays in [(None, True), (3, False)]:
        twins = Twins(dataclasses.replace(CONFIG, lfu_halflife=halflife))
        twins.lookup({"t": [keys[0]] * 9 + [-1] * 118})  # then never again
        for _ in range(18):
            twins.lookup({"t": [-1] * 127})
        for _ in range(2):
            twins.lookup({"t": keys[1:128]})
        twins.lookup({"t": keys[128:129] + [-1] * 126})
        assert (keys[0] in scores_of(twins)) == stays
        twins.check()


def test_the_order_is_that_of_exact_decay():
    """No row that clearly weighs more than another one leaves before it."""
    rng, half = np.random.default_rng(3), 40
    coll = jde.Tables([dataclasses.replace(CONFIG, capacity=1024, lfu_halflife=half)])
    state, exact = coll.init(0), np.zeros(300)
    lookup = jax.jit(lambda state, ids: coll.lookup(state, {"t": ids})[2])
    for _ in range(200):
        ids = rng.zipf(1.2, 50) % 300
        state = lookup(state, jde.ids(ids))
        exact = exact * 2 ** (-1 / half) + np.bincount(ids, minlength=300)
    found = counts_of(coll, state)
    keys = sorted(found)
    ours, truth = np.array([found[k] for k in keys]), exact[keys]
    np.testing.assert_allclose(ours, truth, rtol=0.01, atol=0.06)


def test_rules_read_the_decayed_count(platform):
    twins, rng = Twins(CONFIG), np.random.default_rng(1)
    for _ in range(15):
        twins.lookup({"t": skewed(rng)})
    for rule in (
        {"count_below": 2},
        {"keep_at_most": 60},
        {"count_below": 5, "keep_at_least": 30},
    ):
        twins.erase_where({"t": rule})
        twins.check()
    stats = twins.coll.bucket_stats(twins.state)["t"]
    counts = [int(x) for x in counts_of(twins.coll, twins.state).values()]
    bins = np.bincount([x.bit_length() for x in counts], minlength=65)
    np.testing.assert_array_equal(stats.counts, bins)


def test_many_uses_of_one_id_end_at_the_limit(platform):
    """A million in a lookup, from a count below the limit and from it."""
    twins = Twins(dataclasses.replace(CONFIG, lfu_halflife=2**31 - 1))
    high = np.array([2**29 - 256 * 600_000, 2**29], np.uint64) << np.uint64(32)
    twins.insert({"t": [5, 6]}, {"t": np.zeros((2, 4), "f")}, scores={"t": high})
    state = _busy(twins.coll, twins.state)
    assert {k: s >> 32 for k, s in _scores(twins.coll, state).items()} == {
        5: 2**29,
        6: 2**29,
        7: 256 * 2**19,
    }


@functools.partial(jax.jit, static_argnums=0)
def _busy(coll, state):
    ids = jnp.repeat(jnp.array([5, 6, 7, 5], jnp.uint32), 2**19)
    words = jnp.stack([ids, jnp.zeros_like(ids)], axis=1)
    return coll.lookup(state, {"t": words})[2]


def _scores(coll, state):
    (chunk,) = coll.export(state, "t")
    return dict(zip(chunk.keys.tolist(), chunk.scores.tolist(), strict=True))


def test_growth_keeps_counts():
    twins, rng = Twins(CONFIG), np.random.default_rng(2)
    for _ in range(3):
        twins.lookup({"t": skewed(rng)})
    before = scores_of(twins)
    larger, state = twins.coll.grow(twins.state, {"t": 1024})
    rows = export(larger, state, "t")
    assert {k: row.score for k, row in rows.items()} == before


def test_a_smaller_table_keeps_what_weighs_most(tmp_path):
    small = jde.Tables([CONFIG])
    old, new = keys_of_bucket(0, 2, 128), keys_of_bucket(0, 2, 128, start=10**6)
    large = jde.Tables([dataclasses.replace(CONFIG, capacity=1024)])
    state = large.init(0)
    for ids in [old * 6] + [new] * 30:  # six half-lives
        state = large.lookup(state, {"t": jde.ids(np.array(ids))})[2]
    before = {k: row.score for k, row in export(large, state, "t").items()}
    checkpoint.save(tmp_path, 1, state, tables=large, wait=True)
    with pytest.warns(UserWarning, match="128 of 256 rows found no place"):
        restored = checkpoint.restore(
            tmp_path, small.init(0), tables=small, allow_drop=True
        ).tree
    after = {k: row.score for k, row in export(small, restored, "t").items()}
    assert after == {key: before[key] for key in new}
    other = jde.Tables([dataclasses.replace(CONFIG, lfu_halflife=6)])
    with pytest.raises(ValueError, match="lfu_halflife=5, but this model has"):
        checkpoint.restore(tmp_path, other.init(0), tables=other, allow_drop=True)


def test_eight_devices_count_as_one():
    config = dataclasses.replace(CONFIG, capacity=1024, feature_names=("a", "b"))
    twins, rng = Twins(config, mesh=mesh_of(8)), np.random.default_rng(4)
    for _ in range(6):
        counts = {"a": rng.integers(0, 4, 64).astype(np.uint32)}
        twins.lookup({"a": skewed(rng, 64), "b": skewed(rng, 64)}, counts=counts)
    twins.check()
    assert scores_of(twins) == {
        key: row.score for key, row in twins.oracle.export("t").items()
    }


def test_what_is_refused():
    coll = jde.Tables([CONFIG])
    state = coll.init(0)
    with pytest.raises(ValueError, match="decay by themselves, by half in 5 lookups"):
        coll.decay(state, {"t": 0.5})
    with pytest.raises(ValueError, match="Leave min_score out"):
        coll.export(state, "t", min_score=1)
    with pytest.raises(ValueError, match="set score_strategy='lfu'"):
        jde.TableConfig("t", 4, 256, lfu_halflife=5)
    with pytest.raises(ValueError, match=r"1 to 2\*\*31 - 1 lookups, not 0"):
        dataclasses.replace(CONFIG, lfu_halflife=0)
    step = jde.Tables([jde.TableConfig("t", 4, 256)])
    with pytest.raises(ValueError, match="counts no uses"):
        step.use_counts(step.init(0), "t", jnp.zeros(1, jnp.uint32))
