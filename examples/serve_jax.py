# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Serves a click model in JAX from a file: no model code, no optimizer states.

    python examples/serve_jax.py              # trains, writes, serves in a new process
    python examples/serve_jax.py --serve DIR  # only serves what was written

The program is StableHLO (jax.export); the frozen tables and the dense layers are its
arguments and lie beside it. Reading them needs jax and jax_dynemb only.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import jax.numpy as jnp
import numpy as np

import jax_dynemb as jde

ROWS = 84_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Trains and writes, then compares in a fresh process; 0 if both agree."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=ROWS, help="rows to train on")
    parser.add_argument("--out", type=Path, default=Path("out_serve_jax"))
    parser.add_argument("--serve", type=Path, help="directory that was written before")
    options = parser.parse_args(arguments)
    if options.serve is not None:
        return serve(options.serve)
    write(options.out, options.rows)
    command = [sys.executable, __file__, "--serve", str(options.out)]
    return subprocess.run(command).returncode


def write(out: Path, rows: int) -> None:
    """The program, its weights, and a batch with its logits."""
    from flax import nnx

    from ctr.dynamic import to_device
    from serving.train import train

    trained = train(rows)
    learner = trained.learner
    coll = learner.embed.coll
    graph, dense, rest = nnx.split(learner.model, nnx.Param, ...)
    batch = to_device(trained.test)

    def predict(tables, dense, numbers, ids):
        model = nnx.merge(graph, nnx.State(dense), rest)
        model.embed.set_state(tables | {})
        return model(numbers, ids, train=False)

    del coll, predict, batch
    raise NotImplementedError


def serve(folder: Path) -> int:
    """Reads everything again and compares the logits."""
    predict = jde.export.load_program((folder / "program.bin").read_bytes())
    with np.load(folder / "weights.npz") as file:
        weights = [jnp.asarray(file[str(n)]) for n in range(len(file.files))]
    with np.load(folder / "check.npz") as file:
        check = {name: file[name] for name in file.files}
    logits = check.pop("logits")
    ids = {name.removeprefix("ids."): jde.ids(x) for name, x in check.items()}
    difference = float(np.abs(predict(weights, ids) - logits).max())
    print(f"largest difference of a logit: {difference:.2e}")
    return int(difference > 1e-5)


if __name__ == "__main__":
    sys.exit(main())
