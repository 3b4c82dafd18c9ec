# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
import json

import numpy as np
import pytest

import train_ctr
from ctr import synthetic
from ctr.dense import DenseLearner
from ctr.fit import fit
from ctr.settings import Settings


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """One short run on the stream, with a table too small for it, and its files."""
    folder = tmp_path_factory.mktemp("run")
    runs = train_ctr.main(
        [
            "--rows",
            "84000",
            "--capacity",
            "2048",
            "--batch-size",
            "512",
            "--epochs",
            "6",
        ]
        + ["--dense-baseline", "--out", str(folder), "--json", str(folder / "run.json")]
    )
    return folder, runs


@pytest.mark.slow
def test_learns_on_a_table_that_evicts(trained):
    _, runs = trained
    last = runs["dynamic table"][-1]
    assert last.auc > 0.65
    assert last.table["evicted"] > 1000
    assert last.table["refused"] == 0
    assert last.table["rows"] <= 2048
    assert last.table["rows"] == last.table["inserted"] - last.table["evicted"]


def test_learns_as_well_as_the_dense_model(trained):
    _, runs = trained
    dynamic, dense = (runs[name][-1] for name in ("dynamic table", "dense nnx.Embed"))
    assert dynamic.auc == pytest.approx(dense.auc, abs=0.03)


def test_writes_curves_and_figures(trained):
    folder, runs = trained
    picture = (folder / "curves.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    figures = json.loads((folder / "run.json").read_text())
    assert set(figures["runs"]) == set(runs)
    assert figures["runs"]["dynamic table"][-1]["auc"] == runs["dynamic table"][-1].auc


@pytest.mark.parametrize("optimizer", ["rowwise_adagrad", "adam", "sgd"])
def test_every_optimizer_trains(tmp_path, optimizer):
    runs = train_ctr.main(
        ["--rows", "14000", "--epochs", "2", "--optimizer", optimizer]
        + ["--out", str(tmp_path), "--dense-baseline"]
    )
    assert all(np.isfinite(run[-1].train_loss) for run in runs.values())
    assert runs["dynamic table"][-1].table["rows"] > 500


def test_the_dense_model_reads_zeros_for_an_id_it_has_not_trained():
    source = synthetic.load(synthetic.Stream(rows=1400))
    settings = Settings(epochs=1, batch_size=64)
    learner = DenseLearner(source, settings)
    fit(learner, source, settings)
    unseen = np.full(1, 12345, np.int64)
    assert learner.number(unseen)[0] == len(learner.vocabulary)


def test_a_missing_path_is_one_sentence(tmp_path):
    with pytest.raises(SystemExit, match="no such file or folder"):
        train_ctr.main(["--data", str(tmp_path / "nowhere")])


@pytest.mark.slow
def test_a_mesh_learns_the_same(tmp_path):
    options = ["--rows", "21000", "--epochs", "1", "--capacity", "8192"]
    options += ["--batch-size", "512", "--out", str(tmp_path)]
    alone, shared = (
        train_ctr.main([*options, *more])["dynamic table"][-1]
        for more in ([], ["--mesh", "8"])
    )
    assert shared.auc == pytest.approx(alone.auc, abs=1e-4)
    assert shared.train_loss == pytest.approx(alone.train_loss, rel=1e-5)
    assert shared.table["rows"] == alone.table["rows"]
