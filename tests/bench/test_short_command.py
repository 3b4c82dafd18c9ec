# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""python -m jax_dynemb bench, at a thousandth of its size."""

import json
import math
import re
import xml.etree.ElementTree

import jax
import numpy as np
import pytest

from jax_dynemb.__main__ import main
from jax_dynemb._src.commands import bench, bench_page, matrix
from jax_dynemb._src.commands import workload as _workload
from suite import workloads

TINY = ("--scale", "0.001", "--seconds", "0.001")
WORK = _workload.Workload(tables=2, rows=700, dim=8, bags=16, ids=3)


def test_every_step_is_printed_and_written(tmp_path, capsys):
    path = tmp_path / "figures.json"
    command = ["bench", *TINY, "--optimizers", "sgd,adam", "--json", str(path)]
    assert main(command) == 0
    document = json.loads(path.read_text())
    steps = [figure["step"] for figure in document["figures"]]
    assert steps == ["lookup", "sgd", "adam"] * 3
    assert document["copy"] > 0
    for figure in document["figures"]:
        assert figure["ms"] > 0
        floor = figure["bytes"] / document["copy"] * 1e3
        assert figure["floor_ms"] == pytest.approx(floor)
    output = capsys.readouterr().out
    assert "floor ms" in output and "rowwise_adagrad" not in output


def test_a_page_shows_every_figure_and_loads_nothing(tmp_path, capsys):
    names = ("--json", str(tmp_path / "run.json"), "--html", str(tmp_path / "run.html"))
    assert main(["bench", *TINY, "--optimizers", "sgd,adam", *names]) == 0
    assert "matrix in JAX, ms" in capsys.readouterr().out
    page = (tmp_path / "run.html").read_text()
    assert not re.search(r"src=|href=|url\(|<script|@import|https?:", page)
    body = re.sub("<!doctype html>|<meta[^>]*>", "", page)
    xml.etree.ElementTree.fromstring(body)  # every tag is closed
    figures = json.loads((tmp_path / "run.json").read_text())["figures"]
    assert len(figures) == 9 and all(figure["peer_ms"] > 0 for figure in figures)
    bars = re.findall(r"<rect class=\"(\w+)\"[^>]*><title>[^<]*: (\S+) ms<", page)
    expected = [
        (kind, f"{figure[field]:.4g}")
        for figure in figures
        for kind, field in (("floor", "floor_ms"), ("own", "ms"), ("peer", "peer_ms"))
    ]
    assert bars == expected


def test_a_longer_time_has_a_longer_bar():
    figure = {"workload": "w<1>", "step": "sgd", "bytes": 1e6}
    figures = [
        figure | {"ms": ms, "floor_ms": 0.2, "peer_ms": 50.0} for ms in (1.0, 3.0, 9.0)
    ]
    run = {"device": "a & b", "copy": 1e9, "figures": figures, "facts": {"jax": "0"}}
    page = bench_page.bench_page(run)
    assert "a &amp; b" in page and "<h2>w&lt;1&gt;</h2>" in page
    pattern = r"<rect class=\"own\"[^>]* width=\"([\d.]+)"
    first, second, third = map(float, re.findall(pattern, page))
    assert 0 < first < second < third
    assert second - first == pytest.approx(third - second, abs=0.2)  # logarithmic


@pytest.mark.parametrize("ids", [0, 3])
def test_steps_of_matrices_are_those_of_tables(ids):
    """Compares with NumPy: every row gets the sum of the gradients of its ids."""
    work = _workload.Workload(tables=2, rows=50, dim=8, bags=16, ids=ids)
    drawn = [_workload.draw(work, seed) for seed in range(2)]
    names = ["lookup", "sgd", "rowwise_adagrad"]
    steps = matrix.matrix_steps(work, names[1:], drawn)
    for name, (found, step, state, batches) in zip(names, steps, strict=True):
        assert name == found
        state, rows = step(state, *batches[0])
        assert np.allclose(rows, 1e-2 * max(1, ids)) and rows.shape == (2, 16, 8)
        if name == "lookup":
            continue
        counts = np.stack([np.bincount(each, minlength=50) for each in drawn[0]])
        moved = {"sgd": 1e-6 * counts, "rowwise_adagrad": 1e-3 * (counts > 0)}[name]
        want = np.broadcast_to(1e-2 - moved[..., None], (2, 50, 8))
        np.testing.assert_allclose(state[0], want, rtol=1e-4)


def test_matrices_that_are_too_large_are_left_out():
    work = _workload.Workload(tables=26, rows=1_000_000, dim=128, bags=16, ids=3)
    assert not list(matrix.matrix_steps(work, ["sgd"], []))


def test_an_unknown_optimizer_is_refused(capsys):
    assert main(["bench", *TINY, "--optimizers", "sgd,lion"]) == 1
    assert "['lion'] are not among" in capsys.readouterr().err


@pytest.mark.parametrize("ids", [0, 3])
def test_tables_hold_every_id_before_the_clock_starts(ids):
    work = _workload.Workload(tables=2, rows=700, dim=8, bags=16, ids=ids)
    coll = _workload.collection(work, "sgd")
    state = _workload.filled(coll, work)
    stats = coll.stats(state)
    assert [stats[f"t{n}/rows"] for n in range(2)] == [700, 700]
    assert [stats[f"t{n}/evicted"] for n in range(2)] == [0, 0]
    held = np.concatenate([chunk.keys for chunk in coll.export(state, "t0")])
    np.testing.assert_array_equal(np.sort(held), np.arange(700))


def test_ids_follow_a_power_law():
    work = _workload.Workload(tables=1, rows=1000, dim=8, bags=40_000, ids=5)
    (ids,) = _workload.draw(work, seed=0)
    assert ids.min() == 0 and ids.max() < 1000
    shares = np.bincount(ids, minlength=1000) / len(ids)
    for rank in (1, 2, 10, 100):  # the integral of 1 / r over [rank, rank + 1)
        share = math.log1p(1 / rank) / math.log(1000)
        assert shares[rank - 1] == pytest.approx(share, rel=0.1)


@pytest.mark.parametrize(
    "work", [*_workload.WORKLOADS["gpu"], *_workload.WORKLOADS["cpu"]]
)
@pytest.mark.parametrize("optimizer", [None, *bench.OPTIMIZERS])
def test_floors_are_those_of_the_suites(work, optimizer):
    case = workloads.Case(
        work.tables, work.rows, work.dim, work.bags, max(1, work.ids), work.ids > 0
    )
    coll = _workload.collection(work, optimizer) if optimizer else None
    expected = workloads.minimum_bytes(case, 12_345, optimizer)
    assert _workload.least_bytes(work, 12_345, coll) == expected


def test_a_training_step_updates_the_rows_of_its_ids():
    coll = _workload.collection(WORK, "sgd")
    before = _workload.filled(coll, WORK)
    batch = _workload.on_device(coll, _workload.draw(WORK, seed=1), WORK)
    ids = {name: pairs.reshape(-1, 1, 2) for name, pairs in batch[0].items()}
    old = jax.device_get(coll.find(before, ids)[0])
    after, _ = bench._training_step(coll)(before, *batch)
    new = jax.device_get(coll.find(after, ids)[0])
    for name, rows in old.items():
        assert (new[name] < rows).all()  # gradients are 1e-3 everywhere
