# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""What a run leaves behind: lines, a table, curves, and JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from rich.console import Console
from rich.table import Table

from .fit import Epoch

matplotlib.use("Agg")  # files only: no display is needed

from matplotlib import pyplot as plt  # noqa: E402  (after the choice above)

Runs = Mapping[str, Sequence[Epoch]]

COUNTERS = ("rows", "load_factor", "inserted", "evicted", "refused")


def epoch_line(epoch: Epoch, epochs: int) -> str:
    """One line about a finished epoch."""
    table = "  ".join(
        f"{name} {_number(epoch.table[name])}"
        for name in COUNTERS
        if name in epoch.table
    )
    return (
        f"epoch {epoch.number}/{epochs}  loss {epoch.train_loss:.4f}  "
        f"test AUC {epoch.auc:.4f}  log loss {epoch.log_loss:.4f}  "
        f"{epoch.seconds:.1f} s  {table}"
    )


def print_summary(console: Console, runs: Runs) -> None:
    """Prints the last epoch of each run side by side."""
    table = Table(title="after the last epoch")
    table.add_column("")
    for name in runs:
        table.add_column(name, justify="right")
    last = {name: history[-1] for name, history in runs.items()}
    table.add_row("test AUC", *(f"{e.auc:.4f}" for e in last.values()))
    table.add_row("test log loss", *(f"{e.log_loss:.4f}" for e in last.values()))
    table.add_row("training loss", *(f"{e.train_loss:.4f}" for e in last.values()))
    seconds = (sum(e.seconds for e in history) for history in runs.values())
    table.add_row("seconds", *(f"{s:.1f}" for s in seconds))
    for counter in COUNTERS:
        values = (_number(e.table.get(counter)) for e in last.values())
        table.add_row(counter.replace("_", " "), *values)
    console.print(table)


def draw_curves(path: Path, title: str, runs: Runs) -> None:
    """Draws AUC, log loss and what happens in the table, epoch by epoch."""
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 3.8))
    for name, history in runs.items():
        numbers = [e.number for e in history]
        left.plot(numbers, [e.auc for e in history], "o-", label=name)
        test = [e.log_loss for e in history]
        (line,) = middle.plot(numbers, test, "o-", label=f"{name}, test")
        loss = [e.train_loss for e in history]
        color = line.get_color()
        middle.plot(numbers, loss, "--", color=color, label=f"{name}, training")
    _draw_table(right, next(iter(runs.values())))
    for axes, label in ((left, "test AUC"), (middle, "log loss"), (right, "table")):
        axes.set(xlabel="epoch", title=label)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    figure.suptitle(title)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def write_json(path: Path, title: str, settings: Any, runs: Runs) -> None:
    """Writes the settings and every epoch of every run."""
    content = {
        "data": title,
        "settings": dataclasses.asdict(settings),
        "runs": {
            name: [dataclasses.asdict(e) for e in history]
            for name, history in runs.items()
        },
    }
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _draw_table(axes: Any, history: Sequence[Epoch]) -> None:
    numbers = [e.number for e in history]
    for counter in ("inserted", "rows", "evicted", "refused"):
        if counter in history[0].table:
            values = [e.table[counter] for e in history]
            axes.plot(numbers, values, "o-", label=counter)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else f"{value:,}"
