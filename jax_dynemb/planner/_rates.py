# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Seconds of the four ways to run a step of a table: constants, by what is counted."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

KINDS = ("rows", "sums", "column_wise", "replicated")
IN_ORDER = 0.1  # of the time of a byte of scattered rows, where nothing is measured


@dataclasses.dataclass(frozen=True)
class Rates:
    """Turns what a step of one kind counts into seconds, exchanged bytes left out.

    Attributes:
      call: seconds of a step, whatever its tables.
      table: seconds of each table besides.
      id_byte: seconds of a byte that probes, routes and sorts touch.
      row_byte: seconds of a byte of rows, gradients and optimizer states.
      array_byte: seconds of a byte of an array that is read or written from end to end.
    """

    call: float
    table: float
    id_byte: float
    row_byte: float
    array_byte: float

    def __post_init__(self) -> None:
        """Checks the numbers.

        Raises:
          ValueError: one is negative.
        """
        if min(dataclasses.astuple(self)) < 0:
            raise ValueError(f"{self}: seconds are 0 or more; measure them again.")


def derived(bandwidth: float, latency: float, overhead: float) -> dict[str, Rates]:
    """Returns the rates of every kind where only a bandwidth is known.

    Args:
      bandwidth: bytes a second in the memory of a device.
      latency: seconds of a small collective; 0 on one device.
      overhead: seconds of the calls of a strategy.
    """
    collectives = {  # (of a step, of each table)
        "rows": (3, 0),
        "sums": (3, 0),
        "column_wise": (1, 2),
        "replicated": (0, 2),
    }
    return {
        kind: Rates(
            overhead + once * latency,
            each * latency,
            1 / bandwidth,
            1 / bandwidth,
            IN_ORDER / bandwidth,
        )
        for kind, (once, each) in collectives.items()
    }


def fitted(counted: Sequence[Sequence[float]], seconds: Sequence[float]) -> Rates:
    """Finds the rates that explain some steps, with the least relative error.

    Args:
      counted: of each step (calls, tables, bytes of ids, of rows, of arrays).
      seconds: of each step.
    """
    matrix = np.asarray(counted, float) / np.asarray(seconds, float)[:, None]
    scale = np.abs(matrix).max(axis=0)
    scale[scale == 0] = 1.0
    solution = _nonnegative(matrix / scale, np.ones(len(seconds))) / scale
    return Rates(*solution.tolist())


def _nonnegative(matrix: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Solves least squares without negative numbers, by trying every support."""
    count = matrix.shape[1]
    best, least = np.zeros(count), np.inf
    for mask in range(1, 1 << count):
        some = [n for n in range(count) if mask >> n & 1]
        found = np.linalg.lstsq(matrix[:, some], wanted, rcond=None)[0]
        error = float(((matrix[:, some] @ found - wanted) ** 2).sum())
        if (found >= 0).all() and error < least - 1e-12:
            best, least = np.zeros(count), error
            best[some] = found
    return best


def rates_of(given: Mapping[str, Rates] | None) -> Mapping[str, Rates] | None:
    """Checks rates that a user gave.

    Raises:
      ValueError: a kind is missing or unknown.
    """
    if given is not None and set(given) != set(KINDS):
        raise ValueError(
            f"Topology: rates must have the kinds {KINDS}, not {sorted(given)}; "
            "Topology.measure(mesh) fills them in."
        )
    return given
