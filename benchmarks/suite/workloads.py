# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The workloads of every measurement: table shapes, ids, and the fewest bytes to move.

Only NumPy is needed: this file alone can be copied to where a peer is measured.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

POWER = 1.05  # chance of the id of rank r falls as r ** -POWER


@dataclasses.dataclass(frozen=True)
class Case:
    """Shape of a workload.

    Attributes:
      tables: number of tables.
      rows: distinct ids of each table.
      dim: floats of a row.
      batch: bags of a batch, for each table.
      bag: ids of a bag.
      pooled: whether a bag becomes one output row, its sum; else every id has its own.
    """

    tables: int
    rows: int
    dim: int
    batch: int
    bag: int
    pooled: bool

    @property
    def ids_per_table(self) -> int:
        """Ids that a batch looks up in each table."""
        return self.batch * self.bag

    @property
    def num_ids(self) -> int:
        """Ids of a batch, all tables together."""
        return self.tables * self.ids_per_table

    @property
    def num_outputs(self) -> int:
        """Rows that a lookup returns, all tables together."""
        return self.tables * self.batch if self.pooled else self.num_ids

    def scaled(self, factor: float) -> Case:
        """The same case with `factor` times the rows and the batch."""
        if factor == 1:
            return self
        rows, batch = max(512, self.rows * factor), max(16, self.batch * factor)
        return dataclasses.replace(self, rows=int(rows), batch=int(batch))


GPU_CASES = {
    "a": Case(1, 10_000_000, 128, 65_536, 1, True),
    "b": Case(1, 10_000_000, 128, 16_384, 20, True),
    "c": Case(26, 1_000_000, 128, 16_384, 10, True),
    "c64": Case(26, 1_000_000, 64, 16_384, 10, True),
    "d": Case(1, 10_000_000, 128, 1_048_576, 1, False),
    "e": Case(10, 1_677_721, 128, 104_857, 1, False),
}
CPU_CASES = {
    "p": Case(1, 1_000_000, 64, 8_192, 10, True),
    "q": Case(26, 100_000, 32, 2_048, 1, True),
    "r": Case(1, 1_000_000, 128, 65_536, 1, False),
}
# A million lookups of narrow rows.
NARROW_CASES = {
    f"d{dim}": Case(1, 10_000_000, dim, 1_048_576, 1, False) for dim in (8, 16, 32)
}
CASES = GPU_CASES | CPU_CASES | NARROW_CASES
DISTRIBUTIONS = ("zipf", "uniform", "hot", "same", "fresh")


def draw(
    distribution: str, count: int, rows: int, rng: np.random.Generator
) -> np.ndarray:
    """Draws ids, `int64[count]`, from [0, rows).

    Args:
      distribution: "uniform", or "zipf": a power law over ranks, by the inverse of its
        continuous distribution function, the ranks then scattered over the ids.
      count: how many.
      rows: how many different ids there are.
      rng: source of randomness; one uniform number is used for each id.

    Raises:
      ValueError: the distribution has another name.
    """
    u = rng.random(count)
    if distribution == "uniform":
        return np.minimum((u * rows).astype(np.int64), rows - 1)
    if distribution == "zipf":
        return _scatter(power_law_ranks(u, rows).astype(np.int64), rows)
    raise ValueError(f"unknown distribution {distribution!r}: use 'zipf' or 'uniform'.")


def batch_ids(case: Case, distribution: str, seed: int) -> np.ndarray:
    """Draws the ids of one batch, `int64[tables, batch * bag]`.

    Beside those of `draw`: "fresh" gives ids of which no two are equal, for tables that
    have never seen them; "hot" is "zipf" with every second place, at random, taken by
    one id; "same" is that id everywhere.
    """
    rng = np.random.default_rng(seed)
    count, tables = case.ids_per_table, range(case.tables)
    if distribution == "fresh":
        ids = np.stack([rng.permutation(count) for _ in tables])
        return ids + (np.int64(seed + 1) << 32)  # beyond every id of the other batches
    hot = np.int64(case.rows // 2)
    if distribution == "same":
        return np.full((case.tables, count), hot)
    if distribution == "hot":
        ids = np.stack([draw("zipf", count, case.rows, rng) for _ in tables])
        return np.where(rng.random(ids.shape) < 0.5, hot, ids)
    return np.stack([draw(distribution, count, case.rows, rng) for _ in tables])


def distinct_rows(ids: np.ndarray) -> int:
    """Counts distinct ids of `[tables, n]`, each table for itself."""
    return sum(len(np.unique(table)) for table in ids)


def state_floats(optimizer: str, dim: int) -> int:
    """Floats of optimizer state beside a row of width `dim`."""
    return {"sgd": 0, "rowwise_adagrad": 1, "adagrad": dim, "adam": 2 * dim}[optimizer]


def minimum_bytes(
    case: Case,
    unique_rows: int,
    optimizer: str | None,
    width: int = 4,
    output_width: int = 4,
) -> int:
    """Fewest bytes that a step can move through memory.

    Forward: each distinct row once, the ids once, the outputs once. With an optimizer
    also backward: the gradients of the outputs and the ids once, each distinct row and
    its state read and written once.

    Args:
      case: the workload.
      unique_rows: distinct rows that the batch touches, all tables together.
      optimizer: name of the optimizer, or None for a lookup alone.
      width: bytes of one stored embedding element.
      output_width: bytes of one element of an output or its gradient.
    """
    ids = case.num_ids * 8
    outputs = case.num_outputs * case.dim * output_width
    rows = unique_rows * case.dim * width
    if optimizer is None:
        return rows + ids + outputs
    state = unique_rows * state_floats(optimizer, case.dim) * 4
    return (rows + ids + outputs) + (outputs + ids + 2 * rows + 2 * state)


def power_law_ranks(uniform: Any, rows: int, power: float = POWER) -> Any:
    """Turns uniform numbers into ranks of ids, the most frequent one first.

    Args:
      uniform: float[...] in [0, 1), of NumPy or JAX.
      rows: how many ids there are.
      power: the chance of rank r falls as ``r ** -power``; not 1.

    Returns:
      float[...] in [0, rows - 1]; a rank is what remains without its fraction.
    """
    rest = 1.0 - power
    rank = (1.0 + uniform * ((rows + 1.0) ** rest - 1.0)) ** (1.0 / rest)
    return (rank - 1.0).clip(0, rows - 1)


def _scatter(rank: np.ndarray, rows: int) -> np.ndarray:
    """Maps ranks to ids one to one, so that popular ids are no neighbours."""
    factor = int(rows * 0.6180339887) | 1
    while math.gcd(factor, rows) != 1:
        factor += 2
    return rank * factor % rows
