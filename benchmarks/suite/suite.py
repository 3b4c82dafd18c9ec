# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""What a suite is, and what it is given to run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.table import Table

from suite.job import LOAD
from suite.runner import Runner


@dataclasses.dataclass(frozen=True)
class Choice:
    """What the user asked for; None is the suite's own choice.

    Attributes:
      cases: names of workloads.
      optimizers: which ones train.
      works: "eval", "train".
      ids: how ids are drawn.
      dtype: of rows and outputs, a name in `job.WIDTHS`.
      load: rows for each slot.
      nnx: whether to take the nnx step as well.
      shared: whether the tables of a case share arrays.
      scale: factor on rows and batches.
      busy: whether to trace the GPU.
    """

    cases: tuple[str, ...] | None = None
    optimizers: tuple[str, ...] | None = None
    works: tuple[str, ...] | None = None
    ids: tuple[str, ...] | None = None
    dtype: str = "fp32"
    load: float = LOAD
    nnx: bool = False
    shared: bool = False
    scale: float = 1.0
    busy: bool = True


@dataclasses.dataclass(frozen=True)
class Context:
    """Where and how a suite runs.

    Attributes:
      choice: what the user asked for.
      runner: measures steps.
      platform: "gpu" or "cpu".
      memory: bytes that arrays may take on the device; None if unknown.
      comparable: whether figures recorded on an H200 may stand beside this run's.
      console: for lines as they come.
    """

    choice: Choice
    runner: Runner
    platform: str
    memory: int | None
    comparable: bool
    console: Console

    def say(self, line: str) -> None:
        """Prints one line at once."""
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)


class Record(Protocol):
    """One line of a suite's table."""

    @property
    def met(self) -> bool | None:
        """Whether the target was reached; None if there is none."""
        ...

    def record(self) -> dict[str, Any]:
        """Everything as one flat JSON object."""
        ...


@dataclasses.dataclass(frozen=True)
class Suite:
    """Measurements that belong together.

    Attributes:
      help: one line for the command line.
      run: measures, and returns the records in the order of the table.
      table: lays the records out.
      plot: draws them into a PNG file.
    """

    help: str
    run: Callable[[Context], list[Any]]
    table: Callable[[Sequence[Any]], Table]
    plot: Callable[[Sequence[Any], Path], None]
