# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The reasons for a sharding plan, how even it is, and the plan as plain text."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Self

from jax_dynemb._src.engines.hash import TablePlan

MB = 1e6


@dataclasses.dataclass(frozen=True)
class TableChoice:
    """Why a table lies where it does. Times are those that the planner predicts.

    Attributes:
      table: its name.
      sharding: what was chosen.
      ms: of a step, on a device that holds rows of it.
      pooling_factor: ids of a bag, over all features.
      dim: columns of the table.
      rows: slots of the whole table.
      others: by other sharding, its ms if tables lie evenly, or why it is impossible.
    """

    table: str
    sharding: str
    ms: float
    pooling_factor: float
    dim: int
    rows: int
    others: dict[str, float | str]


@dataclasses.dataclass(frozen=True)
class DeviceLoad:
    """Says what one device has to hold and to do in a step.

    Attributes:
      device: its number along the axis.
      table_bytes: of tables and their optimizer states.
      batch_bytes: of ids, rows, gradients and buffers of exchanges.
      forward_ms: lookups.
      forward_exchange_ms: ids and rows between devices.
      backward_ms: updates.
      backward_exchange_ms: gradients between devices.
      id_bytes: handed to the exchange of ids.
      row_bytes: handed to the exchange of rows.
      tables: by sharding, how many have rows here.
    """

    device: int
    table_bytes: int
    batch_bytes: int
    forward_ms: float
    forward_exchange_ms: float
    backward_ms: float
    backward_exchange_ms: float
    id_bytes: int
    row_bytes: int
    tables: dict[str, int]

    @property
    def ms(self) -> float:
        """Returns the time of a whole step."""
        forward = self.forward_ms + self.forward_exchange_ms
        return forward + self.backward_ms + self.backward_exchange_ms


def text_of(
    tables: Sequence[TablePlan],
    choices: Sequence[TableChoice],
    devices: Sequence[DeviceLoad],
    imbalance: Imbalance,
) -> str:
    """Returns three tables: devices, tables, and how even the devices are."""
    even = ", ".join(
        f"{name.replace('_', ' ')} {value:.4f}"
        for name, value in dataclasses.asdict(imbalance).items()
    )
    return "\n\n".join(
        [
            _columns([_device(*each) for each in _distinct(devices)]),
            _columns([_table(*each) for each in zip(tables, choices, strict=True)]),
            f"imbalance of ms: {even}",
        ]
    )


def _distinct(devices: Sequence[DeviceLoad]) -> list[tuple[str, DeviceLoad]]:
    """Joins devices with equal loads: their numbers, and one of them."""
    groups: dict[str, list[DeviceLoad]] = {}
    for device in devices:
        key = str(dataclasses.replace(device, device=0))
        groups.setdefault(key, []).append(device)
    return [(_numbers([d.device for d in some]), some[0]) for some in groups.values()]


def _numbers(numbers: Sequence[int]) -> str:
    """Writes runs of numbers as ranges: "0-3,7"."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and runs[-1][1] == n - 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _device(numbers: str, load: DeviceLoad) -> list[tuple[str, str]]:
    """Returns the head and the cell of each column."""
    kinds = ", ".join(f"{count} {kind}" for kind, count in load.tables.items())
    return [
        ("device", numbers),
        ("tables MB", f"{load.table_bytes / MB:,.1f}"),
        ("batch MB", f"{load.batch_bytes / MB:,.1f}"),
        ("ms", f"{load.ms:.3f}"),
        ("forward", f"{load.forward_ms:.3f}"),
        ("exchange", f"{load.forward_exchange_ms:.3f}"),
        ("backward", f"{load.backward_ms:.3f}"),
        ("exchange", f"{load.backward_exchange_ms:.3f}"),
        ("ids MB", f"{load.id_bytes / MB:,.2f}"),
        ("rows MB", f"{load.row_bytes / MB:,.2f}"),
        ("tables by sharding", kinds),
    ]


def _table(table: TablePlan, choice: TableChoice) -> list[tuple[str, str]]:
    return [
        ("table", table.table),
        ("sharding", choice.sharding),
        ("MB a device", f"{table.bytes / MB:,.1f}"),
        ("ms", f"{choice.ms:.3f}"),
        ("pooling", f"{choice.pooling_factor:g}"),
        ("dim", str(choice.dim)),
        ("rows", f"{choice.rows:,}"),
        ("devices", _numbers(table.shards)),
        ("instead", _instead(choice)),
    ]


def _instead(choice: TableChoice) -> str:
    """Returns what the other shardings would have cost."""
    return "; ".join(
        f"{kind} {value:.3f} ms" if isinstance(value, float) else f"{kind}: {value}"
        for kind, value in choice.others.items()
    )


def _columns(table: Sequence[Sequence[tuple[str, str]]]) -> str:
    rows = [[cell for _, cell in row] for row in table]
    lines = [[head for head, _ in table[0]], *rows] if table else [[]]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if _is_word(rows, i) else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _is_word(rows: Sequence[Sequence[str]], column: int) -> bool:
    return not all(row[column].replace(",", "")[:1].isdigit() for row in rows)


@dataclasses.dataclass(frozen=True)
class Imbalance:
    """Compares the shares that devices have with equal ones.

    All but the first are 0 for equal loads, and 1 where one device has everything.

    Attributes:
      max_over_mean: the largest load, as a multiple of the mean.
      total_variation: the largest difference of a share from an equal one.
      total_distance: the sum of the differences.
      chi_squared: the sum of their squares.
      kl_divergence: the relative entropy of the shares.
    """

    max_over_mean: float = 1.0
    total_variation: float = 0.0
    total_distance: float = 0.0
    chi_squared: float = 0.0
    kl_divergence: float = 0.0

    @classmethod
    def of(cls, loads: Sequence[float]) -> Self:
        """Computes the numbers of some loads, which are not below 0."""
        count, total = len(loads), sum(loads)
        if count < 2 or not 0 < total < math.inf:
            return cls()
        equal = 1 / count
        shares = [load / total for load in loads]
        apart = [abs(share - equal) for share in shares]
        entropy = math.fsum(s * math.log(s * count) for s in shares if s > 0)
        return cls(
            max(shares) * count,
            max(apart) / (1 - equal),
            math.fsum(apart) / (2 * (1 - equal)),
            math.fsum(x * x for x in apart) * count / (count - 1),
            max(0.0, entropy) / math.log(count),
        )
