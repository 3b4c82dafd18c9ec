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
      jagged: whether bags differ in length, ``bag`` being their mean.
    """

    tables: int
    rows: int
    dim: int
    batch: int
    bag: int
    pooled: bool
    jagged: bool = False

    @property
    def parts(self) -> tuple[Case, ...]:
        """The case of each table alone."""
        return (dataclasses.replace(self, tables=1),) * self.tables

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

    @property
    def bag_lengths(self) -> np.ndarray:
        """Ids of each output row of one table, `int32[num_outputs]`."""
        if self.jagged:
            return lengths_of(self)
        count = self.batch if self.pooled else self.ids_per_table
        return np.full(count, self.ids_per_table // count, np.int32)

    def scaled(self, factor: float) -> Case:
        """The same case with `factor` times the rows and the batch."""
        if factor == 1:
            return self
        least = min(512, self.rows)  # tables of few rows keep them
        rows, batch = max(least, self.rows * factor), max(16, self.batch * factor)
        return dataclasses.replace(self, rows=int(rows), batch=int(batch))


@dataclasses.dataclass(frozen=True)
class Mixed:
    """Tables of different shapes that are looked up together.

    Attributes:
      parts: the case of each table alone.
    """

    parts: tuple[Case, ...]

    @property
    def tables(self) -> int:
        """Number of tables."""
        return len(self.parts)

    @property
    def num_ids(self) -> int:
        """Ids of a batch, all tables together."""
        return sum(part.num_ids for part in self.parts)

    def scaled(self, factor: float) -> Mixed:
        """The same tables with `factor` times the rows and the batch."""
        return Mixed(tuple(part.scaled(factor) for part in self.parts))


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
# What users bring: the columns of Criteo's click log, jagged bags of many widths,
# histories, rows whose width is no power of two, and small batches of a server.
_CRITEO = (
    *(1460, 583, 10_131_227, 2_202_608, 305, 24, 12_517, 633, 3, 93_145, 5683),
    *(8_351_593, 3194, 27, 14_992, 5_461_306, 10, 5652, 2173, 4, 7_046_547, 18, 15),
    *(286_181, 105, 142_572),
)
_BAGS = {8: 2, 16: 5, 32: 10, 48: 25, 64: 3, 100: 8, 128: 12, 256: 20}
MIXED_CASES = {
    "criteo": Mixed(tuple(Case(1, rows, 16, 16_384, 1, True) for rows in _CRITEO)),
    "mixed": Mixed(
        tuple(
            Case(1, 1_000_000, dim, 16_384, bag, True, jagged=True)
            for dim, bag in _BAGS.items()
        )
    ),
}
USED_CASES = {"history": Case(1, 10_000_000, 64, 2048, 200, False)}
USED_CASES |= {
    f"w{dim}": Case(1, 1_000_000, dim, 32_768, 10, True, jagged=True)
    for dim in (1, 4, 20, 48, 100, 200, 300, 768)
}
USED_CASES |= {
    f"serve{batch}": Case(26, 100_000, 32, batch, 1, True)
    for batch in (64, 256, 1024, 4096)
}
# The same on a CPU: 40,960 ids a step from 300,000 rows, but for columns of Criteo.
_CPU_ROWS, _CPU_IDS = 300_000, 40_960
CPU_USED_CASES = {
    f"u{dim}x{bag}": Case(1, _CPU_ROWS, dim, _CPU_IDS // bag, bag, True)
    for dim in (8, 16, 48, 100, 300)
    for bag in (1, 2, 5, 10, 20, 40)
}
CPU_USED_CASES |= {
    f"j{dim}": Case(1, _CPU_ROWS, dim, _CPU_IDS // 10, 10, True, jagged=True)
    for dim in (8, 16, 48)
}
CPU_USED_CASES |= {"s64": Case(1, _CPU_ROWS, 64, _CPU_IDS // 200, 200, False)}
CPU_MIXED_CASES = {
    "criteo_cpu": Mixed(
        tuple(
            Case(1, min(rows, _CPU_ROWS), 16, _CPU_IDS // len(_CRITEO), 1, True)
            for rows in _CRITEO
        )
    )
}
CASES = GPU_CASES | CPU_CASES | NARROW_CASES | USED_CASES | CPU_USED_CASES
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


def lengths_of(case: Case) -> np.ndarray:
    """Draws how many ids each bag of a jagged table has, `int32[batch]`.

    Most bags are short, some are empty and a few are long; all batches have the same.
    """
    rng = np.random.default_rng(case.dim)
    shares = rng.exponential(size=case.batch)
    lengths = rng.multinomial(case.ids_per_table, shares / shares.sum())
    return lengths.astype(np.int32)


def mixed_ids(case: Mixed, distribution: str, seed: int) -> list[np.ndarray]:
    """Draws the ids of one batch, `int64[n]` of each table; see `batch_ids`."""
    parts = enumerate(case.parts)
    return [batch_ids(part, distribution, seed * 1000 + i)[0] for i, part in parts]


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


def distinct_rows(ids: Any) -> int:
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
