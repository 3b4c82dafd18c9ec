# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""DynamicEmb's dumps: what is written passes an independent reader, and comes back."""

import json

import numpy as np
import pytest

import jax_dynemb as jde
from export import dynamicemb_reader as theirs
from export.dynamicemb_dumps import (
    NOW,
    OPTIMIZERS,
    STRATEGIES,
    states_of,
    tables,
    trained,
    written,
)
from jax_dynemb._src.files.dynamicemb import lossless_capacity
from support import export


@pytest.mark.parametrize("ranks", [1, 2, 8])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_an_independent_reader_finds_every_row(tmp_path, optimizer, ranks):
    coll = tables(optimizer)
    state = trained(coll)
    report = written(tmp_path / "dump", coll, state, ranks=ranks)
    table = theirs.read(tmp_path / "dump", "cat", 3, ranks, optimizer)
    rows = export(coll, state, "cat")
    assert set(table.keys.tolist()) == set(rows) and report.rows == len(rows) == 600
    for i, key in enumerate(table.keys.tolist()):
        np.testing.assert_array_equal(table.values[i], rows[key].values)
        np.testing.assert_array_equal(table.states[i], states_of(rows[key]))
        assert table.scores[i] == rows[key].score
    assert table.metadata["step_score"] == 4
    assert table.metadata["dist_type"] == "roundrobin"
    assert table.metadata["evict_strategy"] == "EvictStrategy.KCustomized"
    ours = OPTIMIZERS[optimizer]
    assert table.metadata["lr"] == ours.learning_rate
    assert table.metadata["iters" if optimizer == "adam" else "updates"] == 3
    if optimizer == "adam":
        names = ("iters", "beta1", "beta2", "eps", "weight_decay")
        expected = [3, 0.5, 0.75, 1e-6, 0.125]
        assert [table.metadata[name] for name in names] == expected
    elif optimizer == "ftrl":
        names = ("learning_rate_power", "ftrl_beta", "l1_reg", "l2_reg")
        assert [table.metadata[name] for name in names] == [-0.5, 1.0, 0.125, 0.25]
    elif optimizer != "sgd":
        assert table.metadata["eps"] == ours.eps
        start = table.metadata["initial_accumulator_value"]
        assert start == ours.initial_accumulator_value


@pytest.mark.parametrize(
    ("optimizer", "name"),
    [
        (
            jde.optim.rowwise_adagrad(0.1, 1e-6, 0.25, weight_decay=0.01),
            "exact_row_wise_adagrad",
        ),
        (jde.optim.adam(0.1, clip_row_norm=1.0), "adam"),
    ],
)
def test_options_of_an_optimizer_that_dynamicemb_has(tmp_path, optimizer, name):
    """The states are DynamicEmb's; the options are no part of a dump."""
    coll = tables(optimizer)
    state = trained(coll)
    written(tmp_path / "dump", coll, state)
    table = theirs.read(tmp_path / "dump", "cat", 3, 1, name)
    rows = export(coll, state, "cat")
    for i, key in enumerate(table.keys.tolist()):
        np.testing.assert_array_equal(table.states[i], states_of(rows[key]))
    assert table.metadata["lr"] == 0.1 and table.metadata["eps"] == optimizer.eps
    start = table.metadata.get("initial_accumulator_value", 0.25)
    assert start == 0.25
    again = jde.import_.dynamicemb(tmp_path / "dump", coll, now=NOW)
    for key, row in export(coll, again.state, "cat").items():
        np.testing.assert_array_equal(states_of(row), states_of(rows[key]))


def test_an_optimizer_that_dynamicemb_does_not_have(tmp_path):
    coll = tables(jde.optim.lamb(0.1))
    with pytest.raises(ValueError, match=r"no optimizer like this one \(lamb\)"):
        written(tmp_path / "dump", coll, trained(coll))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_scores_as_dynamicemb_counts_them(tmp_path, strategy):
    coll = tables("sgd", strategy)
    state = trained(coll)
    written(tmp_path / "dump", coll, state)
    table = theirs.read(tmp_path / "dump", "cat", 3, 1, "sgd")
    assert table.metadata["evict_strategy"] == STRATEGIES[strategy]
    rows = export(coll, state, "cat")
    scores = dict(zip(table.keys.tolist(), table.scores.tolist(), strict=True))
    if strategy == "no_eviction":  # the number of the row, each once
        assert sorted(scores.values()) == list(range(1, 601))
        return
    meaning = {
        "step": lambda score: score,
        "timestamp": lambda score: 1 + NOW - score,
        "lfu": lambda score: score >> 32,
        "customized": lambda score: max(1, score),  # 0 would be dropped
    }[strategy]
    assert scores == {key: meaning(row.score) for key, row in rows.items()}
    step_score = {"step": 4, "timestamp": 0, "lfu": 1, "customized": 2}[strategy]
    assert table.metadata["step_score"] == step_score


@pytest.mark.parametrize("ranks", [1, 2, 8])
@pytest.mark.parametrize(
    "optimizer, strategy",
    [
        ("adam", "timestamp"),
        ("exact_adagrad", "step"),
        ("exact_row_wise_adagrad", "lfu"),
        ("sgd", "customized"),
    ],
)
def test_import_of_export_is_the_same(tmp_path, optimizer, strategy, ranks):
    coll = tables(optimizer, strategy)
    state = trained(coll)
    counter = (np.array([5, -9, 2**40]), np.array([1, 2, 3]))
    path = tmp_path / "dump"
    written(path, coll, state, ranks=ranks, counters={"cat": counter})
    assert theirs.read(path, "cat", 3, ranks, optimizer).counter == {
        5: 1,
        -9: 2,
        2**40: 3,
    }
    again = jde.import_.dynamicemb(path, coll, now=NOW)
    assert again.notes == ()
    keys, counts = again.counters["cat"]
    assert dict(zip(keys.tolist(), counts.tolist(), strict=True)) == {
        5: 1,
        -9: 2,
        2**40: 3,
    }
    got, want = export(coll, again.state, "cat"), export(coll, state, "cat")
    assert got.keys() == want.keys()
    for key, row in got.items():
        np.testing.assert_array_equal(row.values, want[key].values)
        np.testing.assert_array_equal(states_of(row), states_of(want[key]))
        if strategy == "lfu":  # the low half is no part of the dump
            assert row.score >> 32 == want[key].score >> 32
        else:
            assert row.score == max(1, want[key].score)
    old, new = coll.stats(state), coll.stats(again.state)
    assert new["cat/rows"] == old["cat/rows"]
    assert new["cat/step"] == old["cat/step"] == 3
    if strategy == "step":
        assert coll.get_score(again.state) == coll.get_score(state)


def test_a_second_export_writes_the_same_bytes(tmp_path):
    coll = tables("adam", "timestamp")
    written(tmp_path / "one", coll, trained(coll), ranks=2)
    again = jde.import_.dynamicemb(tmp_path / "one", coll, now=NOW).state
    written(tmp_path / "two", coll, again, ranks=2)
    one, two = (
        theirs.read(tmp_path / name, "cat", 3, 2, "adam") for name in ("one", "two")
    )
    assert one.metadata == two.metadata
    for field in ("keys", "values", "scores", "states"):
        a, b = getattr(one, field), getattr(two, field)
        np.testing.assert_array_equal(a[np.argsort(one.keys)], b[np.argsort(two.keys)])


@pytest.mark.parametrize("dist_type", ["roundrobin", "hash_roundrobin"])
@pytest.mark.parametrize("ranks", [3, 10, 12])
def test_any_number_of_ranks(tmp_path, ranks, dist_type):
    coll = tables("sgd")
    state = trained(coll, positive=True)
    path = tmp_path / "dump"
    written(path, coll, state, ranks=ranks, dist_type=dist_type)
    table = theirs.read(path, "cat", 3, ranks, "sgd")
    assert table.metadata["dist_type"] == dist_type
    again = jde.import_.dynamicemb(path, coll).state
    assert export(coll, again, "cat").keys() == set(table.keys.tolist())


def test_empty_ranks_have_empty_files(tmp_path):
    coll = tables("adam")
    ids = {"cat": jde.ids(np.array([8, 16]))}
    _, _, state = coll.lookup(coll.init(0), ids)
    report = written(tmp_path / "few", coll, state, ranks=8)
    table = theirs.read(tmp_path / "few", "cat", 3, 8, "adam")
    assert set(table.keys.tolist()) == {8, 16} and report.num_embeddings == 128
    written(tmp_path / "none", coll, coll.init(0), ranks=2)
    assert len(theirs.read(tmp_path / "none", "cat", 3, 2, "adam").keys) == 0
    assert jde.import_.dynamicemb(tmp_path / "few", coll).notes == ()
    again = jde.import_.dynamicemb(tmp_path / "none", coll)
    assert export(coll, again.state, "cat") == {}


def test_without_optimizer_states(tmp_path):
    coll = tables("adam")
    state = trained(coll)
    path = tmp_path / "dump"
    written(path, coll, state, optimizer=False)
    assert not list(path.glob("*opt_values*"))
    metadata = json.loads((path / "cat_opt_args.json").read_text())
    assert "opt_type" not in metadata  # their loader would look for states
    again = jde.import_.dynamicemb(path, coll)
    assert "no states of adam in the dump" in again.notes[0]
    got, want = export(coll, again.state, "cat"), export(coll, state, "cat")
    for key, row in got.items():
        np.testing.assert_array_equal(row.values, want[key].values)
        assert not row.state["mu"].any()


def test_half_precision_becomes_float32(tmp_path):
    coll = tables("exact_adagrad", param_dtype="bfloat16")
    state = trained(coll)
    report = written(tmp_path / "dump", coll, state)
    assert any("bfloat16 in the table, float32 in the files" in n for n in report.notes)
    table = theirs.read(tmp_path / "dump", "cat", 3, 1, "exact_adagrad")
    rows = export(coll, state, "cat")
    for key, value in zip(table.keys.tolist(), table.values, strict=True):
        np.testing.assert_array_equal(value, rows[key].values.astype(np.float32))


def test_schedules_are_written_as_they_stand(tmp_path):
    coll = tables(jde.optim.sgd(lambda count: 0.5 / (1 + count)))
    written(tmp_path / "dump", coll, trained(coll, steps=3))
    metadata = json.loads((tmp_path / "dump" / "cat_opt_args.json").read_text())
    assert metadata["lr"] == 0.125


@pytest.mark.parametrize("count", [1, 100, 129, 1_000, 3_000])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_smallest_table_that_loses_nothing(count, seed):
    rng = np.random.default_rng(seed)
    keys = np.unique(rng.integers(-(2**63), 2**63, count))
    got = lossless_capacity(lambda: iter(np.array_split(keys, 3)), len(keys))
    assert got == theirs.smallest_lossless(keys.tolist())


def test_a_large_table_loses_nothing():
    keys = np.arange(300_000) * 64
    capacity = lossless_capacity(lambda: iter([keys]), len(keys))
    assert theirs.overfull(keys.tolist(), capacity) == 0
    assert len(keys) < capacity < len(keys) / 0.7


def test_the_capacity_is_printed(tmp_path, capsys):
    coll = tables("sgd")
    report = written(tmp_path / "dump", coll, trained(coll), quiet=False)
    output = capsys.readouterr().out
    assert f"num_embeddings={report.num_embeddings} is the smallest" in output


def test_tables_of_one_collection(tmp_path):
    wide = jde.TableConfig("wide", dim=5, capacity=256)
    coll = jde.Tables([tables("sgd").tables["cat"], wide])
    reports = jde.export.dynamicemb(tmp_path / "dump", coll, coll.init(0), quiet=True)
    assert all("takes one dim" in " ".join(r.notes) for r in reports.values())
    again = jde.import_.dynamicemb(tmp_path / "dump", coll, tables=["wide"])
    assert set(again.counters) == {"wide"}


REFUSED = [
    ({}, {"dist_type": "continuous"}, "'continuous' dumps"),
    ({}, {"ranks": 0}, "ranks must be 1 or more"),
    ({"dim": 1025}, {}, "dim 1025; DynamicEmb reads up to 1024"),
    ({"optimizer": "optax"}, {}, "no optimizer like this one .*optimizer=False"),
    ({}, {"ranks": 3}, "negative keys, .* ranks=1, or a power of two"),
    ({}, {"counters": {"cat": ([1, 2], [1])}}, "two int64"),
]


@pytest.mark.parametrize("table, options, sentence", REFUSED)
def test_refused_exports_leave_nothing_behind(tmp_path, table, options, sentence):
    import optax

    table = dict(table)
    if table.get("optimizer") == "optax":
        table["optimizer"] = optax.adam(0.1)
    coll = tables(**table)
    ids = {"cat": jde.ids(np.array([-5, 6]))}
    _, _, state = coll.lookup(coll.init(0), ids)
    with pytest.raises(ValueError, match=sentence):
        written(tmp_path / "dump", coll, state, **options)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_with_files_is_refused(tmp_path):
    (tmp_path / "stale").write_text("")
    coll = tables("sgd")
    with pytest.raises(FileExistsError, match="Give a directory that does not"):
        written(tmp_path, coll, coll.init(0))
