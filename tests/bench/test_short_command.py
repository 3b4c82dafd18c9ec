# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""python -m jax_dynemb bench, at a thousandth of its size."""

import json
import math

import jax
import numpy as np
import pytest

from jax_dynemb.__main__ import main
from jax_dynemb._src.commands import bench
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
