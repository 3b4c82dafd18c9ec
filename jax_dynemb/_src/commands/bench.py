# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""``python -m jax_dynemb bench``: a few standard steps on this machine.

The repository's ``benchmarks/bench_suite.py`` measures more, beside other libraries.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.table import Table

from jax_dynemb._src.commands.bench_page import bench_page
from jax_dynemb._src.commands.console import console
from jax_dynemb._src.commands.matrix import MATRIX, matrix_steps
from jax_dynemb._src.commands.workload import (
    WORKLOADS,
    Workload,
    collection,
    draw,
    filled,
    least_bytes,
    on_device,
    scaled,
)
from jax_dynemb._src.compiler_options import compiler_options
from jax_dynemb._src.table import Tables
from jax_dynemb._version import __version__

OPTIMIZERS = ("sgd", "rowwise_adagrad", "adagrad", "adam")
REPEATS = 5
_BATCHES = 4  # in turn, so that no step finds its rows in a cache

Step = Callable[[Any, Any, Any], tuple[Any, Any]]  # tables, ids, gradients


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    add = parser.add_argument
    add("--optimizers", default="sgd,rowwise_adagrad", help=f"of {OPTIMIZERS}")
    add("--scale", type=float, default=1.0, help="factor on rows and bags")
    add("--seconds", type=float, default=0.2, help="length of one repeat")
    add("--json", type=Path, metavar="FILE", help="write the figures too")
    add("--html", type=Path, metavar="FILE", help="write a page; measures peers too")
    add("--peers", action="store_true", help="measure a matrix in plain JAX as well")


def main(arguments: argparse.Namespace) -> int:
    """Measures and prints; returns the exit status."""
    names = arguments.optimizers.split(",")
    if unknown := sorted(set(names) - set(OPTIMIZERS)):
        raise ValueError(f"--optimizers {unknown} are not among {OPTIMIZERS}")
    out, device = console(), jax.devices()[0]
    copy = copy_speed(arguments.scale, arguments.seconds)
    out.print(
        f"{device.device_kind}, jax {jax.__version__}, jax_dynemb {__version__}; a "
        f"large copy moves {copy / 1e9:.0f} GB/s",
        highlight=False,
    )
    figures = []
    for full in WORKLOADS["cpu" if device.platform == "cpu" else "gpu"]:
        work = scaled(full, arguments.scale)
        found = list(measure(work, names, arguments.seconds))
        peers = {}
        if arguments.peers or arguments.html:
            peers = dict(measure_matrix(work, names, arguments.seconds))
        for figure in found:
            figure["floor_ms"] = figure["bytes"] / copy * 1e3
            if figure["step"] in peers:
                figure["peer_ms"] = peers[figure["step"]]
            figures.append(figure)
    out.print(_table(figures))
    document = {"device": device.device_kind, "copy": copy, "figures": figures}
    if arguments.json:
        text = json.dumps(document, indent=1)
        arguments.json.write_text(text + "\n", encoding="utf-8")
    if arguments.html:
        facts = {
            "jax": jax.__version__,
            "jax_dynemb": __version__,
            "measured": f"{datetime.datetime.now():%Y-%m-%d %H:%M}",
        }
        text = bench_page(document | {"facts": facts})
        arguments.html.write_text(text, encoding="utf-8")
    return 0


def measure(
    work: Workload, optimizers: Sequence[str], seconds: float
) -> Iterator[dict[str, Any]]:
    """Yields the figures of a lookup without training, and of each training step."""
    drawn = [draw(work, seed) for seed in range(_BATCHES)]
    distinct = sum(len(np.unique(t)) for batch in drawn for t in batch) / _BATCHES
    for number, optimizer in enumerate(optimizers):
        coll = collection(work, optimizer)
        state = filled(coll, work)
        batches = [on_device(coll, batch, work) for batch in drawn]
        steps = [("lookup", _lookup_step(coll))] if number == 0 else []
        for name, step in [*steps, (optimizer, _training_step(coll))]:
            state, ms = _milliseconds(step, state, batches, seconds)
            size = least_bytes(work, distinct, coll if name == optimizer else None)
            yield {"workload": str(work), "step": name, "ms": ms, "bytes": size}


def measure_matrix(
    work: Workload, optimizers: Sequence[str], seconds: float
) -> Iterator[tuple[str, float]]:
    """Yields milliseconds of the same steps on matrices in plain JAX, by name."""
    drawn = [draw(work, seed) for seed in range(_BATCHES)]
    for name, step, state, batches in matrix_steps(work, optimizers, drawn):
        yield name, _milliseconds(step, state, batches, seconds)[1]


def copy_speed(scale: float, seconds: float) -> float:
    """Measures the bytes per second that a large copy reads and writes."""
    most = 1 << 26 if jax.default_backend() == "cpu" else 1 << 28
    array = jnp.zeros(max(1024, int(most * min(scale, 1.0))), jnp.float32)
    copy = jax.jit(lambda array: array + 1.0, donate_argnums=0)
    _, ms = _milliseconds(lambda x, *_: (copy(x), ()), array, [((), ())], seconds)
    return 2 * array.nbytes / ms * 1e3


def _lookup_step(coll: Tables) -> Step:
    find = jax.jit(lambda state, ids: coll.find(state, ids)[0])
    return lambda state, ids, gradients: (state, find(state, ids))


def _training_step(coll: Tables) -> Step:
    def train(state: Any, ids: Any, gradients: Any) -> tuple[Any, Any]:
        rows, residual, state = coll.lookup(state, ids)
        return coll.apply_gradients(state, residual, gradients), rows

    return jax.jit(train, donate_argnums=0, compiler_options=compiler_options())


def _milliseconds(
    step: Step, state: Any, batches: Sequence[tuple[Any, Any]], seconds: float
) -> tuple[Any, float]:
    """Returns the last state, and milliseconds per step: the least of some repeats."""
    cycle, times = itertools.cycle(batches), []
    count = 2
    for repeat in range(-2, REPEATS):  # the first compiles, the second chooses a count
        jax.block_until_ready((state, batches))
        start = time.perf_counter()
        output = None
        for ids, gradients in itertools.islice(cycle, count):
            state, output = step(state, ids, gradients)
        jax.block_until_ready((state, output))
        times.append((time.perf_counter() - start) / count)
        if repeat == -1:
            count = max(3, min(400, int(seconds / times[-1])))
    return state, min(times[2:]) * 1e3


def _table(figures: Sequence[dict[str, Any]]) -> Table:
    peers = any("peer_ms" in figure for figure in figures)
    table = Table("workload", "step", title="steps back to back")
    for name in ("ms", "floor ms", "GB/s", *[f"{MATRIX}, ms"] * peers):
        table.add_column(name, justify="right")
    above = None
    for figure in figures:
        ms, work = figure["ms"], figure["workload"]
        numbers = [ms, figure["floor_ms"], figure["bytes"] / ms / 1e6]
        shown = [f"{number:.3f}" for number in numbers]
        if peers:
            shown.append(f"{figure['peer_ms']:.3f}" if "peer_ms" in figure else "-")
        table.add_row("" if work == above else work, figure["step"], *shown)
        above = work
    return table
