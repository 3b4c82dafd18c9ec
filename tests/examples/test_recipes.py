# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""examples/recipes: every example of the log is trained once, whatever reads it."""

import collections
import importlib

import numpy as np
import pytest

import clicks
import jax_dynemb as jde

LIBRARIES = {
    "arrow_files": "pyarrow",
    "grain_loader": "grain",
    "hf_datasets": "datasets",
    "polars_frame": "polars",
    "tensorboard_log": "tensorboardX",
    "torch_dataloader": "torch",
}


@pytest.mark.slow
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
    done = main(str(tmp_path)) if recipe == "tensorboard_log" else main()

    log = clicks.click_log()
    for name, counter in trained.items():
        assert counter == collections.Counter(jde.hash_ids(log[name]).tolist())
        assert done.model.sparse.stats()[f"{name}/rows"] == len(np.unique(log[name]))
    assert np.mean(done.losses[-3:]) < np.mean(done.losses[:3])
