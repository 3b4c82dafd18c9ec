# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""How the cost of a step grows: with the batch, the tables, the load and the rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from suite import step_report, step_suites
from suite.figures import Figure
from suite.job import LOAD, Job
from suite.suite import Choice, Context, Suite
from suite.workloads import Case

DIM = 64
ROWS, BATCH = 1 << 22, 1 << 18  # what does not grow
AXES = {
    "batch": [1 << k for k in (10, 12, 14, 16, 18, 20, 21, 22, 23)],
    "tables": [1, 2, 4, 8, 16, 32, 64, 128],
    "load": [0.1, 0.25, 0.5, 0.75, 0.9, 1.0],
    "rows": [1 << k for k in (16, 18, 20, 22, 24, 26, 27)],
}
WORKS = {"eval": None, "train sgd": "sgd"}


def jobs(choice: Choice) -> Iterator[Job]:
    """Every point of every axis, looked up and trained with uniform ids."""
    for axis, values in AXES.items():
        for value in values:
            case, load = _shape(axis, value)
            for optimizer in WORKS.values():
                scaled = case.scaled(choice.scale)
                yield Job(f"{axis} {value}", scaled, "uniform", optimizer, load=load)


def _shape(axis: str, value: float) -> tuple[Case, float]:
    tables = int(value) if axis == "tables" else 1
    load = value if axis == "load" else LOAD
    rows = {"rows": int(value), "load": int(load * ROWS / LOAD)}.get(axis, ROWS)
    batch = int(value) if axis == "batch" else BATCH
    return Case(tables, rows // tables, DIM, batch // tables, 1, False), load


def run(context: Context) -> list[Figure]:
    """Measures every point."""
    return step_suites.run(context, "growth", jobs, step_suites.no_aim)


def plot(figures: Sequence[Figure], path: Path) -> None:
    """Draws one panel an axis: time over size, with the floor beside it."""
    from matplotlib import pyplot

    axes = [name for name in AXES if any(f.job.name.startswith(name) for f in figures)]
    canvas, panels = pyplot.subplots(
        1, len(axes), figsize=(4.5 * len(axes), 4), squeeze=False
    )
    for panel, axis in zip(panels[0], axes, strict=True):
        for work, optimizer in WORKS.items():
            shown = [
                figure
                for figure in figures
                if figure.job.name.startswith(axis)
                and figure.job.optimizer == optimizer
            ]
            sizes = [float(figure.job.name.split()[1]) for figure in shown]
            (curve,) = panel.plot(sizes, [f.ms for f in shown], "o-", label=work)
            floors, color = [f.floor_ms for f in shown], curve.get_color()
            panel.plot(sizes, floors, ":", color=color, label=f"{work}, floor")
        panel.set_xlabel(axis)
        panel.set_ylabel("ms a step")
        panel.set_yscale("log")
        if axis != "load":
            panel.set_xscale("log", base=2)
    panels[0, 0].legend()
    canvas.savefig(path, dpi=120, bbox_inches="tight")
    pyplot.close(canvas)


SUITE = Suite("cost over batch, tables, load and rows", run, step_report.table, plot)
