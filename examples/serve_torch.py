# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Trains a click model in JAX and serves it in PyTorch: the same predictions.

    python examples/serve_torch.py --python path/of/torch/env/bin/python

The environment that serves needs PyTorch and jax_dynemb_torch, and no JAX; --python is
its interpreter (default: this one). --rows makes the training shorter.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np
from flax import nnx
from safetensors.numpy import save_file

import jax_dynemb as jde
from ctr.model import DLRM
from serving.train import ROWS, Trained, train


def main(arguments: Sequence[str] | None = None) -> int:
    """Trains, writes the files, and lets PyTorch compare; 0 if it agrees."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=ROWS, help="rows to train on")
    parser.add_argument("--dtype", default="float32", help="of the exported rows")
    parser.add_argument("--out", type=Path, default=Path("out_serve"))
    parser.add_argument(
        "--python", default=sys.executable, help="interpreter with torch"
    )
    parser.add_argument("--no-torch", action="store_true", help="only write the files")
    options = parser.parse_args(arguments)
    write(options.out, train(options.rows), options.dtype)
    if options.no_torch:
        return 0
    script = Path(__file__).parent / "serving" / "torch_model.py"
    return subprocess.run([options.python, str(script), str(options.out)]).returncode


def write(out: Path, trained: Trained, dtype: str = "float32") -> None:
    """The tables, the dense layers, and a batch with its logits."""
    learner, test = trained.learner, trained.test
    sparse = learner.embed
    jde.export.safetensors(out / "tables", sparse.coll, sparse.get_state(), dtype=dtype)
    save_file(dense_weights(learner.model), out / "dense.safetensors")
    ids = {f"ids.{name}": np.ascontiguousarray(x) for name, x in test.ids.items()}
    others = {"dense": test.dense, "logits": trained.logits}
    save_file(ids | others, out / "check.safetensors")
    # The order in which the model sees their rows: that of the configs.
    (out / "features.json").write_text(json.dumps(list(sparse.coll.features)))


def dense_weights(model: DLRM) -> dict[str, np.ndarray]:
    """The parameters that are not tables, by dotted name."""
    leaves, _ = jax.tree.flatten_with_path(
        nnx.to_pure_dict(nnx.state(model, nnx.Param))
    )
    return {".".join(str(p.key) for p in path): np.asarray(x) for path, x in leaves}


if __name__ == "__main__":
    sys.exit(main())
