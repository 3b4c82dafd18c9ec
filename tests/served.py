# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Runs an exported program in a fresh process, which knows no table and no model."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jax_dynemb as jde

# Reads the program and the leaves of each call; writes its results, or its error.
_READER = """
import os, sys, jax, numpy as np, jax_dynemb as jde
folder, devices, calls = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
jax.config.update("jax_num_cpu_devices", devices)
compiled = []
jax.monitoring.register_event_duration_secs_listener(
    lambda name, *_, **__: compiled.append(name) if "backend_compile" in name else None
)
program = jde.export.load_program(open(folder + "/program", "rb").read())
run = jax.jit(program.call)

def read(path):
    with np.load(path) as file:
        return [file[str(n)] for n in range(len(file.files))]

kept = read(folder + "/kept.npz")
mesh = jax.sharding.Mesh(np.array(jax.devices()), ("data",))
shardings = program.in_shardings_jax(mesh) if devices > 1 else None
for call in range(calls):
    leaves = kept + read(folder + f"/batch{call}.npz")
    if shardings:
        leaves = [jax.device_put(x, s) for x, s in zip(leaves, shardings, strict=True)]
    arguments, _ = jax.tree.unflatten(program.in_tree, leaves)
    try:
        results = jax.tree.leaves(run(*arguments))
    except ValueError as error:
        open(folder + f"/error{call}", "w").write(str(error))
        continue
    named = {str(n): np.asarray(x) for n, x in enumerate(results)}
    np.savez(folder + f"/result{call}.npz", **named)
open(folder + "/compiled", "w").write(str(len(compiled)))
"""
_ROOT = Path(jde.__file__).resolve().parents[1]


def serve(
    folder: Path, data: bytes, tables: Any, batches: list[Any], devices: int = 1
) -> list[list[np.ndarray] | str]:
    """Calls ``program(tables, batch)`` in a process of its own, for each batch.

    Args:
      folder: for the files.
      data: the program.
      tables: its first argument.
      batches: its second one.
      devices: CPU devices of the process.

    Returns:
      For each batch the leaves of the results, or the text of a ValueError.
    """
    (folder / "program").write_bytes(data)
    _save(folder / "kept.npz", tables)
    for number, batch in enumerate(batches):
        _save(folder / f"batch{number}.npz", batch)
    reader = [sys.executable, "-P", "-c", _READER]
    given = [str(folder), str(devices), str(len(batches))]
    environment = {**os.environ, "PYTHONPATH": str(_ROOT), "JAX_PLATFORMS": "cpu"}
    subprocess.run([*reader, *given], check=True, env=environment)
    return [_answer(folder, number) for number in range(len(batches))]


def compiled(folder: Path) -> int:
    """How many programs the process of ``serve`` compiled."""
    return int((folder / "compiled").read_text())


def _save(path: Path, tree: Any) -> None:
    leaves = jax.tree.leaves(tree)
    named: dict[str, Any] = {str(n): np.asarray(x) for n, x in enumerate(leaves)}
    np.savez(path, **named)


def _answer(folder: Path, number: int) -> list[np.ndarray] | str:
    error = folder / f"error{number}"
    if error.exists():
        return error.read_text()
    with np.load(folder / f"result{number}.npz") as file:
        return [file[str(n)] for n in range(len(file.files))]
