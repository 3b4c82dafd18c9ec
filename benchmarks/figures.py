# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""What has been measured: one record a line of the table, beside peers and targets."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

HERE = Path(__file__).parent
# Plain JAX is one column: the fastest of its sparse ways.
PEERS = {
    "FBGEMM (static)": ("fbgemm-tbe",),
    "DynamicEmb": ("dynamicemb",),
    "plain JAX (static)": ("jax take", "jax sparse", "jax direct", "jax segsum"),
}


@dataclasses.dataclass(frozen=True)
class Figure:
    """One measurement.

    Attributes:
      peer: which library.
      case: which workload.
      ids: how ids are drawn: "zipf", "uniform", "fresh".
      work: "eval" or "train".
      optimizer: which optimizer trains; None for "eval".
      ms: milliseconds of a step, the median of the repeats.
      least_ms: of the fastest repeat.
      floor_ms: milliseconds that the fewest bytes take at the speed of a copy.
      temp_bytes: scratch memory of the compiled step; None if unknown.
      stats: counters of the tables after the last step, summed over tables.
    """

    peer: str
    case: str
    ids: str
    work: str
    optimizer: str | None
    ms: float
    least_ms: float
    floor_ms: float
    temp_bytes: int | None = None
    stats: dict[str, float] = dataclasses.field(default_factory=dict)

    @property
    def label(self) -> str:
        """The work in words."""
        return self.work if self.optimizer is None else f"train {self.optimizer}"

    def same_work(self, other: dict) -> bool:
        """Whether a record of a file measures the same."""
        mine = (self.case, self.ids, self.work, self.optimizer)
        return mine == tuple(other[k] for k in ("case", "ids", "work", "optimizer"))


def recorded(name: str) -> list[dict]:
    """Reads the records of a JSON file beside this one."""
    return json.loads((HERE / name).read_text(encoding="utf-8"))


def step_table(figures: Sequence[Figure], *, on_h200: bool) -> Table:
    """Lays figures out, on an H200 beside recorded peers and targets."""
    table = Table(title="one step, milliseconds")
    for name in ("library", "case", "ids", "work"):
        table.add_column(name)
    names = ["ms", "floor", "ms/floor", "temp MiB"]
    for name in names + (["target", *PEERS] if on_h200 else []):
        table.add_column(name, justify="right")
    peers, targets = recorded("peers_h200.json"), recorded("targets_h200.json")
    for figure in figures:
        cells = _own_cells(figure)
        if on_h200:
            cells += [_target(figure, targets)]
            cells += [_best(figure, peers, names) for names in PEERS.values()]
        table.add_row(*cells)
    return table


def write_json(path: Path, device: str, figures: Sequence[Figure]) -> None:
    """Writes figures, each with the device they were measured on."""
    rows = [{"device": device, **dataclasses.asdict(figure)} for figure in figures]
    path.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def _own_cells(figure: Figure) -> list[str]:
    temp = "" if figure.temp_bytes is None else f"{figure.temp_bytes / 2**20:.1f}"
    ratio = f"{figure.ms / figure.floor_ms:.2f}"
    own = [f"{figure.ms:.3f}", f"{figure.floor_ms:.3f}", ratio, temp]
    return [figure.peer, figure.case, figure.ids, figure.label, *own]


def _target(figure: Figure, targets: list[dict]) -> str:
    found = [record["ms"] for record in targets if figure.same_work(record)]
    if not found:
        return ""
    return f"{found[0]:.2f} {'met' if figure.ms <= found[0] else 'missed'}"


def _best(figure: Figure, peers: list[dict], names: tuple[str, ...]) -> str:
    same = (peer for peer in peers if figure.same_work(peer) and peer["peer"] in names)
    best = min((peer["ms"] for peer in same), default=None)
    return "" if best is None else f"{best:.3f} ({best / figure.ms:.1f}x)"
