# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Which unseen ids get a row: rules, flags of a lookup, frozen vocabularies."""

import collections

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jax_dynemb as jde
from jax_dynemb.admission import Frequency, Probability, Sketch
from keys import keys_of_bucket
from support import Twins, export, gradients, stat, stored, zipf

DIM = 4
LARGE = Sketch(bytes=1 << 18)
POLICIES = ["step", "lfu", "customized", "no_eviction"]


def config(**options) -> jde.TableConfig:
    options = {"capacity": 1024, "optimizer": jde.optim.sgd(0.5)} | options
    return jde.TableConfig(name="t", dim=DIM, **options)


# ---- hits and misses -----------------------------------------------------------------


def test_hits_and_misses_are_all_ids_but_padding(platform):
    twins = Twins(config())
    twins.lookup({"t": [5, 5, 6, -1]})
    assert (stat(twins, "t/hits"), stat(twins, "t/misses")) == (0, 3)
    twins.lookup({"t": [5, 6, 6, 7, -1, -1]})
    assert (stat(twins, "t/hits"), stat(twins, "t/misses")) == (3, 4)
    twins.check()


def test_reserved_ids_are_refused_and_no_miss(platform):
    coll = jde.Tables([config()])
    ids = np.array([[1, 0], [0xFFFFFFFE, 0xFFFFFFFF]], np.uint32)  # 1 and -2
    _, _, state = jax.jit(coll.lookup)(coll.init(0), {"t": ids})
    stats = coll.stats(state)
    assert (stats["t/misses"], stats["t/hits"], stats["t/refused"]) == (1, 0, 1)


@pytest.mark.parametrize("pooling", [None, "sum", "mean"])
def test_counters_of_pooled_features(platform, pooling):
    twins = Twins(config(pooling=pooling, feature_names=("a", "b")))
    for seed in range(4):
        ids = {"a": zipf(seed, 120).reshape(30, 4), "b": zipf(seed + 50, 64)}
        twins.lookup(ids)
    twins.check()
    ids_in_all = 4 * (120 + 64)
    padding = sum(
        (zipf(s, 120) == -1).sum() + (zipf(s + 50, 64) == -1).sum() for s in range(4)
    )
    assert stat(twins, "t/hits") + stat(twins, "t/misses") == ids_in_all - padding


def test_maintenance_and_serving_count_nothing(platform):
    twins = Twins(config())
    twins.insert({"t": [1, 2, 3]}, {"t": np.ones((3, DIM))})
    twins.find({"t": [1, 2, 9]})
    assert (stat(twins, "t/hits"), stat(twins, "t/misses")) == (0, 0)


# ---- flags of a lookup ---------------------------------------------------------------


def test_insert_false_trains_known_rows_only(platform):
    twins = Twins(config())
    twins.train({"t": [1, 2, 3]}, seed=0)
    rows, residuals = twins.lookup({"t": [2, 50, 3, 50]}, insert=False)
    twins.apply(residuals, {"t": gradients(rows["t"].shape, 1)})
    assert stored(twins) == {1, 2, 3}
    assert stat(twins, "t/not_admitted") == 2 and stat(twins, "t/refused") == 0
    twins.check()
    later, _ = twins.lookup({"t": [50]})
    np.testing.assert_array_equal(rows["t"][1], later["t"][0])


def test_a_frozen_vocabulary_is_filled_by_insert(platform):
    twins = Twins(config(insert=False))
    twins.insert({"t": [1, 2]}, {"t": np.ones((2, DIM))})
    twins.train({"t": [1, 7, 2, -1]}, seed=3)
    assert stored(twins) == {1, 2}
    twins.check()


@pytest.mark.parametrize("policy", ["step", "lfu", "customized"])
def test_touch_false_keeps_scores(platform, policy):
    twins = Twins(config(score_strategy=policy, capacity=256))
    scores = {"t": np.uint32(7)} if policy == "customized" else None
    keys = keys_of_bucket(0, 2, 140)
    twins.lookup({"t": keys[:128]}, scores=scores)
    before = {k: row.score for k, row in export(twins.coll, twins.state, "t").items()}
    # The bucket is full: unprotected rows stay, newcomers are refused.
    twins.lookup({"t": keys[100:]}, scores=scores, touch=False)
    after = {k: row.score for k, row in export(twins.coll, twins.state, "t").items()}
    assert before == after and stat(twins, "t/refused") == 12
    twins.check()


def test_find_with_touch_keeps_a_row_in_its_table(platform):
    coll = jde.Tables([config(capacity=256)])
    keys = keys_of_bucket(0, 2, 129)
    lookup = jax.jit(coll.lookup, donate_argnums=0)
    _, _, state = lookup(coll.init(0), {"t": jde.ids(keys[:1])})
    _, _, state = lookup(state, {"t": jde.ids(keys[1:128])})
    before = coll.stats(state)
    rows, found, state = jax.jit(
        lambda s, i: coll.find(s, i, touch=True), donate_argnums=0
    )(state, {"t": jde.ids([keys[0], keys[128]])})
    assert found["t"].tolist() == [True, False] and not rows["t"][1].any()
    assert coll.stats(state) == before
    _, _, state = lookup(state, {"t": jde.ids(keys[128:])})
    left = set(export(coll, state, "t"))
    assert keys[0] in left and len(left) == 128


def test_flags_are_static():
    coll = jde.Tables([config()])
    with pytest.raises(TypeError, match="touch must be True or False"):
        coll.lookup(coll.init(0), {"t": jde.ids([1])}, touch=np.bool_(True))
    with pytest.raises(ValueError, match="add touch=True"):
        coll.find(coll.init(0), {"t": jde.ids([1])}, scores={"t": 3})


# ---- probability ---------------------------------------------------------------------


def test_a_coin_is_thrown_once_a_lookup(platform):
    twins = Twins(config(admission=Probability(0.5)))
    ids = np.arange(300)
    rows, (residual, _) = twins.lookup({"t": np.concatenate([ids, ids, ids])})
    slots = np.asarray(residual.features["t"].slots).reshape(3, -1)
    np.testing.assert_array_equal(slots[0], slots[1])
    np.testing.assert_array_equal(slots[0], slots[2])
    assert 100 < stat(twins, "t/rows") < 200
    assert set(slots[0][slots[0] < 0].tolist()) == {-3}
    twins.check()


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_certain_coins(platform, p):
    twins = Twins(config(admission=Probability(p)))
    twins.train({"t": np.arange(100)}, seed=0)
    assert stat(twins, "t/rows") == 100 * p
    twins.check()


def test_the_chance_grows_with_the_lookups(platform):
    twins = Twins(config(admission=Probability(0.25), capacity=8192), seed=3)
    ids = np.arange(3000)
    for lookups in range(1, 5):
        twins.lookup({"t": ids})
        expected = 3000 * (1 - 0.75**lookups)
        assert abs(stat(twins, "t/rows") - expected) < 5 * np.sqrt(3000 / 4)


# ---- frequency -----------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
def test_frequency_against_the_oracle(platform, policy):
    rule = Frequency(4, Sketch(bytes=1 << 11))
    twins = Twins(config(admission=rule, score_strategy=policy, capacity=256))
    for seed in range(8):
        scores = {"t": np.uint32(seed)} if policy == "customized" else None
        rows, residuals = twins.lookup({"t": zipf(seed, 300, 600)}, scores=scores)
        twins.apply(residuals, {"t": gradients(rows["t"].shape, seed)})
    twins.check()
    assert stat(twins, "t/not_admitted") > 0


@pytest.mark.parametrize("threshold", [0, 1, 2, 5, 300])
def test_a_large_sketch_counts_exactly(platform, threshold):
    twins = Twins(config(admission=Frequency(threshold, LARGE)))
    counts: collections.Counter[int] = collections.Counter()
    wanted: set[int] = set()
    for seed in range(6):
        ids = zipf(seed, 200)
        counts.update(int(k) for k in ids if k != -1 and k not in wanted)
        wanted |= {k for k, n in counts.items() if n >= threshold}
        twins.train({"t": ids}, seed=seed)
        assert stored(twins) == wanted
    twins.check()


@given(st.lists(st.lists(st.integers(0, 60), max_size=20), min_size=1, max_size=6))
def test_no_key_is_admitted_late(batches):
    """A sketch of 16 counters a row and bucket: nearly all keys collide."""
    twins = Twins(config(admission=Frequency(3, Sketch(bytes=1)), capacity=256))
    counts: collections.Counter[int] = collections.Counter()
    for batch in batches:
        ids = np.array([*batch, *[-1] * (20 - len(batch))])
        counts.update(batch)
        twins.lookup({"t": ids})
        assert {k for k, n in counts.items() if n >= 3} <= stored(twins)
    twins.check()


def test_duplicates_in_one_batch_reach_the_threshold(platform):
    twins = Twins(config(admission=Frequency(3, LARGE), feature_names=("a", "b")))
    twins.train({"a": [1, 2, 2, 3, 3, 3], "b": [1, 1, 2, 4]}, seed=0)
    assert stored(twins) == {1, 2, 3}
    assert stat(twins, "t/not_admitted") == 1
    twins.check()


@pytest.mark.parametrize("pooling", ["sum", "mean"])
def test_pooled_features(platform, pooling):
    twins = Twins(config(admission=Frequency(3, LARGE), pooling=pooling))
    for seed in range(4):
        ids = zipf(seed, 4 * 40).reshape(40, 4)
        twins.train({"t": ids}, seed=seed)
    twins.check()


def test_an_admitted_row_is_the_one_read_before(platform):
    rule = Frequency(2, LARGE)
    twins = Twins(config(admission=rule, initializer=jde.initializers.normal(0.1)))
    before, residuals = twins.lookup({"t": [11, 12]})
    twins.apply(residuals, {"t": gradients(before["t"].shape, 0)})  # no gradient
    after, _ = twins.lookup({"t": [11, 12]})
    np.testing.assert_array_equal(before["t"], after["t"])
    assert stored(twins) == {11, 12}


def test_serving_never_counts(platform):
    twins = Twins(config(admission=Frequency(2, LARGE)))
    twins.lookup({"t": [1, 2]})
    for _ in range(3):
        twins.find({"t": [1, 2]})
        twins.lookup({"t": [1, 2]}, insert=False)
    assert stored(twins) == set()
    twins.lookup({"t": [1]})
    assert stored(twins) == {1}
    twins.check()


def test_an_evicted_key_comes_back_at_once(platform):
    twins = Twins(config(admission=Frequency(2, LARGE), capacity=256))
    keys = keys_of_bucket(0, 2, 129)
    twins.lookup({"t": keys[:1] * 2})
    twins.lookup({"t": keys[1:] * 2})  # 128 newcomers: the first row leaves
    assert stored(twins) == set(keys[1:])
    twins.lookup({"t": keys[:1]})
    assert keys[0] in stored(twins)
    twins.check()


@pytest.mark.parametrize("threshold", [4, 250])
def test_halving(platform, threshold):
    rule = Frequency(threshold, LARGE, halve_every=3)
    twins = Twins(config(admission=rule))
    half = threshold // 2
    for ids in ([1] * half, [2], [2], [1] * half, [1] * half):
        twins.lookup({"t": [*ids, *[-1] * (130 - len(ids))]})
    # half, half, half / 2, half / 2 + half, and then it is enough
    assert stored(twins) == {1}
    twins.check()


def test_insert_needs_no_admission(platform):
    twins = Twins(config(admission=Frequency(9, LARGE)))
    twins.insert({"t": [1, 2]}, {"t": np.ones((2, DIM))})
    assert stored(twins) == {1, 2}
    twins.lookup({"t": [1, 2, 3]})
    twins.check()


def test_a_secret_hash(platform):
    twins = Twins(config(admission=Frequency(3, Sketch(256)), hash_seed=2**63 + 5))
    for seed in range(4):
        twins.train({"t": zipf(seed, 100)}, seed=seed)
    twins.check()


def test_mixed_with_tables_that_admit_all(platform):
    """One call: kernels of lookups that select serve both kinds of tables."""
    twins = Twins(
        config(admission=Frequency(2, LARGE), feature_names=("a",)),
        jde.TableConfig("u", dim=DIM, capacity=256, pooling="sum"),
        jde.TableConfig("v", dim=DIM, capacity=256, admission=Probability(0.3)),
    )
    for seed in range(4):
        ids = {"a": zipf(seed, 90), "v": zipf(seed + 9, 200)}
        ids["u"] = zipf(seed + 5, 600, 5000).reshape(150, 4)
        twins.train(ids, seed=seed)
    twins.check()


def test_shared_arrays_have_one_sketch(platform):
    rules = [Frequency(2, Sketch(1024)), Frequency(300, Sketch(1024), halve_every=2)]
    tables = [
        jde.TableConfig(name, dim=DIM, capacity=256, admission=rule)
        for name, rule in zip("tu", rules, strict=True)
    ]
    twins = Twins(*tables, share_arrays=True)
    assert list(twins.state) == ["t+1"]
    assert twins.state["t+1"].sketch.shape[0] == 4
    for seed in range(5):
        twins.train({n: zipf(seed, 200, 30) for n in "tu"}, seed=seed)
    twins.check()
    twins.state, _ = twins.coll.clear(twins.state), twins.oracle.clear()
    twins.train({n: zipf(9, 200, 30) for n in "tu"}, seed=9)
    twins.check()


# ---- programs ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rule",
    [
        Probability(0.5),
        Frequency(2, Sketch(1 << 20)),
        # To halve it takes a copy of the sketch, here less than half a table.
        Frequency(2, Sketch(1 << 17), halve_every=5),
    ],
)
def test_a_step_is_in_place_and_compiled_once(platform, rule):
    coll = jde.Tables([config(admission=rule, capacity=1 << 15)])

    def step(state, ids):
        rows, residual, state = coll.lookup(state, {"t": ids})
        return coll.apply_gradients(state, residual, rows)

    jitted = jax.jit(step, donate_argnums=0)
    state = coll.init(0)
    jde.testing.assert_in_place(jitted, state, jde.ids(np.arange(64)))
    for seed in range(12):
        state = jitted(state, jde.ids(zipf(seed, 64)))
    assert jitted._cache_size() == 1


# ---- mistakes ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Probability(1.5), "chance from 0 to 1"),
        (lambda: Probability(True), "chance from 0 to 1"),
        (lambda: Frequency(-1, LARGE), "threshold from 0"),
        (lambda: Frequency(70_000, LARGE), "threshold from 0"),
        (lambda: Frequency(3, LARGE, halve_every=0), "halve_every"),
        (lambda: Sketch(0), "bytes above 0"),
        (lambda: config(admission=0.5), "Probability\\(0.1\\)"),
        (lambda: config(insert=1.5), "insert must be one of"),
    ],
)
def test_mistakes_name_the_fix(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


def test_a_counter_must_be_one():
    with pytest.raises(TypeError, match="Sketch\\(bytes"):
        Frequency(3, 1024)
