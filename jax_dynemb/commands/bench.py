# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""``python -m jax_dynemb bench``: a few standard steps on this machine.

The repository's ``benchmarks/bench_suite.py`` measures more, beside other libraries.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

from jax_dynemb import initializers, optim
from jax_dynemb._compiler_options import compiler_options
from jax_dynemb._ids import ids as to_pairs
from jax_dynemb._version import __version__
from jax_dynemb.config import TableConfig
from jax_dynemb.table import Tables

OPTIMIZERS = ("sgd", "rowwise_adagrad", "adagrad", "adam")
REPEATS = 5
_BATCHES = 4  # in turn, so that no step finds its rows in a cache
_ROWS_PER_SLOT = 2 / 3
_FILL_IDS = 1 << 18

Step = Callable[[Any, Any, Any], tuple[Any, Any]]  # tables, ids, gradients


@dataclasses.dataclass(frozen=True)
class Workload:
    """Tables of one shape, and a batch of lookups for each.

    Attributes:
      tables: how many.
      rows: ids of each table.
      dim: float32 columns of a row.
      bags: of a batch.
      ids: of a bag, which are summed; 0 for one row per id, without sums.
    """

    tables: int
    rows: int
    dim: int
    bags: int
    ids: int

    def __str__(self) -> str:
        batch = f"{self.bags:,} " + (f"bags of {self.ids}" if self.ids else "ids")
        return f"{self.tables} x {self.rows:,} rows, dim {self.dim}; {batch}"


WORKLOADS = {
    "gpu": (
        Workload(1, 10_000_000, 128, 65_536, 1),
        Workload(26, 1_000_000, 128, 16_384, 10),
        Workload(1, 10_000_000, 128, 1_048_576, 0),
    ),
    "cpu": (
        Workload(1, 1_000_000, 64, 8_192, 10),
        Workload(26, 100_000, 32, 2_048, 1),
        Workload(1, 1_000_000, 128, 65_536, 0),
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    add = parser.add_argument
    add("--optimizers", default="sgd,rowwise_adagrad", help=f"of {OPTIMIZERS}")
    add("--scale", type=float, default=1.0, help="factor on rows and bags")
    add("--seconds", type=float, default=0.2, help="length of one repeat")
    add("--json", type=Path, metavar="FILE", help="write the figures too")


def main(arguments: argparse.Namespace) -> int:
    """Measures and prints; returns the exit status."""
    names = arguments.optimizers.split(",")
    if unknown := sorted(set(names) - set(OPTIMIZERS)):
        raise ValueError(f"--optimizers {unknown} are not among {OPTIMIZERS}")
    console, device = Console(), jax.devices()[0]
    copy = copy_speed(arguments.scale, arguments.seconds)
    console.print(
        f"{device.device_kind}, jax {jax.__version__}, jax_dynemb {__version__}; a "
        f"large copy moves {copy / 1e9:.0f} GB/s",
        highlight=False,
    )
    figures = []
    for full in WORKLOADS["cpu" if device.platform == "cpu" else "gpu"]:
        work = scaled(full, arguments.scale)
        for figure in measure(work, names, arguments.seconds):
            figures.append(figure | {"floor_ms": figure["bytes"] / copy * 1e3})
    console.print(_table(figures))
    if arguments.json:
        document = {"device": device.device_kind, "copy": copy, "figures": figures}
        text = json.dumps(document, indent=1)
        arguments.json.write_text(text + "\n", encoding="utf-8")
    return 0


def scaled(work: Workload, factor: float) -> Workload:
    """Returns the workload with a factor on its rows and bags."""
    rows, bags = max(512, int(work.rows * factor)), max(16, int(work.bags * factor))
    return dataclasses.replace(work, rows=rows, bags=bags)


def measure(
    work: Workload, optimizers: Sequence[str], seconds: float
) -> Iterator[dict[str, Any]]:
    """Yields the figures of a lookup without training, and of each training step."""
    drawn = [_draw(work, seed) for seed in range(_BATCHES)]
    distinct = sum(len(np.unique(t)) for batch in drawn for t in batch) / _BATCHES
    for number, optimizer in enumerate(optimizers):
        coll = _collection(work, optimizer)
        state = _filled(coll, work)
        batches = [_on_device(coll, batch, work) for batch in drawn]
        steps = [("lookup", _lookup_step(coll))] if number == 0 else []
        for name, step in [*steps, (optimizer, _training_step(coll))]:
            state, ms = _milliseconds(step, state, batches, seconds)
            size = least_bytes(work, distinct, coll if name == optimizer else None)
            yield {"workload": str(work), "step": name, "ms": ms, "bytes": size}


def least_bytes(work: Workload, distinct: float, trained: Tables | None) -> float:
    """Counts the fewest bytes that a step can move through memory.

    A lookup reads each distinct row and the ids, and writes the outputs. Training also
    reads gradients and ids, and reads and writes each distinct row and its state.
    """
    numbers = work.tables * work.bags * max(1, work.ids) * 8
    outputs = work.tables * work.bags * work.dim * 4
    rows = distinct * work.dim * 4
    if trained is None:
        return numbers + outputs + rows
    states = next(iter(trained.tables.values())).states.values()
    state = distinct * 4 * sum(math.prod(spec.shape) for spec in states)
    return 2 * (numbers + outputs) + 3 * rows + 2 * state


def copy_speed(scale: float, seconds: float) -> float:
    """Measures the bytes per second that a large copy reads and writes."""
    most = 1 << 26 if jax.default_backend() == "cpu" else 1 << 28
    array = jnp.zeros(max(1024, int(most * min(scale, 1.0))), jnp.float32)
    copy = jax.jit(lambda array: array + 1.0, donate_argnums=0)
    _, ms = _milliseconds(lambda x, *_: (copy(x), ()), array, [((), ())], seconds)
    return 2 * array.nbytes / ms * 1e3


def _collection(work: Workload, optimizer: str) -> Tables:
    return Tables(
        [
            TableConfig(
                f"t{number}",
                work.dim,
                int(work.rows / _ROWS_PER_SLOT),
                initializer=initializers.uniform(-0.01, 0.01),
                optimizer=getattr(optim, optimizer)(1e-3),
                pooling="sum" if work.ids else None,
            )
            for number in range(work.tables)
        ]
    )


def _draw(work: Workload, seed: int) -> np.ndarray:
    """Draws int64[tables, bags * ids] by a power law: rank r is 1 / r as frequent."""
    shape = (work.tables, work.bags * max(1, work.ids))
    uniform = np.random.default_rng(seed).random(shape)
    return (work.rows**uniform).astype(np.int64) - 1


def _on_device(coll: Tables, drawn: np.ndarray, work: Workload) -> tuple[Any, Any]:
    """Returns ids and gradients by feature."""
    shape = (work.bags, work.ids) if work.ids else (work.bags,)
    gradient = jnp.full((work.bags, work.dim), 1e-3, jnp.float32)
    columns = zip(coll.features, drawn, strict=True)
    ids = {name: to_pairs(column.reshape(shape)) for name, column in columns}
    return ids, dict.fromkeys(ids, gradient)


def _filled(coll: Tables, work: Workload) -> Any:
    """Returns tables that hold every id."""
    insert = jax.jit(lambda state, ids: coll.lookup(state, ids)[2], donate_argnums=0)
    state = coll.init(0)
    chunk = min(max(64, work.rows // 16), _FILL_IDS // work.tables)
    for first in range(0, work.rows, chunk):
        ids = to_pairs(np.arange(first, first + chunk, dtype=np.int64) % work.rows)
        ids = ids[:, None] if work.ids else ids
        state = insert(state, dict.fromkeys(coll.features, ids))
    return state


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
    table = Table("workload", "step", title="steps back to back")
    for name in ("ms", "floor ms", "GB/s"):
        table.add_column(name, justify="right")
    above = None
    for figure in figures:
        ms, work = figure["ms"], figure["workload"]
        numbers = (ms, figure["floor_ms"], figure["bytes"] / ms / 1e6)
        shown = (f"{number:.3f}" for number in numbers)
        table.add_row("" if work == above else work, figure["step"], *shown)
        above = work
    return table
