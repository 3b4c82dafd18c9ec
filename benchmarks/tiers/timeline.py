# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Draws when a GPU moved records, and when it computed, in one step of each way.

    PYTHONPATH=benchmarks python -m tiers.timeline docs/images/tier_overlap.svg run.json

The file is what `bench_tier_overlap.py --json` wrote.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from suite.busy import kernels, profiled

RECORDS, TABLES, DENSE = "records", "tables", "dense part"
_COLORS = {RECORDS: "tab:orange", TABLES: "tab:blue", DENSE: "tab:gray"}
_LONG = 50_000  # ns; a shorter copy of records has hardly any

# What ran, since when and for how long, in microseconds.
Event = tuple[str, float, float]


def record(run: Callable[[], Any]) -> list[Event]:
    """Records what a GPU did in the last step but one of some; nothing elsewhere."""
    profile = profiled(lambda: jax.block_until_ready(run()))
    return [] if profile is None else _last_but_one(sorted(kernels(profile)))


def _last_but_one(events: Sequence[tuple[float, float, str]]) -> list[Event]:
    """Cuts a step out: each ends with the sums of an update."""
    ends = [start + took for start, took, name in events if "pieces_kernel" in name]
    if len(ends) < 3:
        return []
    begin, end = ends[-3], ends[-2]
    return [
        (_kind(name, took), (start - begin) / 1e3, took / 1e3)
        for start, took, name in events
        if begin <= start < end
    ]


def _kind(name: str, ns: float) -> str:
    if "swap_rows_kernel" in name and ns > _LONG:
        return RECORDS
    return TABLES if "dynemb" in name else DENSE


def draw(timelines: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draws a panel for each way; needs matplotlib.

    Args:
      timelines: the way and the events of each.
      path: of the picture.
    """
    from matplotlib import pyplot

    size = (8, 1 + 1.1 * len(timelines))
    figure, panels = pyplot.subplots(len(timelines), 1, figsize=size, sharex=True)
    for axes, timeline in zip(panels, timelines, strict=True):
        for place, kinds in enumerate(((TABLES, DENSE), (RECORDS,))):
            for kind in kinds:
                spans = [
                    (start / 1e3, took / 1e3)
                    for each, start, took in timeline["events"]
                    if each == kind
                ]
                axes.broken_barh(
                    spans, (place - 0.4, 0.8), color=_COLORS[kind], label=kind
                )
        axes.set_yticks((0, 1), ("GPU", "bus"))
        axes.set_title(timeline["way"], fontsize="medium", loc="left")
    panels[0].legend(fontsize="small", loc="upper right", ncols=3)
    panels[-1].set_xlabel("ms of a step")
    figure.tight_layout()
    figure.savefig(path, dpi=150)


def main(arguments: Sequence[str]) -> None:
    """Draws the timelines of a run."""
    picture, file = arguments
    draw(json.loads(Path(file).read_text())["timelines"], Path(picture))


if __name__ == "__main__":
    main(sys.argv[1:])
