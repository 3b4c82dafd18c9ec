# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Draws the ids of a long run: no batch comes twice, as a cache meets them."""

from __future__ import annotations

import concurrent.futures
import dataclasses

import numpy as np

from suite.workloads import Case, draw

# Tables of workload t: more rows than a cache holds, in the memory of one GPU.
WORKLOAD = Case(10, 2_700_000, 128, 104_857, 1, False)


@dataclasses.dataclass(frozen=True)
class Stream:
    """Batches of a case, each drawn from its own number.

    Attributes:
      case: tables, rows and ids of a batch.
      distribution: of the ids, as `suite.workloads.draw` has it.
      seed: of all batches.
    """

    case: Case
    distribution: str
    seed: int = 0

    def batch(self, number: int) -> np.ndarray:
        """Draws the ids of one batch, `int64[tables, ids]`."""
        rng = np.random.default_rng([self.seed, number])
        count, rows = self.case.ids_per_table, self.case.rows
        tables = range(self.case.tables)
        return np.stack([draw(self.distribution, count, rows, rng) for _ in tables])

    def batches(self, first: int, last: int) -> list[np.ndarray]:
        """Draws the batches from `first` on, up to before `last`, with all cores."""
        with concurrent.futures.ThreadPoolExecutor() as threads:
            return list(threads.map(self.batch, range(first, last)))

    def everything(self) -> list[np.ndarray]:
        """Batches that contain every id once, and then some again to fill the last."""
        count, rows = self.case.ids_per_table, self.case.rows
        steps = range(0, rows, count)
        return [
            np.stack([(np.arange(count) + first) % rows] * self.case.tables)
            for first in steps
        ]
