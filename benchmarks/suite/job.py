# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""One measurement to make: a workload, how its ids are drawn, and the work."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax

from suite import workloads
from suite.workloads import Case, Mixed

OPTIMIZERS = ("sgd", "rowwise_adagrad", "adagrad", "adam")
STEPS = ("jax", "nnx")
LOAD = 2 / 3  # rows for each slot, as the peers had it
FULL = 1.0  # load from which every insert is to evict
BATCHES = 4  # different ones, used in turn, so that no step finds its rows in a cache
MOST_FRESH_STEPS = 100

INDEX_BYTES = 17  # of a slot: digest, key, score

# Bytes of one element of a stored row, and of an output or its gradient.
WIDTHS = {"fp32": (4, 4), "bf16": (2, 2), "bf16_rows": (2, 4)}


@dataclasses.dataclass(frozen=True)
class Job:
    """One measurement.

    Attributes:
      name: of the case.
      case: shape of the workload.
      ids: how ids are drawn, one of `workloads.DISTRIBUTIONS`.
      optimizer: which one trains; None for a lookup alone.
      dtype: "fp32"; "bf16": stored rows and outputs; "bf16_rows": stored rows alone.
      load: rows for each slot of the tables.
      step: "jax": `Tables.lookup` and `apply_gradients` under `jax.jit`; "nnx": a
        model with no dense part, through `jde.nnx`.
      shared: whether the tables share arrays.
    """

    name: str
    case: Case | Mixed
    ids: str = "zipf"
    optimizer: str | None = None
    dtype: str = "fp32"
    load: float = LOAD
    step: str = "jax"
    shared: bool = False

    @property
    def work(self) -> str:
        """The name of the work in records: "eval" or "train"."""
        return "eval" if self.optimizer is None else "train"

    @property
    def label(self) -> str:
        """The work in words."""
        words = [self.work, self.optimizer or ""]
        words += [self.dtype] if self.dtype != "fp32" else []
        words += [f"load {self.load:.2f}"] if self.load != LOAD else []
        words += [self.step] if self.step != "jax" else []
        words += ["shared"] if self.shared else []
        return " ".join(filter(None, words))

    @property
    def fresh(self) -> bool:
        """Whether no id was ever seen before."""
        return self.ids == "fresh"

    @property
    def starts_empty(self) -> bool:
        """Whether each repeat starts from empty tables, and ends when they are filled.

        Otherwise there are as many steps as it takes to measure.
        """
        return self.fresh and self.load < FULL

    @property
    def num_batches(self) -> int:
        """How many batches take turns on the device.

        Of fresh ids one for each step; in full tables as many as push each other out
        before they come again, which is when twice as many ids have come as there are
        slots.
        """
        if not self.fresh:
            return BATCHES
        first = self.case.parts[0]
        per_table = first.ids_per_table
        if self.load < FULL:
            return max(1, min(MOST_FRESH_STEPS, first.rows // per_table))
        return -(-2 * int(first.rows / self.load) // per_table)

    @property
    def tables(self) -> tuple[Case | Mixed, str, float, bool]:
        """What the filled tables depend on, but for optimizer states."""
        return self.case, self.dtype, self.load, self.shared

    def batches(self) -> list[Any]:
        """The ids of the batches, each `int64[n]` of every table."""
        return _batches(_shape(self.case), self.ids)

    def floor_bytes(self) -> int:
        """Fewest bytes that a step can move through memory."""
        distinct = _distinct(_shape(self.case), self.ids)
        return sum(
            workloads.minimum_bytes(part, count, self.optimizer, *WIDTHS[self.dtype])
            for part, count in zip(self.case.parts, distinct, strict=True)
        )

    def memory(self) -> int:
        """About how many bytes the tables, ids, outputs and gradients take."""
        width, output_width = WIDTHS[self.dtype]
        result = self.num_batches * 8 * self.case.num_ids
        for part in self.case.parts:
            state = workloads.state_floats(self.optimizer or "sgd", part.dim) * 4
            slot = part.dim * width + state + INDEX_BYTES
            result += int(part.rows / self.load) * slot
            result += 2 * part.num_outputs * part.dim * output_width
        return result

    def scratch_limit(self) -> int:
        """Bytes a step may take beside tables and outputs.

        64 for each id, and one gradient row for each 16 ids.
        """
        row = max(part.dim for part in self.case.parts) * WIDTHS[self.dtype][1]
        return self.case.num_ids * 64 + self.case.num_ids // 16 * row


def gradients(case: Case | Mixed, dtype: str) -> list[jax.Array]:
    """Makes the fixed gradients of the outputs of each table."""
    keys = jax.random.split(jax.random.key(0), case.tables)
    shapes = [(part.num_outputs, part.dim) for part in case.parts]
    pairs = zip(keys, shapes, strict=True)
    return [_small_normal(key, shape, dtype) for key, shape in pairs]


@functools.partial(jax.jit, static_argnums=(1, 2))
def _small_normal(key: jax.Array, shape: tuple[int, ...], dtype: str) -> jax.Array:
    return (jax.random.normal(key, shape) * 1e-3).astype(dtype)


def _shape(case: Case | Mixed) -> Case | Mixed:
    """What ids depend on: cases that differ in width only share theirs."""
    if isinstance(case, Mixed):
        return Mixed(tuple(dataclasses.replace(part, dim=1) for part in case.parts))
    return dataclasses.replace(case, dim=1)


# The same ids serve every work of a case; those of the last few cases are kept.
@functools.lru_cache(maxsize=6)
def _batches(case: Case | Mixed, distribution: str) -> list[Any]:
    count = 1 if distribution in ("fresh", "same") else BATCHES
    if isinstance(case, Mixed):
        return [workloads.mixed_ids(case, distribution, seed) for seed in range(count)]
    return [workloads.batch_ids(case, distribution, seed) for seed in range(count)]


@functools.cache
def _distinct(case: Case | Mixed, distribution: str) -> list[int]:
    """The distinct rows of each table in a batch."""
    if distribution == "fresh":
        return [part.num_ids for part in case.parts]
    batch = _batches(case, distribution)[0]
    return [workloads.distinct_rows([ids]) for ids in batch]
