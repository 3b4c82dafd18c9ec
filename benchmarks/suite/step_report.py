# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Figures of steps as a table and as bars."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from suite.figures import Figure

_LEFT = ("case", "ids", "work")


def table(figures: Sequence[Figure]) -> Table:
    """Lays figures out beside floors, targets and peers; columns without a cell go."""
    rows = [_cells(figure) for figure in figures]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    used = [c for c in columns if any(row.get(c) for row in rows)]
    result = Table(title="milliseconds of a step")
    for name in used:
        result.add_column(name, justify="left" if name in _LEFT else "right")
    for row in rows:
        result.add_row(*(row.get(name, "") for name in used))
    return result


def verdict(met: bool | None) -> str:
    """Whether a target was reached, in one word."""
    return {None: "", True: "[green]met", False: "[red]missed"}[met]


def _cells(figure: Figure) -> dict[str, str]:
    busy, job = figure.busy, figure.job
    target = "" if figure.target_ms is None else f"{figure.target_ms:.3f}"
    cells = {
        "case": job.name,
        "ids": job.ids,
        "work": job.label,
        "ms": f"{figure.ms:.3f}",
        "GPU busy": "" if busy is None else f"{busy.ms:.3f}",
        "kernels": "" if busy is None else f"{busy.kernels:.0f}",
        "floor": f"{figure.floor_ms:.3f}",
        "x floor": f"{figure.ms / figure.floor_ms:.2f}",
        "target": target,
        "": verdict(figure.met),
        "scratch B/id (limit)": _scratch(figure),
        "in place": {None: "", True: "yes", False: "[red]COPIED"}[figure.in_place],
    }
    for name, ms in figure.peers.items():
        cells[name] = f"{ms:.3f} ({ms / figure.ms:.1f}x)"
    return cells


def _scratch(figure: Figure) -> str:
    """Scratch bytes for each id, beside how many there may be."""
    if figure.scratch_bytes is None:
        return ""
    limit = figure.job.scratch_limit()
    ids = figure.job.case.num_ids
    text = f"{figure.scratch_bytes / ids:.0f} ({limit / ids:.0f})"
    return text if figure.scratch_bytes <= limit else f"[red]{text}"


def kernel_line(figure: Figure) -> str:
    """The kernels of one step with their microseconds, longest first."""
    kernels = figure.busy.by_name if figure.busy else {}
    times = ", ".join(f"{name} {us:.1f}" for name, us in kernels.items())
    return f"{figure.job.name} {figure.job.ids} {figure.job.label}, us: {times}"


def plot(figures: Sequence[Figure], path: Path) -> None:
    """Draws one panel a case: bars of this library and of peers, and their floors."""
    from matplotlib import pyplot

    cases = list(dict.fromkeys(figure.job.name for figure in figures))
    peers = list(dict.fromkeys(name for f in figures for name in f.peers))
    size = (12, 3.5 * len(cases))
    canvas, axes = pyplot.subplots(len(cases), figsize=size, squeeze=False)
    for axis, case in zip(axes[:, 0], cases, strict=True):
        shown = [figure for figure in figures if figure.job.name == case]
        _bars(axis, shown, peers)
        axis.set_title(f"case {case}", loc="left")
    axes[0, 0].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    canvas.tight_layout()
    canvas.savefig(path, dpi=120, bbox_inches="tight")
    pyplot.close(canvas)


def _bars(axis, figures: Sequence[Figure], peers: Sequence[str]) -> None:
    series = {"jax_dynemb": [figure.ms for figure in figures]}
    for name in peers:
        series[name] = [figure.peers.get(name, float("nan")) for figure in figures]
    width = 0.8 / len(series)
    for number, (name, values) in enumerate(series.items()):
        places = [i + number * width for i in range(len(figures))]
        axis.bar(places, values, width, label=name)
    lines = {
        "floor": [figure.floor_ms for figure in figures],
        "target": [figure.target_ms or float("nan") for figure in figures],
    }
    for (name, values), style in zip(lines.items(), ("dotted", "solid"), strict=True):
        starts = [i - width / 2 for i in range(len(figures))]
        ends = [start + 0.8 for start in starts]
        axis.hlines(values, starts, ends, "black", style, label=name)
    axis.set_yscale("log")
    axis.set_ylabel("ms a step")
    middle = [i + 0.4 - width / 2 for i in range(len(figures))]
    labels = [f"{f.job.label} {f.job.ids}".replace(" ", "\n") for f in figures]
    axis.set_xticks(middle, labels, fontsize=8)
