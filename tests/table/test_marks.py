# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Chains of deltas: a replica follows, and no gap goes unnoticed."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde
from keys import keys_of_bucket
from meshes import mesh_of
from support import assert_same_rows, compiled, export, gradients

CONFIG = jde.TableConfig(
    "t", dim=8, capacity=256, optimizer=jde.optim.adagrad(0.5), log_removed=800
)
# So many that two buckets of 128 can not hold them.
CROWD = np.array(keys_of_bucket(0, 2, 200) + keys_of_bucket(1, 2, 200), np.int64)
COLL = jde.Tables([CONFIG])
REPLICA = jde.Tables([dataclasses.replace(CONFIG, log_removed=0)])


def step(coll: jde.Tables, state, seed: int):
    """A lookup and its update; some keys are erased, some by rule."""
    rng, jit = np.random.default_rng(seed), compiled(coll)
    ids = jde.ids(rng.choice(CROWD, 120))
    rows, residual, state = jit.lookup(state, {"t": ids}, None, None)
    d_rows = {"t": jnp.asarray(gradients(rows["t"].shape, seed))}
    state = jit.apply_gradients(state, residual, d_rows, None)
    return jit.erase(state, {"t": ids[:10]})


def follow(replica, state, deltas, at, coll=COLL):
    """Applies deltas of table t; the new replica and where it is."""
    replica = REPLICA.apply_delta(replica, "t", deltas["t"], at=at)
    assert_same_rows(export(REPLICA, replica, "t"), export(coll, state, "t"))
    return replica, deltas["t"].until


def test_a_replica_follows_by_the_log():
    state, replica, at = COLL.init(0), REPLICA.init(1), None
    marks = {}
    for seed in range(5):
        state = step(COLL, step(COLL, state, seed), seed + 50)
        deltas, marks = COLL.export_delta(state, marks)
        assert marks["t"].clock == COLL.get_score(state)["t"]
        replica, at = follow(replica, state, deltas, at)
        assert at == marks["t"]
        # Marks survive as JSON beside a checkpoint.
        text = json.dumps({name: mark.to_json() for name, mark in marks.items()})
        marks = {k: jde.Mark.from_json(x) for k, x in json.loads(text).items()}
        assert at == marks["t"]
    assert COLL.stats(state)["t/evicted"] > 0


@pytest.mark.parametrize("sharding", ["row_wise", "column_wise", "replicated"])
def test_a_mesh_is_followed(sharding):
    config = dataclasses.replace(
        CONFIG, sharding=sharding, dim=32, capacity=1024, log_removed=8_000
    )
    coll = jde.Tables([config], mesh=mesh_of(8))
    alone = jde.Tables([config])
    state, replica, at, marks = coll.init(0), alone.init(0), None, {}
    for seed in range(3):
        state = step(coll, state, seed)
        deltas, marks = coll.export_delta(state, marks)
        replica = alone.apply_delta(replica, "t", deltas["t"], at=at)
        at = marks["t"]
        assert_same_rows(export(alone, replica, "t"), export(coll, state, "t"))


def test_only_what_changed_is_streamed():
    state = step(COLL, COLL.init(0), 0)
    _, marks = COLL.export_delta(state)
    ids = {"t": jde.ids(CROWD[:7])}
    _, _, state = COLL.lookup(state, ids)
    state = COLL.erase(state, {"t": jde.ids(CROWD[:3])})
    deltas, _ = COLL.export_delta(state, marks)
    first, *rest = list(deltas["t"])
    assert set(first.removed.tolist()) == set(CROWD[:3].tolist())
    assert sum(len(chunk.keys) for chunk in rest) == 4


def test_known_keys_where_the_log_does_not_reach():
    small = jde.Tables([dataclasses.replace(CONFIG, log_removed=2)])
    state = step(small, small.init(0), 0)
    deltas, marks = small.export_delta(state)
    replica, at = follow(REPLICA.init(), state, deltas, None, small)
    for seed in range(1, 4):
        state = step(small, state, seed)
    with pytest.raises(ValueError, match="Pass known_keys="):
        small.export_delta(state, marks)
    known = {"t": np.array(list(export(REPLICA, replica, "t")), np.int64)}
    deltas, _ = small.export_delta(state, marks, known_keys=known)
    follow(replica, state, deltas, at, small)


def test_without_a_log_only_with_known_keys():
    state = step(REPLICA, REPLICA.init(0), 0)
    _, marks = REPLICA.export_delta(state)
    assert marks["t"].head is None
    with pytest.raises(ValueError, match="log_removed=0"):
        REPLICA.export_delta(state, marks)
    REPLICA.export_delta(state, marks, known_keys={"t": np.arange(3)})


@pytest.fixture(scope="module")
def chain():
    """A full export and three deltas, read into lists, and the state at the end."""
    state, marks, links = COLL.init(0), {}, []
    for seed in range(4):
        state = step(COLL, state, seed)
        deltas, marks = COLL.export_delta(state, marks)
        chunks = list(deltas["t"])
        links.append(dataclasses.replace(deltas["t"], chunks=chunks))
    return links, state


def test_gaps_and_disorder_are_refused(chain):
    links, state = chain
    replica = REPLICA.init()
    refused = [
        (links[1], None, "has no rows yet. Apply a full export first"),
        (links[2], links[0].until, "a delta between them is missing. Apply that one"),
        (links[1], links[1].until, "was applied already: leave it out"),
        (links[1], links[2].until, "out of order, or of another run or history"),
        (links[0], links[0].until, "apply it to an empty table"),
    ]
    for delta, at, message in refused:
        with pytest.raises(ValueError, match=message):
            REPLICA.apply_delta(replica, "t", delta, at=at)
    at = None
    for delta in links:  # nothing was changed or donated by those
        replica = REPLICA.apply_delta(replica, "t", delta, at=at)
        at = delta.until
    assert_same_rows(export(REPLICA, replica, "t"), export(COLL, state, "t"))


def test_a_delta_of_another_table_or_run_is_refused(chain):
    links, _ = chain
    two = jde.Tables([CONFIG, dataclasses.replace(CONFIG, name="u", feature_names=())])
    with pytest.raises(ValueError, match="is of table 't'"):
        two.apply_delta(two.init(), "u", links[0])
    other, marks = step(COLL, COLL.init(0), 0), {}
    _, marks = COLL.export_delta(other, marks)
    assert marks["t"].clock == links[0].until.clock
    with pytest.raises(ValueError, match="of another run"):
        REPLICA.apply_delta(REPLICA.init(), "t", links[1], at=marks["t"])


def test_a_replica_ahead_of_a_restored_table_refuses(tmp_path):
    state = step(COLL, COLL.init(0), 0)
    deltas, marks = COLL.export_delta(state)
    replica, at = follow(REPLICA.init(), state, deltas, None)
    jde.checkpoint.save(tmp_path, 1, state, tables=COLL)
    state = step(COLL, state, 1)
    deltas, _ = COLL.export_delta(state, marks)
    replica, at = follow(replica, state, deltas, at)
    # The job fails, and goes on from the checkpoint with the marks of that time.
    state = jde.checkpoint.restore(tmp_path, COLL.init(3), tables=COLL).tree
    for seed in (7, 8):
        state = step(COLL, state, seed)
    deltas, _ = COLL.export_delta(state, marks)
    with pytest.raises(ValueError, match="out of order, or of another run or history"):
        REPLICA.apply_delta(replica, "t", deltas["t"], at=at)


def test_a_mark_ahead_of_its_table_is_refused(tmp_path):
    state = step(COLL, COLL.init(0), 0)
    jde.checkpoint.save(tmp_path, 1, state, tables=COLL)
    _, marks = COLL.export_delta(step(COLL, state, 1))
    state = jde.checkpoint.restore(tmp_path, COLL.init(3), tables=COLL).tree
    with pytest.raises(ValueError, match="of a history that was left"):
        COLL.export_delta(state, marks)


@pytest.mark.parametrize("log_removed", [0, 800])
@pytest.mark.parametrize("mesh", [None, mesh_of(2)], ids=["one", "mesh"])
def test_a_cleared_table_is_followed(mesh, log_removed):
    """Rows of before are gone; those used again have other values."""
    coll = jde.Tables([dataclasses.replace(CONFIG, log_removed=log_removed)], mesh)
    state = step(coll, coll.init(0), 0)
    deltas, marks = coll.export_delta(state)
    replica, at = follow(REPLICA.init(), state, deltas, None, coll)
    clock = coll.get_score(state)["t"]
    state = jax.jit(coll.clear, donate_argnums=0)(state)
    assert coll.get_score(state)["t"] == clock
    with pytest.raises(ValueError, match="Pass known_keys="):
        coll.export_delta(state, marks)
    state = step(coll, state, 0)  # the ids of before
    for seed in range(1, 4):
        state = step(coll, state, seed)
    known = {"t": np.array(list(export(REPLICA, replica, "t")), np.int64)}
    deltas, _ = coll.export_delta(state, marks, known_keys=known)
    follow(replica, state, deltas, at, coll)


@pytest.mark.parametrize("coll", [COLL, REPLICA], ids=["log", "known keys"])
def test_several_replicas_follow_one_delta(coll):
    state = step(coll, coll.init(0), 0)
    deltas, marks = coll.export_delta(state)
    replicas = [follow(REPLICA.init(), state, deltas, None, coll)[0] for _ in range(2)]
    later = step(coll, state, 1)
    deltas, _ = coll.export_delta(later, marks, known_keys={"t": CROWD})
    for replica in replicas:
        follow(replica, later, deltas, marks["t"], coll)


def test_a_delta_of_a_donated_state_says_so():
    state = step(COLL, COLL.init(0), 0)
    deltas, _ = COLL.export_delta(state)
    step(COLL, state, 1)
    with pytest.raises(RuntimeError, match="was donated to an earlier call"):
        REPLICA.apply_delta(REPLICA.init(), "t", deltas["t"])


def test_some_tables_only():
    two = jde.Tables([CONFIG, dataclasses.replace(CONFIG, name="u", feature_names=())])
    deltas, marks = two.export_delta(two.init(), tables=["u"])
    assert list(deltas) == list(marks) == ["u"]
    with pytest.raises(ValueError, match="nothere"):
        two.export_delta(two.init(), tables=["nothere"])


MARK = COLL.export_delta(COLL.init())[1]["t"]
NO_MARKS = [5, "x", None, MARK.to_json(), {"t": MARK}]


@pytest.mark.parametrize("mark", NO_MARKS)
def test_what_is_no_mark(mark):
    with pytest.raises(TypeError, match=r"must be a jde\.Mark.*jde\.Mark\.from_json"):
        COLL.export_delta(COLL.init(), {"t": mark})
    if mark is not None:
        with pytest.raises(TypeError, match=r"at must be a jde\.Mark"):
            COLL.apply_delta(COLL.init(), "t", [], at=mark)
    if mark != MARK.to_json():
        with pytest.raises(TypeError, match=r"what mark\.to_json\(\) returned"):
            jde.Mark.from_json(mark)


def test_names_of_no_table():
    for given in ({"since": {"nothere": MARK}}, {"known_keys": {"nothere": [1]}}):
        with pytest.raises(ValueError, match="nothere"):
            COLL.export_delta(COLL.init(), **given)


@pytest.mark.parametrize(
    "keys",
    [
        np.arange(3.0),  # 2**53 + 1 would be 2**53
        jde.ids([1, 2]),  # pairs of words
        np.zeros((2, 2), np.int64),
        np.array(["1"]),
        {1, 2},
        7,
    ],
    ids=["floats", "words", "matrix", "text", "set", "scalar"],
)
def test_keys_that_are_no_row_of_whole_numbers(keys):
    state = step(REPLICA, REPLICA.init(0), 0)
    with pytest.raises(TypeError, match=r"known_keys must be the ids .* int64\[n\]"):
        REPLICA.export(state, "t", since=1, known_keys=keys)
    with pytest.raises(TypeError, match=r"known_keys must be the ids .* int64\[n\]"):
        marks = REPLICA.export_delta(state)[1]
        deltas, _ = REPLICA.export_delta(state, marks, known_keys={"t": keys})
        list(deltas["t"])


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.int32, list])
def test_keys_of_any_whole_type(dtype):
    state = step(REPLICA, REPLICA.init(0), 0)
    held = [1, 2, 3] if dtype in (list, np.int32) else [1, 2, 2**63 - 5]
    given = held if dtype is list else np.array(held, dtype)
    first, *_ = REPLICA.export(state, "t", since=1, known_keys=given)
    present = export(REPLICA, state, "t")
    assert set(first.removed.tolist()) == set(held) - set(present)


@pytest.mark.parametrize(
    "numbers, error",
    [
        ({"since": 1.5}, TypeError),
        ({"since": {"t": 1}}, TypeError),
        ({"since": -1}, ValueError),
        ({"min_score": -5}, ValueError),
        ({"min_score": True}, TypeError),
    ],
)
def test_numbers_of_an_export(numbers, error):
    (name,) = numbers
    with pytest.raises(error, match=f"export: {name} must be"):
        COLL.export(COLL.init(), "t", **numbers)


def test_what_is_no_delta():
    state = step(COLL, COLL.init(0), 0)
    deltas, _ = COLL.export_delta(state)
    chunk = next(iter(deltas["t"]))
    for delta in (deltas, None, chunk, "t", 5):
        with pytest.raises(TypeError, match=r"apply_delta takes what export_delta"):
            REPLICA.apply_delta(REPLICA.init(), "t", delta)
    for delta in ([chunk.keys], np.zeros(3), [None]):
        with pytest.raises(TypeError, match="a chunk of table 't' is"):
            REPLICA.apply_delta(REPLICA.init(), "t", delta)
