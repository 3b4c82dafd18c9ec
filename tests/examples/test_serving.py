# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The serving examples: the files hold the model, in JAX and without it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import serve_jax
import serve_torch

TORCH = os.environ.get("JAX_DYNEMB_TORCH_PYTHON")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("serve")
    options = ["--rows", "21000", "--out", str(folder), "--no-torch"]
    assert serve_torch.main(options) == 0
    return folder


def test_the_files_are_the_whole_model(written):
    """Computes the model once more in NumPy: a dict of rows and two layers or three."""
    features = json.loads((written / "features.json").read_text())
    dense = load_file(written / "dense.safetensors")
    check = load_file(written / "check.safetensors")
    (path,) = (written / "tables").glob("*.safetensors")
    tensors = load_file(path)
    rows = dict(zip(tensors["keys"].tolist(), tensors["rows"], strict=True))
    zeros = np.zeros(tensors["rows"].shape[1], np.float32)

    def mean(bag):
        bag = [i for i in np.atleast_1d(bag).tolist() if i != -1]
        return np.mean([rows.get(i, zeros) for i in bag], axis=0) if bag else zeros

    def layer(name, x):
        return x @ dense[f"{name}.kernel"] + dense[f"{name}.bias"]

    vectors = [np.stack([mean(bag) for bag in check[f"ids.{f}"]]) for f in features]
    if check["dense"].shape[1]:
        vectors.append(np.maximum(layer("bottom", check["dense"]), 0))
    x = np.stack(vectors, axis=1)
    left, right = np.triu_indices(x.shape[1], 1)
    products = np.einsum("bik,bjk->bij", x, x)[:, left, right]
    inputs = np.concatenate([x.reshape(len(x), -1), products], axis=1)
    logits = layer("top", np.maximum(layer("hidden", inputs), 0))[:, 0]
    np.testing.assert_allclose(logits, check["logits"], atol=1e-5)
    assert check["logits"].std() > 0.1  # it has learned something


@pytest.mark.skipif(TORCH is None, reason="JAX_DYNEMB_TORCH_PYTHON is not set")
def test_torch_predicts_the_same(written):
    script = Path(serve_torch.__file__).parent / "serving" / "torch_model.py"
    subprocess.run([str(TORCH), str(script), str(written)], check=True)


def test_a_fresh_process_predicts_the_same(tmp_path):
    pytest.importorskip("flatbuffers", reason="jax.export needs it to write bytes")
    serve_jax.write(tmp_path, rows=7000)
    command = [sys.executable, serve_jax.__file__, "--serve", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "largest difference" in done.stdout
