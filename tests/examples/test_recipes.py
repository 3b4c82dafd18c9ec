# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""examples/recipes: every example of the log is trained once, whatever reads it."""

import collections
import importlib
import json
import struct
import time

import numpy as np
import pytest

import clicks
import jax_dynemb as jde

LIBRARIES = {
    "arrow_files": "pyarrow",
    "grain_loader": "grain",
    "hf_datasets": "datasets",
    "mlflow_log": "mlflow",
    "polars_frame": "polars",
    "tensorboard_log": "tensorboardX",
    "torch_dataloader": "torch",
    "wandb_log": "wandb",
}


def mlflow_curve(folder, name):
    client = importlib.import_module("mlflow").MlflowClient(
        f"sqlite:///{folder}/mlflow.db"
    )
    experiment = client.get_experiment_by_name("clicks")
    (run,) = client.search_runs([experiment.experiment_id])
    assert "capacity" in run.data.params["user"]
    return {x.step: x.value for x in client.get_metric_history(run.info.run_id, name)}


def wandb_curve(folder, name):
    records = importlib.import_module("wandb.proto.wandb_internal_pb2")
    (path,) = folder.glob("wandb/offline-run-*/*.wandb")
    _wait_until_written(path)
    curve = {}
    for data in leveldb_records(path.read_bytes()):
        record = records.Record()
        record.ParseFromString(data)
        items = {x.key or x.nested_key[0]: x.value_json for x in record.history.item}
        if name in items:
            curve[json.loads(items["_step"])] = json.loads(items[name])
    return curve


def _wait_until_written(path):
    """A process of W&B writes the file, and may end after the run."""
    size, until = -1, time.monotonic() + 30
    while size != path.stat().st_size and time.monotonic() < until:
        size = path.stat().st_size
        time.sleep(0.5)


def leveldb_records(data, block=32_768, begin=7):
    """Yields the records of a file in LevelDB's log format, behind a header of W&B."""
    parts, at = [], begin
    while at < len(data):
        if block - at % block < 7:  # no room for a header: zeros
            at += block - at % block
            continue
        size, kind = struct.unpack_from("<HB", data, at + 4)
        parts.append(data[at + 7 : at + 7 + size])
        at += 7 + size
        if kind in (1, 4):  # a whole record, or its last part
            yield b"".join(parts)
            parts = []


CURVES = {"mlflow_log": mlflow_curve, "wandb_log": wandb_curve}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The ``noload`` loader")  # MLflow uses it
@pytest.mark.parametrize("recipe", LIBRARIES)
def test_every_example_is_trained_once(recipe, tmp_path, monkeypatch):
    pytest.importorskip(LIBRARIES[recipe])
    trained = {name: collections.Counter() for name in clicks.FEATURES}
    step = clicks.step

    def counted(model, optimizer, batch):
        for name, counter in trained.items():
            counter.update(batch["ids"][name][batch["weight"] == 1].tolist())
        return step(model, optimizer, batch)

    monkeypatch.setattr(clicks, "step", counted)
    main = importlib.import_module(recipe).main
    done = main(str(tmp_path)) if recipe.endswith("_log") else main()

    log = clicks.click_log()
    for name, counter in trained.items():
        assert counter == collections.Counter(jde.hash_ids(log[name]).tolist())
        assert done.model.sparse.stats()[f"{name}/rows"] == len(np.unique(log[name]))
    if recipe in CURVES:
        curve = CURVES[recipe](tmp_path, "loss")
        expected = {n: done.losses[n - 1] for n in range(4, len(done.losses) + 1, 4)}
        assert curve == pytest.approx(expected)
        hits = CURVES[recipe](tmp_path, "user/hits")
        assert list(hits) == list(expected) and hits[4] < hits[8]
    assert np.mean(done.losses[-3:]) < np.mean(done.losses[:3])
