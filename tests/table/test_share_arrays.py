# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tables of one width in shared arrays: the oracle, and equal tables in their own."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jax_dynemb as jde
from growth import TABLES, check_growth
from jax_dynemb.testing import assert_in_place
from support import (
    HostJagged,
    Twins,
    assert_same_rows,
    compiled,
    export,
    gradients,
    train_step,
)

OPTIMIZERS = {
    "sgd": jde.optim.sgd(0.1),
    "adagrad": jde.optim.adagrad(0.1),
    "rowwise_adagrad": jde.optim.rowwise_adagrad(0.1),
    "adam": jde.optim.adam(lambda step: 0.1 / (1.0 + jnp.asarray(step, jnp.float32))),
}


def tables(optimizer: str = "adam") -> list[jde.TableConfig]:
    """Two widths that alternate, and all that may differ in the same arrays."""
    make = functools.partial(jde.TableConfig, optimizer=OPTIMIZERS[optimizer])
    return [
        make("rows", dim=4, capacity=300, feature_names=("a", "b")),
        make("wide", dim=6, capacity=2000, pooling="mean"),
        make("sums", dim=4, capacity=128 * 1100, pooling="sum"),
        make("full", dim=4, capacity=256, score_strategy="lfu"),
        make("refuses", dim=6, capacity=256, on_full="refuse"),
        make("half", dim=4, capacity=1024, param_dtype="bfloat16"),
        make(
            "first",
            dim=4,
            capacity=512,
            initializer=jde.initializers.constant(0.5),
            eval_initializer=jde.initializers.constant(2.0),
            optimizer=OPTIMIZERS[optimizer],
        ),
    ]


def batch(seed: int) -> tuple[dict, dict]:
    draw = np.random.default_rng(seed)
    bags = [list(draw.integers(0, 300, n)) for n in draw.integers(0, 4, 20)]
    ids = {
        "a": draw.integers(-1, 400, 40),
        "b": draw.integers(-1, 400, (10, 3)),
        "wide": HostJagged.of(bags, capacity=80),
        "sums": draw.integers(-1, 300, (20, 3)),
        "full": draw.integers(0, 2000, 300),
        "refuses": draw.integers(0, 2000, 300),
        "half": draw.integers(0, 500, 60),
        "first": draw.integers(0, 100, 30),
    }
    return ids, {"sums": draw.random((20, 3))}


def test_which_tables_share():
    coll = jde.Tables(tables(), share_arrays=True)
    names = {name: coll.state_name(name) for name in coll.tables}
    narrow, wide = "rows+3", "wide+1"
    assert names == {
        "rows": narrow,
        "sums": narrow,
        "full": narrow,
        "first": narrow,
        "wide": wide,
        "refuses": wide,
        "half": "half",
    }
    state = coll.init(0)
    assert sorted(state) == sorted({narrow, wide, "half"})
    slots = sum(coll.tables[n].num_slots for n in ("rows", "sums", "full", "first"))
    assert state[narrow].values.shape == (slots, 4)


def names_of(coll: jde.Tables) -> list[str]:
    return [coll.state_name(name) for name in coll.tables]


def test_tables_share_by_default():
    default, shared = jde.Tables(tables()), jde.Tables(tables(), share_arrays=True)
    assert names_of(default) == names_of(shared)
    assert default.share_arrays is None and default == jde.Tables(tables())
    own = jde.Tables(tables(), share_arrays=False)
    assert names_of(own) == list(own.tables)


@pytest.mark.parametrize(("dtype", "together"), [("float32", 2), ("bfloat16", 5)])
def test_by_default_at_most_four_gibibytes_share(dtype, together):
    """A table of float32 has 1.55 GiB: 3 * 2**20 rows, and 2,176 bytes per bucket."""
    make = functools.partial(jde.TableConfig, dim=128, capacity=3 << 20)
    configs = [make(f"t{n}", param_dtype=dtype) for n in range(7)]
    slots = configs[0].num_slots
    size = slots * 128 * jnp.dtype(dtype).itemsize + slots // 128 * 2176
    assert together * size <= 4 << 30 < (together + 1) * size
    expected = []
    for first in range(0, 7, together):
        count = min(together, 7 - first)
        expected += [f"t{first}+{count - 1}" if count > 1 else f"t{first}"] * count
    assert names_of(jde.Tables(configs)) == expected
    assert names_of(jde.Tables(configs, share_arrays=True)) == ["t0+6"] * 7


def test_by_default_names_of_tables_and_arrays_do_not_meet():
    make = functools.partial(jde.TableConfig, dim=2, capacity=256)
    coll = jde.Tables(
        [make("a"), make("b"), make("a+2"), make("c", param_dtype="float16")]
    )
    assert names_of(coll) == ["a", "b", "a+2", "c"]
    assert sorted(coll.init(0)) == ["a", "a+2", "b", "c"]


def test_growth_of_one_table_leaves_the_others(platform):
    make = functools.partial(jde.TableConfig, dim=2, capacity=256)
    coll = jde.Tables([make("a"), make("b"), make("c")])
    ids = {name: jde.ids(np.arange(50) + i) for i, name in enumerate("abc")}
    _, _, state = coll.lookup(coll.init(3), ids)
    larger, new = coll.grow(state, {"b": 1000})
    assert [larger.tables[n].capacity for n in "abc"] == [256, 1024, 256]
    assert list(new) == list(state) == ["a+2"]
    assert new["a+2"].values.shape == (256 + 1024 + 256, 2)
    for name in "abc":
        assert_same_rows(export(coll, state, name), export(larger, new, name))
    assert larger == larger.with_tables(larger.tables.values())


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_equals_the_oracle(platform, optimizer):
    twins = Twins(*tables(optimizer), share_arrays=True)
    for step in range(5):
        ids, weights = batch(step)
        twins.train(ids, weights, seed=step)
    twins.find(*batch(9))
    twins.check()


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_the_same_bits_as_in_arrays_of_their_own(platform, optimizer):
    """Rows, states, scores and counters; tables looked up in different steps."""
    own = jde.Tables(tables(optimizer), share_arrays=False)
    shared = jde.Tables(tables(optimizer), share_arrays=True)
    states = {coll: coll.init(3) for coll in (own, shared)}
    for step in range(6):
        ids, weights = batch(step)
        names = [n for i, n in enumerate(ids) if (i + step) % 3]
        given = {n: to_device(ids[n]) for n in names}
        factors = {n: jnp.asarray(w) for n, w in weights.items() if n in names}
        results = []
        for coll in (own, shared):
            jit = compiled(coll)
            rows, residual, state = jit.lookup(states[coll], given, factors, None)
            d_rows = {f: gradients(x.shape, step) for f, x in rows.items()}
            d_rows = {f: jnp.asarray(x, rows[f].dtype) for f, x in d_rows.items()}
            states[coll] = jit.apply_gradients(state, residual, d_rows, None)
            results.append(rows)
        jax.tree.map(np.testing.assert_array_equal, *results)
    assert own.stats(states[own]) == shared.stats(states[shared])
    assert own.get_score(states[own]) == shared.get_score(states[shared])
    for name in own.tables:
        rows = (export(coll, states[coll], name) for coll in (own, shared))
        assert_same_rows(*rows)


def to_device(ids):
    if isinstance(ids, HostJagged):
        return jde.Jagged(jde.ids(ids.values), jnp.asarray(ids.lengths))
    return jde.ids(ids)


def test_insert_erase_clear_and_scores(platform):
    twins = Twins(*tables("adagrad"), share_arrays=True)
    keys = np.arange(100, 220)
    for name, dim in [("rows", 4), ("sums", 4), ("wide", 6)]:
        rows = {name: gradients((len(keys), dim), 1)}
        twins.insert({name: keys}, rows, scores={name: np.arange(1, 121)})
        twins.erase({name: keys[::3]})
    twins.check()
    twins.state = twins.coll.set_score(twins.state, {"sums": 900})
    scores = twins.coll.get_score(twins.state)
    assert scores["sums"] == 900 and scores["first"] == 1
    assert scores["rows"] == scores["wide"] > 120
    stored = export(twins.coll, twins.state, "rows")
    cleared = twins.coll.clear(twins.state)
    assert all(n == 0 for k, n in twins.coll.stats(cleared).items() if "/rows" in k)
    assert len(stored) == 80
    ids = {"a": jde.ids([7])}
    again, fresh = (
        twins.coll.lookup(cleared, ids),
        twins.coll.lookup(twins.coll.init(0), ids),
    )
    np.testing.assert_array_equal(again[0]["a"], fresh[0]["a"])


def test_slots_are_those_of_the_table(platform):
    coll = jde.Tables(tables("sgd"), share_arrays=True)
    ids = {"a": jde.ids([5, 6]), "first": jde.ids([5, 5, 8])}
    _, residual, state = coll.lookup(coll.init(0), ids)
    d_rows = {"a": jnp.ones((2, 4)), "first": jnp.ones((3, 4))}
    sums, state = coll.reduce_gradients(state, residual, d_rows)
    assert sorted(np.asarray(sums["first"].grads[:, 0])) == [0.0, 1.0, 2.0]
    slots = {name: each.slots for name, each in sums.items()}
    rows, state = coll.gather(state, slots)
    np.testing.assert_array_equal(rows["first"]["values"][0], np.full(4, 0.5))
    written = {name: {"values": each["values"] + 1} for name, each in rows.items()}
    state = coll.scatter(state, slots, written)
    found, _, _ = coll.find(state, {"first": jde.ids([8, 9])})
    np.testing.assert_array_equal(found["first"][:, 0], [1.5, 2.0])


def test_a_delta_makes_a_replica_equal(platform):
    coll = jde.Tables(tables("sgd"), share_arrays=True)
    state, replica = coll.init(0), coll.init(0)
    jit = compiled(coll)
    for step in range(2):
        marks = coll.get_score(state)
        state = jit.lookup(state, {"full": jde.ids(batch(step)[0]["full"])}, {}, None)[
            2
        ]
        known = np.array(sorted(export(coll, replica, "full")), np.int64)
        delta = list(coll.export(state, "full", since=marks["full"], known_keys=known))
        replica = coll.apply_delta(replica, "full", iter(delta))
        rows = (export(coll, each, "full") for each in (state, replica))
        assert_same_rows(*rows)


def test_growth(platform):
    check_growth(Twins(*TABLES, share_arrays=True))


def test_more_tables_than_a_call_takes():
    many = [jde.TableConfig(f"t{n}", dim=2, capacity=256) for n in range(70)]
    twins = Twins(*many, share_arrays=True)
    for step in range(2):
        ids = {f"t{n}": np.arange(n, n + 3 + step) for n in range(70)}
        twins.train(ids, seed=step)
    twins.check()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_step_is_in_place_with_one_call_of_each_operation(platform, optimizer):
    coll = jde.Tables(tables(optimizer), share_arrays=True)
    ids = {name: to_device(x) for name, x in batch(0)[0].items()}
    step = jax.jit(functools.partial(train_step, coll), donate_argnums=0)
    assert_in_place(step, coll.init(0), ids)
    text = step.lower(coll.init(0), ids).compile().as_text()
    targets = re.findall(r'custom_call_target="(dynemb_\w+)"', text)
    assert sorted(targets) == [
        "dynemb_add_to_counters",
        "dynemb_lookup",
        "dynemb_offsets_of_features",
        "dynemb_update",
    ]
    some = {"sums": ids["sums"]}
    assert_in_place(jax.jit(coll.erase, donate_argnums=0), coll.init(0), some)
    rows = {"sums": jnp.zeros((20, 3, 4))}
    assert_in_place(jax.jit(coll.insert, donate_argnums=0), coll.init(0), some, rows)


def test_optax_tables_share_where_they_store_rows_only(platform):
    plain = {"dim": 2, "capacity": 256}
    momentum = optax.trace(0.9)
    adam = optax.adam(0.1)
    configs = [
        jde.TableConfig("a", optimizer=momentum, **plain),
        jde.TableConfig("b", optimizer=momentum, **plain),
        jde.TableConfig("c", optimizer=adam, **plain),
        jde.TableConfig("d", optimizer=adam, **plain),
    ]
    own, shared = (jde.Tables(configs, share_arrays=flag) for flag in (False, True))
    assert [shared.state_name(n) for n in "abcd"] == ["a+1", "a+1", "c", "d"]
    exported = []
    for coll in (own, shared):
        state = coll.init(0)
        for step in range(3):
            ids = {n: jde.ids(np.arange(step, 9)) for n in "abcd"[step % 2 :]}
            rows, residual, state = coll.lookup(state, ids)
            d_rows = {n: gradients(x.shape, step) for n, x in rows.items()}
            state = coll.apply_gradients(state, residual, d_rows)
        exported.append({n: export(coll, state, n) for n in "abcd"})
    for name in "abcd":
        assert_same_rows(exported[0][name], exported[1][name])


@pytest.mark.slow
@pytest.mark.parametrize("now", [True, False])
def test_checkpoints_of_either_kind(tmp_path, now):
    """Saved with arrays of their own or shared; restored into both, and larger."""
    coll = jde.Tables(tables("adam"), share_arrays=not now)
    state, jit = coll.init(0), compiled(coll)
    for step in range(2):
        ids, _ = batch(step)
        given = {name: to_device(x) for name, x in ids.items()}
        rows, residual, state = jit.lookup(state, given, {}, None)
        state = jit.apply_gradients(state, residual, rows, None)
    expected = {name: export(coll, state, name) for name in coll.tables}
    stats = coll.stats(state)
    jde.checkpoint.save(tmp_path, 1, state, tables=coll)
    larger = [
        jde.TableConfig(**{**fields(t), "capacity": 2 * t.capacity})
        if t.name == "first"
        else t
        for t in tables("adam")
    ]
    for configs, shared in ((tables("adam"), True), (larger, True), (larger, False)):
        other = jde.Tables(configs, share_arrays=shared)
        restored = jde.checkpoint.restore(tmp_path, other.init(9), tables=other)
        for name, rows in expected.items():
            assert_same_rows(export(other, restored.tree, name), rows)
        after = other.stats(restored.tree)
        capacities = ("capacity", "load_factor", "_bucket")
        for name, value in stats.items():
            assert name.endswith(capacities) or after[name] == value, name


def test_files_and_frozen_tables(tmp_path):
    shared, own = (jde.Tables(tables("adam"), share_arrays=f) for f in (True, False))
    state, jit = shared.init(0), compiled(shared)
    given = {name: to_device(x) for name, x in batch(0)[0].items()}
    rows, residual, state = jit.lookup(state, given, {}, None)
    state = jit.apply_gradients(state, residual, rows, None)
    jde.export.safetensors(tmp_path / "rows", shared, state)
    for coll in (shared, own):
        new = jde.import_.safetensors(tmp_path / "rows", coll, coll.init(2)).state
        for name in coll.tables:
            got, want = (export(c, s, name) for c, s in ((coll, new), (shared, state)))
            assert got.keys() == want.keys()
            for key, row in want.items():
                np.testing.assert_array_equal(got[key].values, row.values)
    frozen, arrays = jde.export.frozen(shared, state)
    assert not any(each.optimizer for each in arrays.values())
    found = [c.find(s, given)[0] for c, s in ((frozen, arrays), (shared, state))]
    jax.tree.map(np.testing.assert_array_equal, *found)


def fields(table: jde.TableConfig) -> dict:
    return {name: getattr(table, name) for name in table.__dataclass_fields__}


def test_equality_and_mistakes():
    both = [jde.Tables(tables(), share_arrays=flag) for flag in (True, False)]
    assert both[0] != both[1]
    assert both[0] == jde.Tables(tables(), share_arrays=True)
    config = functools.partial(jde.TableConfig, dim=2, capacity=256)
    with pytest.raises(ValueError, match="rename that one"):
        jde.Tables([config("a"), config("b"), config("a+2")], share_arrays=True)
    coll = jde.Tables([config("a"), config("b")], share_arrays=True)
    own = jde.Tables([config("a"), config("b")], share_arrays=False)
    with pytest.raises(TypeError, match="the arrays of these tables"):
        coll.lookup(own.init(0), {"a": jde.ids([1])})


@pytest.mark.parametrize(
    "call",
    [
        lambda coll, state: coll.lookup(state, {"b": jde.ids([1])}),
        lambda coll, state: coll.find(state, {"b": jde.ids([1])}),
        lambda coll, state: coll.insert(
            state, {"b": jde.ids([1])}, {"b": jnp.ones((1, 4))}
        ),
        lambda coll, state: coll.erase(state, {"b": jde.ids([1])}),
        lambda coll, state: coll.stats(state),
        lambda coll, state: coll.get_score(state),
        lambda coll, state: list(coll.export(state, "b")),
        lambda coll, state: coll.apply_delta(state, "b", []),
    ],
)
def test_a_state_by_table_where_tables_share(call):
    """The message names the arrays that are missing, and how to find their name."""
    configs = [jde.TableConfig(n, 4, 128) for n in ("a", "b")]
    configs.append(jde.TableConfig("wide", 8, 128))
    apart, shared = jde.Tables(configs, share_arrays=False), jde.Tables(configs)
    with pytest.raises(ValueError, match=r"not \['a\+1'\].*coll\.state_name\('[ab]'\)"):
        call(shared, apart.init(0))
    with pytest.raises(ValueError, match=r"but not .*coll\.state_name\('[ab]'\)"):
        call(apart, shared.init(0))


def test_a_state_with_the_arrays_of_a_call_only():
    coll = jde.Tables([jde.TableConfig("a", 4, 128), jde.TableConfig("b", 8, 128)])
    state = coll.init(0)
    rows, _, new = coll.lookup({"b": state["b"]}, {"b": jde.ids([1])})
    assert rows["b"].shape == (1, 8) and set(new) == {"b"}
