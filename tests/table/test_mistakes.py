# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Likely mistakes with jde.Tables: each raises a sentence that says what to write."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jax_dynemb as jde
from jax_dynemb.admission import Exact, Frequency
from jax_dynemb.lifecycle import Rule
from meshes import mesh_of

CONFIG = jde.TableConfig("t", 4, 256, feature_names=("x", "y"))
IDS = jde.ids([1, 2])


@pytest.fixture(scope="module")
def coll() -> jde.Tables:
    return jde.Tables([CONFIG])


@pytest.fixture
def state(coll):
    return coll.init(0)


@pytest.mark.parametrize(
    "given, fix",
    [
        (CONFIG, r"jde\.Tables\(\[config\]\) for table 't'"),
        ({"t": CONFIG}, r"not a dict: .*list\(configs\.values\(\)\)"),
        (["t"], r"has 't' in it: write jde\.TableConfig"),
        ([jde.TableConfig], r"the class TableConfig in it"),
        (3, r"list of TableConfig, not a int"),
    ],
)
def test_what_is_no_list_of_tables(given, fix):
    with pytest.raises(TypeError, match=fix):
        jde.Tables(given)


def test_a_second_table_in_place_of_the_mesh():
    other = jde.TableConfig("u", 4, 256)
    with pytest.raises(TypeError, match=r"one list: jde\.Tables\(\[first, second\]"):
        jde.Tables([CONFIG], other)


@pytest.mark.parametrize("call", ["lookup", "find"])
def test_an_array_of_ids_in_place_of_a_dict(coll, state, call):
    fix = (
        r"dict by feature, not an array uint32\[2, 2\]: write \{'x': ids\}"
        r".*\['x', 'y'\]"
    )
    with pytest.raises(TypeError, match=fix):
        getattr(coll, call)(state, IDS)
    with pytest.raises(TypeError, match=r"must be a dict by feature, not a Jagged"):
        getattr(coll, call)(state, jde.Jagged(IDS, jnp.ones(2, jnp.int32)))
    with pytest.raises(TypeError, match=r"'x' are a dict, but must be an array of ids"):
        getattr(coll, call)(state, {"x": {"ids": IDS}})


def test_an_array_given_to_insert_and_erase(coll, state):
    with pytest.raises(TypeError, match=r"erase: ids .* by table.*\{'t': ids\}"):
        coll.erase(state, IDS)
    with pytest.raises(TypeError, match=r"insert: ids must be a dict by table"):
        coll.insert(state, IDS, jnp.zeros((2, 4)))


def test_state_and_ids_in_the_wrong_places(coll, state):
    with pytest.raises(TypeError, match=r"coll\.lookup\(state, ids\)"):
        coll.lookup({"x": IDS}, state)
    with pytest.raises(TypeError, match=r"'x' of ids is a TableState"):
        coll.lookup(state, {"x": state["t"]})
    with pytest.raises(TypeError, match=r"'t' of ids is a TableState: the state comes"):
        coll.lookup({"t": IDS}, state)


def test_a_table_in_place_of_a_feature(coll, state):
    with pytest.raises(ValueError, match=r"'t' is a table.*features are \['x', 'y'\]"):
        coll.lookup(state, {"t": IDS})


@pytest.mark.parametrize(
    "call",
    [
        lambda coll, state: coll.lookup(state, {"x": IDS}),
        lambda coll, state: coll.find(state, {"x": IDS}),
        lambda coll, state: coll.insert(state, {"t": IDS}, {"t": np.zeros((2, 4))}),
        lambda coll, state: coll.stats(state),
        lambda coll, state: coll.stats_async(state),
        lambda coll, state: coll.export(state, "t"),
        lambda coll, state: coll.grow(state, {"t": 1024}),
        lambda coll, state: coll.get_score(state),
        lambda coll, state: coll.set_score(state, {"t": 5}),
        lambda coll, state: jde.export.frozen(coll, state),
        lambda coll, state: jde.export.safetensors("absent", coll, state),
        lambda coll, state: jde.export.dynamicemb("absent", coll, state),
        lambda coll, state: jde.checkpoint.save("absent", 1, state, tables=coll),
    ],
)
def test_a_state_that_was_donated(coll, state, call):
    step = jax.jit(lambda s: coll.lookup(s, {"x": IDS})[2], donate_argnums=0)
    step(state)
    with pytest.raises(RuntimeError, match=r"was donated.*state = step\(state, ids\)"):
        call(coll, state)


@pytest.mark.parametrize(
    "call, fix",
    [
        (lambda c, s: c.grow(s, 4096), r"grow: capacities must be a dict by table"),
        (lambda c, s: c.grow(s, {"t": "x"}), r"capacity of table 't' must be an int"),
        (lambda c, s: c.set_score(s, 5), r"scores must be a dict by table"),
        (lambda c, s: c.set_score(s, {"t": 1.5}), r"must be a whole number, not 1\.5"),
        (lambda c, s: c.lookup(s, {"x": IDS}, IDS), r"weights must be a dict by feat"),
        (lambda c, s: c.lookup(s, {"x": IDS}, scores=3), r"scores must be a dict by t"),
        (lambda c, s: c.lookup(s, {"x": IDS}, counts=3), r"counts must be a dict by f"),
        (lambda c, s: c.insert(s, {"t": IDS}, None), r"insert: rows must be a dict by"),
        (lambda c, s: c.erase_where(s, 3), r"The tables here are \['t'\]"),
        (lambda c, s: c.gather(s, IDS), r"gather: slots must be a dict by table"),
        (lambda c, s: c.scatter(s, {}, 3), r"scatter: rows must be a dict by table"),
        (lambda c, s: c.scatter(s, {"t": [1]}, {"t": 1}), r"\{'values': rows\}"),
        (lambda c, s: c.clear(None), r"clear: state must be the dict of TableState"),
        (lambda c, s: c.export_delta(s, "x"), r"since must be a dict by table"),
        (lambda c, s: jde.Tables([CONFIG], share_arrays="yes"), r"share_arrays must"),
    ],
)
def test_numbers_that_are_no_dict(coll, state, call, fix):
    with pytest.raises(TypeError, match=fix):
        call(coll, state)


OLD_CALLS = {
    "stats": lambda coll, state: coll.stats(state),
    "stats_async": lambda coll, state: coll.stats_async(state),
    "bucket_stats": lambda coll, state: coll.bucket_stats(state),
    "get_score": lambda coll, state: coll.get_score(state),
    "set_score": lambda coll, state: coll.set_score(state, {"a": 50}),
    "export_delta": lambda coll, state: coll.export_delta(state),
    "apply_delta": lambda coll, state: coll.apply_delta(state, "a", []),
    "take_removed": lambda coll, state: coll.take_removed(state, "logged"),
    "admission_counts": lambda coll, state: coll.admission_counts(state, "counts"),
    "erase_where": lambda coll, state: coll.erase_where(
        state, {"a": Rule(unused_for=3)}
    ),
    "decay": lambda coll, state: coll.decay(state, {"counts": 0.5}),
    "clear": lambda coll, state: coll.clear(state),
    "grow": lambda coll, state: coll.grow(state, {"a": 4096}),
}


@functools.cache
def grown(place: str) -> tuple[jde.Tables, dict, dict]:
    """Tables, a state of them after they grew, and one without some arrays."""
    where = (
        {"mesh": mesh_of(8)} if place == "mesh" else {"share_arrays": place == "one"}
    )
    counter = Frequency(2, Exact(1024))
    coll = jde.Tables(
        [
            jde.TableConfig("a", 4, 1024),
            jde.TableConfig("b", 4, 1024),
            jde.TableConfig("logged", 4, 1024, log_removed=64),
            jde.TableConfig("counts", 4, 1024, score_strategy="lfu", admission=counter),
        ],
        **where,
    )
    state = coll.init(0)
    _, larger = coll.grow(state, dict.fromkeys(coll.tables, 2048))
    return coll, larger, {"logged": state["logged"]}


@pytest.mark.parametrize("place", ["one", "apart", "mesh"])
@pytest.mark.parametrize("call", OLD_CALLS)
def test_tables_of_before_a_growth(place, call):
    """They would read a half of each table, or the rows of another one."""
    coll, larger, part = grown(place)
    with pytest.raises(ValueError, match=f"{call}: .* buckets, but .* take the ones"):
        OLD_CALLS[call](coll, larger)
    if call != "take_removed":
        with pytest.raises(ValueError, match=f"{call}: state has .*but not"):
            OLD_CALLS[call](coll, part)


@pytest.mark.parametrize(
    "call",
    [
        lambda c, s, flag: c.erase_where(s, {"t": Rule(unused_for=1)}, dry_run=flag),
        lambda c, s, flag: c.lookup(s, {"x": IDS}, stats=flag),
        lambda c, s, flag: c.find(s, {"x": IDS}, promote=flag),
    ],
    ids=["dry_run", "stats", "promote"],
)
def test_flags_are_static(coll, state, call):
    for flag in ("yes", 1, None, jnp.bool_(True)):
        with pytest.raises(TypeError, match=r"must be True or False.* it is static"):
            call(coll, state, flag)


def test_rows_of_other_tables_than_the_ids():
    coll = jde.Tables([CONFIG, jde.TableConfig("u", 4, 256)])
    state, rows = coll.init(0), np.zeros((2, 4))
    with pytest.raises(ValueError, match=r"rows of \['u'\], but no ids for them"):
        coll.insert(state, {"t": IDS}, {"t": rows, "u": rows})
    with pytest.raises(ValueError, match=r"scores of \['u'\], but no ids for them"):
        scores = {"u": np.zeros(2, np.uint64)}
        coll.insert(state, {"t": IDS}, {"t": rows}, scores=scores)
    with pytest.raises(ValueError, match=r"rows of \['u'\] are missing"):
        coll.insert(state, {"t": IDS, "u": IDS}, {"t": rows})
    with pytest.raises(ValueError, match=r"of the same tables; \['u'\] are in one"):
        slots = np.zeros(2, np.int32)
        coll.scatter(state, {"t": slots}, {"t": {"values": rows}, "u": {}})


@pytest.mark.parametrize(
    "seed", [None, "0", 1.5, jax.random.key(0), jax.random.PRNGKey(0), np.zeros(2, int)]
)
def test_what_is_no_seed(coll, seed):
    with pytest.raises(TypeError, match=r"seed must be an int.*jax\.random\.bits\(key"):
        coll.init(seed)


def test_tables_that_the_machine_has_no_room_for():
    coll = jde.Tables([CONFIG, jde.TableConfig("large", 4096, 2**30)])
    if jax.default_backend() == "cpu":
        with pytest.raises(
            ValueError, match=r"Give the largest, table 'large' .*tier="
        ):
            coll.init(0)
    jax.eval_shape(coll.init, 0)  # may describe another machine


def test_what_is_no_state(coll, state):
    everything = coll.lookup(state, {"x": IDS})
    with pytest.raises(
        TypeError, match=r"tuple of 3.*rows, residual, state = coll\.look"
    ):
        coll.find(everything, {"x": IDS})
    with pytest.raises(TypeError, match=r"one table.*\{'t': state\}"):
        coll.lookup(state["t"], {"x": IDS})
    with pytest.raises(TypeError, match=r"dict of TableState that coll\.init\(\)"):
        coll.lookup(None, {"x": IDS})
    with pytest.raises(TypeError, match=r"stats: state is a tuple of 3"):
        coll.stats(everything)


def test_gradients_that_are_no_dict(coll, state):
    rows, residual, state = coll.lookup(state, {"x": IDS})
    with pytest.raises(
        TypeError, match=r"d_rows must be a dict by feature.*\{feature: gr"
    ):
        coll.apply_gradients(state, residual, rows["x"])
    with pytest.raises(ValueError, match=r"'x': its gradient is None; pass zeros"):
        coll.apply_gradients(state, residual, {"x": None})


@pytest.mark.parametrize(
    "call",
    [
        lambda coll, state: coll.stats(state),
        lambda coll, state: coll.get_score(state),
        lambda coll, state: coll.set_score(state, {"t": 5}),
        lambda coll, state: coll.grow(state, {"t": 1024})[1],
        lambda coll, state: list(coll.export(state, "t")),
    ],
)
def test_host_calls_inside_jit(coll, state, call):
    with pytest.raises(
        TypeError, match=r"on the host, so it cannot stand inside jax\.jit"
    ):
        jax.jit(lambda state: call(coll, state))(state)


def test_gradients_through_a_table(coll, state):
    fix = r"d_rows = jax\.grad\(loss\)\(rows\), and call coll\.apply_gradients"

    def of_values(values, call):
        table = dataclasses.replace(state["t"], values=values)
        return getattr(coll, call)({"t": table}, {"x": IDS})[0]["x"].sum()

    for call in ("lookup", "find"):
        with pytest.raises(ValueError, match=fix):
            jax.grad(of_values)(state["t"].values, call)
        with pytest.raises(ValueError, match=fix):
            # Strict promotion is for the library; JAX itself adds up the float0 here.
            jax.grad(
                lambda s, call: getattr(coll, call)(s, {"x": IDS})[0]["x"].sum(),
                allow_int=True,
            )(state, call)


@pytest.mark.parametrize(
    "optimizer, fix",
    [
        (optax.adam, r"the function adam: call it, adam\(0\.01\)"),
        (jde.optim.rowwise_adagrad, r"call it, rowwise_adagrad\(0\.01\)"),
        ("adam", r"e\.g\. jde\.optim\.adam\(0\.01\), not 'adam'"),
        (None, r"e\.g\. jde\.optim\.adam\(0\.01\), not None"),
    ],
)
def test_what_is_no_optimizer_of_a_table(optimizer, fix):
    with pytest.raises(ValueError, match=fix):
        jde.TableConfig("t", 4, 256, optimizer=optimizer)


@pytest.mark.parametrize("shape", [(2,), (1, 2), (3, 2), (5, 4, 2)])
def test_pairs_of_words_on_a_32_bit_table(shape):
    """jde.ids([5]) on it was two ids, 5 and 0."""
    coll = jde.Tables([jde.TableConfig("t", 4, 256, key_dtype="int32")])
    state, pairs = coll.init(0), jnp.zeros(shape, jnp.uint32)
    fix = r"pairs of words.*key_dtype='int32'.*Drop key_dtype.*as int32"
    for call in (coll.lookup, coll.find, jax.jit(coll.lookup)):
        with pytest.raises(TypeError, match=fix):
            call(state, {"t": pairs})
    with pytest.raises(TypeError, match=fix):
        coll.erase(state, {"t": pairs})
    with pytest.raises(TypeError, match=fix):
        coll.insert(state, {"t": pairs}, {"t": jnp.zeros((*shape[:-1], 4))})
    rows, _, state = coll.lookup(state, {"t": pairs.astype(jnp.int32)})
    assert rows["t"].shape == (*shape, 4) and coll.stats(state)["t/rows"] == 1


def test_ids_of_jde_on_a_32_bit_table():
    coll = jde.Tables([jde.TableConfig("t", 4, 256, key_dtype="int32", pooling="sum")])
    with pytest.raises(TypeError, match=r"uint32\[1, 2\] reads as ids of jde\.ids"):
        coll.lookup(coll.init(0), {"t": jde.ids([5])})
    jagged = jde.Jagged.from_lists([[1, 2], [3]])
    with pytest.raises(TypeError, match=r"uint32\[3, 2\] reads as ids of jde\.ids"):
        coll.lookup(coll.init(0), {"t": jagged})


CUSTOMIZED = jde.TableConfig("t", 4, 256, ("x",), score_strategy="customized")


@pytest.mark.parametrize(
    "score",
    [-1, np.int64(-5), jnp.int32(-1), 2**62, np.uint64(2**63), 2**64, 2**200]
    + [np.array([0, 1 << 30], np.uint32)],
)
def test_customized_scores_out_of_range(score):
    coll = jde.Tables([CUSTOMIZED])
    with pytest.raises(ValueError, match=r"from 0 to 2\*\*62 - 1, not "):
        coll.lookup(coll.init(0), {"x": IDS}, scores={"t": score})
    if np.shape(score) == ():
        of_ids = [score, score]
        with pytest.raises(ValueError, match=r"Feature 'x': scores must be from 0"):
            coll.lookup(coll.init(0), {"x": IDS}, scores={"x": of_ids})


@pytest.mark.parametrize("score", [1.5, "7"])
def test_customized_scores_that_are_no_whole_number(score):
    coll = jde.Tables([CUSTOMIZED])
    with pytest.raises(TypeError, match="scores must be whole numbers, not"):
        coll.lookup(coll.init(0), {"x": IDS}, scores={"t": score})


@pytest.mark.parametrize(
    "given, stored",
    [
        (jnp.uint32(2**32 - 1), 2**32 - 1),
        (jnp.int32(-3), 0),
        (np.array([7, 2**30], np.uint32), 2**62 - 1),
    ],
)
def test_traced_scores_are_moved_to_the_bound(given, stored):
    coll = jde.Tables([CUSTOMIZED])
    lookup = jax.jit(lambda s, scores: coll.lookup(s, {"x": IDS}, scores=scores)[2])
    (chunk,) = coll.export(lookup(coll.init(0), {"t": given}), "t")
    assert chunk.scores.tolist() == [stored] * 2


def test_words_that_may_be_scores_of_two_ids():
    coll = jde.Tables([dataclasses.replace(CUSTOMIZED, feature_names=("t",))])
    words, ids = np.array([5, 1], np.uint32), {"t": jde.ids([1, 2])}
    with pytest.raises(ValueError, match="words of one score.*or scores of its two"):
        coll.lookup(coll.init(0), ids, scores={"t": words})
    for fixed, stored in (
        (np.uint64(2**32 + 5), [2**32 + 5] * 2),
        (words.astype(np.int32), [1, 5]),
        (jde.scores([5, 1]), [1, 5]),
    ):
        state = coll.lookup(coll.init(0), ids, scores={"t": fixed})[2]
        (chunk,) = coll.export(state, "t")
        assert sorted(chunk.scores.tolist()) == stored


@pytest.mark.parametrize("scores", [[7, 8], np.array([7, 8], np.uint32)])
def test_scores_of_an_insert_that_are_not_64_bit(coll, state, scores):
    with pytest.raises(TypeError, match=r"numpy uint64.*uint32\[\.\.\., 2\]"):
        coll.insert(state, {"t": IDS}, {"t": jnp.zeros((2, 4))}, scores={"t": scores})


@pytest.mark.parametrize(
    "rate, error, fix",
    [
        (float("nan"), ValueError, "learning_rate must be finite"),
        (-0.1, ValueError, "must not be negative"),
        ("0.1", TypeError, "must be a number"),
        (optax.constant_schedule(0.1), TypeError, r"learning_rate=schedule\(step\)"),
    ],
)
def test_learning_rates_of_a_call(coll, state, rate, error, fix):
    rows, residual, state = coll.lookup(state, {"x": IDS})
    with pytest.raises(error, match=fix):
        coll.apply_gradients(state, residual, rows, learning_rate=rate)


def test_hyper_parameters_of_a_call(coll, state):
    rows, residual, state = coll.lookup(state, {"x": IDS})
    for name, number in (("b1", 1.0), ("eps", -1e-8), ("weight_decay", float("inf"))):
        with pytest.raises(ValueError, match=rf"Table 't': {name} must"):
            coll.apply_gradients(state, residual, rows, hyper={"t": {name: number}})
