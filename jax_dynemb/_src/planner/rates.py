# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Seconds of the four ways to run a step of a table: constants, by what is counted."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

KINDS = ("rows", "sums", "column_wise", "replicated")
DRAWN = 0.1  # weight of the rates of all kinds together, that of a step being 1
IN_ORDER = 0.1  # of the time of a byte of scattered rows, where nothing is measured


@dataclasses.dataclass(frozen=True)
class Rates:
    """Turns what a step of one kind counts into seconds, exchanged bytes left out.

    Attributes:
      call: seconds of a step, whatever its tables.
      again: seconds of each further round of exchanged rows, likewise.
      table: seconds of each table besides, in each round.
      id_byte: seconds of a byte that probes, routes and sorts touch.
      row_byte: seconds of a byte of rows, gradients and optimizer states.
      array_byte: seconds of a byte of an array that is read or written from end to end.
    """

    call: float
    again: float
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
    """Returns the rates of every kind from bytes a second and two numbers of seconds.

    ``latency`` is of a small collective, 0 on one device; ``overhead`` of a strategy's
    calls.
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
            overhead + once * latency,
            each * latency,
            1 / bandwidth,
            1 / bandwidth,
            IN_ORDER / bandwidth,
        )
        for kind, (once, each) in collectives.items()
    }


def _nnls(rows: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    from scipy.optimize import nnls  # not earlier: most processes never plan

    return nnls(rows, wanted)[0]


def fitted(steps: Sequence[tuple[str, Sequence[float], float]]) -> dict[str, Rates]:
    """Finds the rates that explain some steps, with the least relative error.

    A step is (kind, (1, further rounds, tables in all rounds, bytes of ids, of rows, of
    arrays), seconds). Each is measured with some error, and a kind has few. So what a
    byte takes in one kind is drawn a little to what it takes in all together.
    """
    relative = [np.divide(counted, seconds) for _, counted, seconds in steps]
    together = _together([kind for kind, _, _ in steps], relative)
    found = {}
    for kind in KINDS:
        mine = [
            each for (one, *_), each in zip(steps, relative, strict=True) if one == kind
        ]
        scale = _scale(mine)
        drawn = np.sqrt(DRAWN) * np.eye(len(scale))
        matrix = np.vstack([mine / scale, drawn])
        wanted = np.append(np.ones(len(mine)), drawn @ (together[kind] * scale))
        found[kind] = Rates(*(_nnls(matrix, wanted) / scale).tolist())
    return found


def _together(
    kinds: Sequence[str], relative: Sequence[np.ndarray]
) -> dict[str, np.ndarray]:
    """Fits all kinds, which differ in seconds of calls, rounds and tables only."""
    rows = []
    for kind, counted in zip(kinds, relative, strict=True):
        own = np.zeros((len(KINDS), 3))
        own[KINDS.index(kind)] = counted[:3]
        rows.append([*own.flat, *counted[3:]])
    scale = _scale(rows)
    found = _nnls(rows / scale, np.ones(len(rows))) / scale
    own, bytes_of_all = np.split(found, [3 * len(KINDS)])
    own = own.reshape(-1, 3)
    return {k: np.append(own[n], bytes_of_all) for n, k in enumerate(KINDS)}


def _scale(rows: Any) -> np.ndarray:
    largest = np.abs(np.asarray(rows)).max(axis=0)
    return np.where(largest > 0, largest, 1.0)


def rates_of(given: Mapping[str, Rates] | None) -> Mapping[str, Rates] | None:
    """Checks rates that a user gave; ValueError if a kind is missing or unknown."""
    if given is not None and set(given) != set(KINDS):
        raise ValueError(
            f"Topology: rates must have the kinds {KINDS}, not {sorted(given)}; "
            "Topology.measure(mesh) fills them in."
        )
    return given
