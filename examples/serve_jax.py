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
from typing import Any

import jax
import numpy as np

import jax_dynemb as jde

ROWS = 84_000
MAX_BATCH = 65_536


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
    sparse = trained.learner.embed
    sparse.coll, tables = jde.export.frozen(sparse.coll, sparse.get_state())
    graph, _, dense, rest = nnx.split(
        trained.learner.model, jde.nnx.Table, nnx.Param, ...
    )

    def predict(tables: Any, dense: Any, batch: dict[str, Any]) -> jax.Array:
        values = {name: jde.nnx.Table(table) for name, table in tables.items()}
        model = nnx.merge(graph, nnx.State({"embed": {"tables": values}}), dense, rest)
        return model(batch["dense"], batch["ids"], train=False)

    batch = to_device(trained.test)
    inputs = {name: batch[name] for name in ("dense", "ids")}
    weights = (tables, nnx.to_pure_dict(dense))
    out.mkdir(parents=True, exist_ok=True)
    data = jde.export.program(
        predict,
        *weights,
        inputs,
        shapes=(None, None, "b, ..."),  # a batch of any size, up to the bound
        constraints=[f"b <= {MAX_BATCH}"],
    )
    (out / "program.bin").write_bytes(data)
    save(out / "weights.npz", weights)
    save(out / "check.npz", (inputs, trained.logits))


def save(path: Path, tree: Any) -> None:
    """Arrays of a pytree by number; keys of tables are pairs of 32-bit words."""
    leaves = jax.tree.leaves(tree)
    named: dict[str, Any] = {str(n): np.asarray(x) for n, x in enumerate(leaves)}
    np.savez(path, **named)


def load(path: Path) -> list[np.ndarray]:
    """The arrays in order."""
    with np.load(path) as file:
        return [file[str(n)] for n in range(len(file.files))]


def serve(folder: Path) -> int:
    """Reads everything again and compares the logits."""
    program = jde.export.load_program((folder / "program.bin").read_bytes())
    *inputs, expected = load(folder / "check.npz")
    weights = load(folder / "weights.npz")
    predict = jax.jit(program.call)  # compiles once for each size of a batch
    worst = 0.0
    for size in (len(expected), 100, 1):
        leaves = [*weights, *(array[:size] for array in inputs)]
        arguments, _ = jax.tree.unflatten(program.in_tree, leaves)
        difference = float(np.abs(predict(*arguments) - expected[:size]).max())
        print(f"batch of {size}: largest difference of a logit {difference:.2e}")
        worst = max(worst, difference)
    return int(worst > 1e-5)


if __name__ == "__main__":
    sys.exit(main())
