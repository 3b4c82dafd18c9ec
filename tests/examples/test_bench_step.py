# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
import json

import numpy as np
import pytest

import bench_step
import workloads


def test_shapes_and_draws():
    case = workloads.CASES["q"]
    ids = workloads.batch_ids(case, "zipf", seed=0)
    assert ids.shape == (26, 2048)
    assert ids.min() >= 0
    assert ids.max() < case.rows
    even = workloads.batch_ids(case, "uniform", seed=0)
    assert np.bincount(ids[0]).max() > 10 * np.bincount(even[0]).max()
    fresh = workloads.batch_ids(case, "fresh", seed=0)
    assert workloads.distinct_rows(fresh) == case.num_ids
    assert fresh.min() > case.rows


def test_minimum_bytes_by_hand():
    case = workloads.Case(tables=1, rows=10, dim=2, batch=3, bag=2, pooled=True)
    forward = 4 * 2 * 4 + 6 * 8 + 3 * 2 * 4  # rows, ids, outputs
    assert workloads.minimum_bytes(case, 4, None) == forward
    adam = forward + 3 * 2 * 4 + 6 * 8 + 4 * 2 * (2 * 4) + 4 * 2 * (4 * 4)
    assert workloads.minimum_bytes(case, 4, "adam") == adam


def quick(tmp_path, *arguments):
    path = tmp_path / "figures.json"
    figures = bench_step.main(["--quick", "--json", str(path), *arguments])
    assert len(json.loads(path.read_text())) == len(figures)
    assert all(figure.ms > 0 for figure in figures)
    return figures


def test_a_quick_run_of_every_work(tmp_path):
    figures = quick(tmp_path, "--case", "p", "--dist", "fresh,zipf")
    assert len(figures) == 5 + 2  # every work on zipf, two on fresh ids
    assert all(figure.stats["refused"] == 0 for figure in figures)


def test_peers_run_on_the_same_ids(tmp_path):
    choice = ("--case", "r", "--dist", "zipf", "--work", "eval,adagrad")
    figures = quick(tmp_path, *choice, "--peers")
    ours = {f.label: f.floor_ms for f in figures if f.peer == "jax_dynemb"}
    theirs = {f.label: f.floor_ms for f in figures if f.peer == "jax static"}
    assert ours == theirs != {}


def test_an_unknown_name_is_refused(capsys):
    with pytest.raises(SystemExit):
        bench_step.main(["--case", "z"])
    assert "is none of a, b, c" in capsys.readouterr().err
