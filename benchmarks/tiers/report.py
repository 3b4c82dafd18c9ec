# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Lines of a run of bench_tiers.py, and the table that it prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from suite.workloads import Case, state_floats
from tiers.figures import PEERS, TARGETS, bus_ms, longest_allowed
from tiers.training import Figures


def line_of(
    case: Case,
    optimizer: str,
    share: float | None,
    figures: Figures,
    find_ms: float | None,
    untiered_ms: float,
) -> dict[str, Any]:
    """One line: times, what moved, what is allowed.

    Args:
      case: of the run.
      optimizer: its name.
      share: of the rows that HBM has frames for; None without a tier.
      figures: of the training step.
      find_ms: of a lookup that changes nothing; None if it was not measured.
      untiered_ms: of the training step without a tier.
    """
    line: dict[str, Any] = {
        "optimizer": optimizer,
        "share": share,
        "ms": round(figures.ms, 3),
        "rounds": [round(ms, 3) for ms in figures.rounds],
    }
    if find_ms is not None:
        line["find_ms"] = round(find_ms, 3)
        line["find_ids_per_second"] = round(case.num_ids / find_ms * 1e3)
    if share is None:
        return line
    record = 4 * (case.dim + state_floats(optimizer, case.dim))
    moved = {name: figures.events.get(name, 0.0) for name in ("promoted", "bypassed")}
    moved["written_back"] = figures.events.get("written_back", 0.0)
    rows_in = moved["promoted"] + moved["bypassed"]
    rows_out = moved["written_back"] + moved["bypassed"]
    bytes_in, bytes_out = record * rows_in, record * rows_out
    allowed = longest_allowed(untiered_ms, max(rows_in, rows_out), record)
    line |= {name: round(value) for name, value in moved.items()}
    line |= {
        "hit_rate": round(figures.events["hit_rate"], 4),
        "times_untiered": round(figures.ms / untiered_ms, 3),
        "megabytes_in": round(bytes_in / 1e6, 1),
        "megabytes_out": round(bytes_out / 1e6, 1),
        "bus_ms": round(bus_ms(max(rows_in, rows_out), record), 3),
        "allowed_ms": round(allowed, 3),
        "events": {name: round(value, 2) for name, value in figures.events.items()},
    }
    return line


def table_of(lines: Sequence[dict[str, Any]]) -> Table:
    """Makes the table that a run prints; others below ours."""
    columns = (
        "find ms",
        "hit rate",
        "x untiered",
        "promoted",
        "written back",
        "bypassed",
    )
    table = Table(
        "step", "train ms", *columns, "MB in", "MB out", "allowed ms", "target"
    )
    names = (
        "find_ms",
        "hit_rate",
        "times_untiered",
        "promoted",
        "written_back",
        "bypassed",
    )
    for line in lines:
        share = line["share"]
        where = "all rows in HBM" if share is None else f"{share:.1%} in HBM"
        target = TARGETS.get(line["optimizer"], "") if share is not None else ""
        shown = (*names, "megabytes_in", "megabytes_out", "allowed_ms")
        table.add_row(
            f"{line['optimizer']}, {where}",
            f"{line['ms']:.3f}",
            *(str(line.get(name, "")) for name in shown),
            str(target),
        )
    optimizers = {line["optimizer"] for line in lines}
    for name, figures in PEERS.items():
        for optimizer in sorted(optimizers & set(figures)):
            train, find = figures[optimizer]
            table.add_row(f"{optimizer}, {name}, elsewhere", str(train), str(find))
    return table
