# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""erase_where removes rows by rule, as the oracle says, and counts them."""

import dataclasses
import datetime

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jax_dynemb as jde
from jax_dynemb._src import ffi as _ffi
from jax_dynemb.lifecycle import Rule
from jax_dynemb.testing import assert_in_place
from keys import keys_of_bucket
from meshes import mesh_of
from support import Twins, export, gradients, stat

STRATEGIES = ["step", "no_eviction", "lfu", "customized"]
FIELD_OF = {"lfu": "count_below", "customized": "score_below"}


def make(strategy: str = "step", **options) -> Twins:
    options = {"dim": 4, "capacity": 512, "score_strategy": strategy} | options
    return Twins(jde.TableConfig("t", **options))


def filled(strategy: str = "step", *, steps: int = 6, size: int = 120) -> Twins:
    """Rows of several ages, counts, scores and norms."""
    twins = make(strategy)
    for step in range(steps):
        scores = {"t": jnp.uint32(step % 4)} if strategy == "customized" else None
        ids = np.random.default_rng(step).zipf(1.2, size) % 600
        rows, residuals = twins.lookup({"t": ids}, scores=scores)
        twins.apply(residuals, {"t": gradients(rows["t"].shape, step)})
    return twins


def rules(strategy: str) -> st.SearchStrategy[dict]:
    """Rules with bounds among the values that rows have, so also equal ones."""
    fields = {
        "unused_for": st.integers(0, 7),
        "unused_since": st.integers(0, 8),
        "norm_below": st.floats(0, 1, width=32),
    }
    if strategy in FIELD_OF:
        fields[FIELD_OF[strategy]] = st.integers(0, 12)
    keeps = st.fixed_dictionaries(
        {"keep_at_least": st.sampled_from([0, 1, 50, 400, 2**32 - 1])},
        optional={"combine": st.sampled_from(["all", "any"])},
    )
    some = st.fixed_dictionaries({}, optional=fields).filter(bool)
    trims = st.builds(
        lambda rule, extra: rule | {"keep_at_most": rule["keep_at_least"] + extra},
        keeps.filter(lambda rule: rule["keep_at_least"] < 2**31),
        st.sampled_from([0, 1, 30, 300]),
    )
    return st.one_of(st.builds(dict.__or__, some, keeps | trims), trims)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_any_rule(platform, strategy):
    twins = filled(strategy)
    before = twins.oracle.tables["t"]
    rows = [dict(bucket) for bucket in before.buckets]

    @settings(max_examples=15, deadline=None)
    @given(fields=rules(strategy))
    def check(fields):
        state = jax.tree.map(jnp.array, twins.state)
        before.buckets = [dict(bucket) for bucket in rows]
        before.counts["removed_by_rule"] = 0
        twins.erase_where({"t": fields})
        twins.check()
        twins.state = state

    check()


@pytest.mark.parametrize("field, kept", [("unused_for", 2), ("unused_since", 4)])
def test_bounds_are_strict(platform, field, kept):
    twins = make()
    for key in range(1, 7):
        twins.lookup({"t": [key]})  # key n was used by lookup n of 6
    twins.erase_where({"t": {field: kept}})
    assert set(export(twins.coll, twins.state, "t")) == {4, 5, 6}
    twins.check()


def test_counts_at_the_bound_stay(platform):
    twins = make("lfu")
    twins.lookup({"t": [1] * 3 + [2] * 4 + [3] * 5})
    assert twins.erase_where({"t": {"count_below": 4}}) == {"t": 1}
    assert set(export(twins.coll, twins.state, "t")) == {2, 3}


def test_norms_at_the_bound_stay(platform):
    twins = make(param_dtype="bfloat16")
    rows = np.array([[3, 0, 4, 0], [2, 0, 4, 0], [0, 0, 0, 0], [0, 0, 0, np.nan]])
    twins = make(nonfinite="propagate")
    twins.insert({"t": np.arange(4)}, {"t": rows.astype(np.float32)})
    twins.erase_where({"t": {"norm_below": 5.0}})
    assert set(export(twins.coll, twins.state, "t")) == {0, 3}  # a NaN is not less


def test_an_empty_table_and_all_rows_gone(platform):
    twins = make()
    assert twins.erase_where({"t": {"unused_for": 0}}) == {"t": 0}
    assert twins.erase_where({"t": {"keep_at_most": 0}}) == {"t": 0}
    keys = keys_of_bucket(0, 4, 128) + keys_of_bucket(1, 4, 128)
    twins.lookup({"t": keys})
    assert twins.erase_where({"t": {"keep_at_most": 0}}) == {"t": 256}
    assert stat(twins, "t/rows") == 0
    twins.lookup({"t": keys})
    assert stat(twins, "t/evicted") == stat(twins, "t/refused") == 0
    assert twins.erase_where({"t": {"unused_since": 2**62}}) == {"t": 256}
    twins.check()


def test_equal_scores_leave_by_hash(platform):
    """A lookup gives all its rows one score, so the hash alone decides."""
    twins = make()
    twins.lookup({"t": np.arange(300)})
    for most in (299, 200, 17, 1):
        twins.erase_where({"t": {"keep_at_most": most}})
        assert stat(twins, "t/rows") == most
        twins.check()


@pytest.mark.parametrize("strategy", ["lfu", "customized"])
@pytest.mark.parametrize("ticks", [2, 8])
def test_ages_wrap_with_the_clock(platform, strategy, ticks):
    """A packed score has the low 32 bits of the clock."""
    twins = make(strategy)
    start = 2**32 - 5
    words = np.array([start & 0xFFFFFFFF, start >> 32], np.uint32)
    place = _ffi.code("counters", "clock")
    counters = twins.state["t"].counters.at[:, place].set(words)
    twins.state = {"t": dataclasses.replace(twins.state["t"], counters=counters)}
    twins.oracle.tables["t"].clock = start
    for key in range(ticks):
        scores = {"t": jnp.uint32(1)} if strategy == "customized" else None
        twins.lookup({"t": [key]}, scores=scores)
    twins.erase_where({"t": {"unused_for": 1}})
    assert stat(twins, "t/rows") == 2
    twins.erase_where({"t": {"unused_since": twins.oracle.tables["t"].clock}})
    assert set(export(twins.coll, twins.state, "t")) == {ticks - 1}
    twins.check()


def test_a_removed_id_starts_anew(platform):
    twins = make(optimizer=jde.optim.adam(0.5))
    first, residuals = twins.lookup({"t": [5, 6]})
    twins.apply(residuals, {"t": np.ones((2, 4))})
    twins.lookup({"t": [6]})
    twins.erase_where({"t": {"unused_for": 0}})
    rows, residuals = twins.lookup({"t": [5, 6]})
    np.testing.assert_array_equal(rows["t"][0], first["t"][0])
    twins.apply(residuals, {"t": np.ones((2, 4))})
    twins.check()


def test_an_update_of_a_removed_row_is_lost(platform):
    twins = make()
    _, residuals = twins.lookup({"t": [1, 2]})
    twins.lookup({"t": [2]})
    twins.erase_where({"t": {"unused_for": 0}})
    twins.apply(residuals, {"t": np.ones((2, 4))})
    assert stat(twins, "t/lost_updates") == 1
    twins.check()


def test_a_table_of_times(platform):
    coll = jde.Tables([jde.TableConfig("t", 2, 256, score_strategy="timestamp")])
    state = coll.init(0)
    for key in (1, 2, 3):
        _, _, state = coll.lookup(state, {"t": jde.ids([key])})
    used = {key: row.score for key, row in export(coll, state, "t").items()}
    gap = used[3] - used[1]
    for unused_for, left in [(gap, {1, 2, 3}), (gap - 1, {2, 3})]:
        rule = Rule(unused_for=unused_for)
        _, after = coll.erase_where(state, {"t": rule})
        assert set(export(coll, after, "t")) == left
    rule = Rule(unused_since=used[3])
    assert set(export(coll, coll.erase_where(state, {"t": rule})[1], "t")) == {3}
    day = Rule(unused_for=datetime.timedelta(days=1))
    assert int(coll.erase_where(state, {"t": day})[0]["t"]) == 0
    assert day.unused_for.tolist() == [864 * 10**11 % 2**32, 864 * 10**11 // 2**32]


def test_tables_that_share_arrays(platform):
    configs = [
        jde.TableConfig(name, 4, 512, hash_seed=i) for i, name in enumerate("abc")
    ]
    twins = Twins(*configs, share_arrays=True)
    for step in range(4):
        ids = {n: np.arange(step * 10, 60 + step * 10 + i) for i, n in enumerate("abc")}
        twins.train(ids, seed=step)
    removed = twins.erase_where({"b": {"unused_for": 1}, "c": {"keep_at_most": 7}})
    assert removed["b"] == 20 and stat(twins, "c/rows") == 7
    assert stat(twins, "a/removed_by_rule") == 0
    twins.erase_where({"a": {"norm_below": 0.05}, "b": {"norm_below": 0.05}})
    twins.check()


def test_other_numbers_compile_nothing(platform):
    coll = make().coll
    state = coll.init(0)
    _, _, state = coll.lookup(state, {"t": jde.ids(np.arange(100))})

    @jax.jit
    def trim(state, rule):
        return coll.erase_where(state, {"t": rule})

    for most in (50, 20):
        for bound in (2**40, 3):
            rule = Rule(unused_for=bound, norm_below=bound, keep_at_most=most)
            removed, _ = trim(state, rule)
            assert int(removed["t"]) == 100 - most
    assert trim._cache_size() == 1


@pytest.mark.parametrize("devices", [1, 2])
def test_calls_outside_of_jit_compile_once(compilations, devices):
    table = jde.TableConfig("t", 2, 256, score_strategy="lfu")
    mesh = None if devices == 1 else mesh_of(devices)
    coll = jde.Tables([table], mesh=mesh)
    state = coll.init(0)
    for number in (50, 20, 3):
        rules = {"t": Rule(norm_below=number, keep_at_most=number)}
        coll.erase_where(state, rules, dry_run=True)
        coll.erase_where(state, rules)
        coll.bucket_stats(state)
        coll.decay(state, {"t": 1 / number})
        assert bool(compilations) == (number == 50)
        compilations.clear()


def test_traced_numbers(platform):
    coll = make().coll
    state = coll.init(0)
    for key in range(5):
        _, _, state = coll.lookup(state, {"t": jde.ids([key])})

    @jax.jit
    def drop(state, age, least, mark):
        rules = [Rule(unused_for=age, keep_at_least=least), Rule(unused_since=mark)]
        return [coll.erase_where(state, {"t": rule})[0]["t"] for rule in rules]

    age = jnp.int32(1)
    mark = jnp.array([4, 0], jnp.uint32)
    assert [int(x) for x in drop(state, age, jnp.uint32(0), mark)] == [3, 3]
    assert [int(x) for x in drop(state, age, jnp.uint32(4), mark)] == [1, 3]
    assert [int(x) for x in drop(state, jnp.int32(-1), jnp.uint32(9), mark)] == [0, 3]


@pytest.mark.parametrize("fields", [{"unused_for": 3}, {"keep_at_most": 10}])
def test_tables_stay_in_place(platform, fields):
    coll = jde.Tables([jde.TableConfig("t", 32, 100_000)])
    step = jax.jit(coll.erase_where, donate_argnums=0)
    assert_in_place(step, coll.init(0), {"t": Rule(**fields)})


def test_decay(platform):
    twins = make("lfu")
    counts = {1: 1, 2: 2, 3: 3, 5: 5, 7: 7, 1000: 1000}
    ids = np.concatenate([[key] * n for key, n in counts.items()])
    twins.lookup({"t": ids})
    for factor in (0.5, 1.0, 0.99, 0.0):
        twins.state = twins.coll.decay(twins.state, {"t": factor})
        twins.oracle.tables["t"].decay(factor)
        twins.check()
    assert twins.erase_where({"t": {"count_below": 2}}) == {"t": 6}


def test_decay_halves_to_even_and_is_traced(platform):
    coll = make("lfu").coll
    state = coll.init(0)
    ids = np.concatenate([[n] * n for n in range(1, 10)])
    _, _, state = coll.lookup(state, {"t": jde.ids(ids)})
    state = jax.jit(lambda s, f: coll.decay(s, {"t": f}))(state, jnp.float32(0.5))
    counts = {k: row.score >> 32 for k, row in export(coll, state, "t").items()}
    assert counts == {1: 1, 2: 1, 3: 2, 4: 2, 5: 2, 6: 3, 7: 4, 8: 4, 9: 4}
    for hostile in (np.nan, np.inf, -3.0):
        decay = jax.jit(lambda s, f: coll.decay(s, {"t": f}))
        new = export(coll, decay(state, jnp.float32(hostile)), "t")
        assert all(1 <= row.score >> 32 < 2**31 for row in new.values())


def test_a_mixed_collection():
    train = jde.TTConfig("tt", 8, 1000, (4, 4))
    coll = jde.Tables([jde.TableConfig("t", 8, 256), train])
    state = coll.init(0)
    _, _, state = coll.lookup(state, {"t": jde.ids([1]), "tt": jde.ids([1])})
    removed, state = coll.erase_where(state, {"t": Rule(keep_at_most=0)})
    assert int(removed["t"]) == 1 and coll.stats(state)["t/rows"] == 0
    with pytest.raises(ValueError, match="erase_where: table 'tt' is a tensor train"):
        coll.erase_where(state, {"tt": Rule(keep_at_most=0)})
    with pytest.raises(ValueError, match="decay: table 'tt' is a tensor train"):
        coll.decay(state, {"tt": 0.5})


@pytest.mark.parametrize(
    "fields, error, message",
    [
        ({}, ValueError, "a Rule without a comparison removes nothing"),
        ({"keep_at_least": 5}, ValueError, "a Rule without a comparison"),
        ({"unused_for": -1}, ValueError, r"unused_for=-1 is not in \[0, 2\*\*64\)"),
        ({"count_below": 2**32}, ValueError, r"not in \[0, 2\*\*32\)"),
        ({"unused_for": 1.5}, TypeError, "must be a whole number"),
        ({"unused_for": True}, TypeError, "must be a whole number"),
        ({"unused_for": jnp.ones(3)}, TypeError, r"or uint32\[2\]"),
        ({"norm_below": -1.0}, ValueError, "must be 0 or more"),
        ({"norm_below": float("nan")}, ValueError, "must be 0 or more"),
        ({"norm_below": "1"}, TypeError, "must be one float"),
        ({"unused_for": 1, "combine": "or"}, ValueError, "combine must be one of"),
        (
            {"keep_at_least": 6, "keep_at_most": 5},
            ValueError,
            "keep_at_least=6 is more than keep_at_most=5",
        ),
    ],
)
def test_rules_that_mean_nothing(fields, error, message):
    with pytest.raises(error, match=message):
        Rule(**fields)


@pytest.mark.parametrize(
    "strategy, rule, message",
    [
        ("step", {"count_below": 2}, "does not count uses.*score_strategy='lfu'"),
        ("step", {"score_below": 2}, "no scores of its own. Use unused_since"),
        ("lfu", {"score_below": 2}, "Use count_below"),
        ("customized", {"count_below": 2}, "does not count uses"),
        ("lfu", {"unused_for": datetime.timedelta(hours=1)}, "jde.lifecycle.TimeMarks"),
    ],
)
def test_comparisons_that_a_table_cannot_answer(strategy, rule, message):
    coll = jde.Tables([jde.TableConfig("t", 4, 256, score_strategy=strategy)])
    with pytest.raises(ValueError, match=message):
        coll.erase_where(coll.init(0), {"t": Rule(**rule)})


def test_other_mistakes():
    coll = jde.Tables([jde.TableConfig("t", 4, 256)])
    state = coll.init(0)
    with pytest.raises(TypeError, match="rules must be a dict by table.*{'t': rules}"):
        coll.erase_where(state, Rule(keep_at_most=1))
    with pytest.raises(TypeError, match="jde.lifecycle.Rule"):
        coll.erase_where(state, {"t": {"keep_at_most": 1}})
    with pytest.raises(ValueError, match="Table 'u' is not known"):
        coll.erase_where(state, {"u": Rule(keep_at_most=1)})
    with pytest.raises(ValueError, match="counts no uses"):
        coll.decay(state, {"t": 0.5})
    lfu = jde.Tables([jde.TableConfig("t", 4, 256, score_strategy="lfu")])
    with pytest.raises(ValueError, match=r"1.5, which is not from 0 to 1"):
        lfu.decay(lfu.init(0), {"t": 1.5})
    with pytest.raises(TypeError, match="one number from 0 to 1"):
        lfu.decay(lfu.init(0), {"t": "half"})
