# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""What a run of the benchmark measures."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

import timing
import workloads
from figures import Figure
from workloads import Case

OPTIMIZERS = ("sgd", "rowwise_adagrad", "adagrad", "adam")
WORKS = ("eval", *OPTIMIZERS)
DISTRIBUTIONS = ("zipf", "uniform", "fresh")
BATCHES = 4  # different ones, used in turn


@dataclasses.dataclass(frozen=True)
class Plan:
    """What to measure.

    Attributes:
      cases: name and shape of each workload.
      works: "eval" and names of optimizers.
      distributions: how ids are drawn; "fresh" comes last, as it empties the tables.
      fresh_works: works to run on fresh ids.
      effort: how long to measure.
      bytes_per_second: speed of a copy, for the floor.
    """

    cases: dict[str, Case]
    works: tuple[str, ...]
    distributions: tuple[str, ...]
    fresh_works: tuple[str, ...]
    effort: timing.Effort
    bytes_per_second: float


@dataclasses.dataclass(frozen=True)
class Job:
    """One measurement to make: a case, how its ids are drawn, and the work."""

    plan: Plan
    name: str
    case: Case
    ids: str
    work: str

    @property
    def optimizer(self) -> str | None:
        """Which optimizer trains; None for a lookup alone."""
        return None if self.work == "eval" else self.work

    @property
    def batches(self) -> list[np.ndarray]:
        """The ids of the batches, each `int64[tables, n]`."""
        return _batches(_shape(self.case), self.ids)

    def figure(self, peer: str, times: list[float], **extra) -> Figure:
        """Turns the seconds of each repeat into a record."""
        unique = _distinct(_shape(self.case), self.ids)
        floor = workloads.minimum_bytes(self.case, unique, self.optimizer)
        return Figure(
            peer=peer,
            case=self.name,
            ids=self.ids,
            work="eval" if self.optimizer is None else "train",
            optimizer=self.optimizer,
            ms=timing.milliseconds(times),
            least_ms=min(times) * 1e3,
            floor_ms=floor / self.plan.bytes_per_second * 1e3,
            **extra,
        )


def _shape(case: Case) -> Case:
    """What ids depend on: cases that differ in width only share theirs."""
    return dataclasses.replace(case, dim=1)


# The same ids serve every work of a case; those of the last two cases are kept.
@functools.lru_cache(maxsize=6)
def _batches(case: Case, distribution: str) -> list[np.ndarray]:
    count = 1 if distribution == "fresh" else BATCHES
    return [workloads.batch_ids(case, distribution, seed) for seed in range(count)]


@functools.lru_cache(maxsize=6)
def _distinct(case: Case, distribution: str) -> int:
    return workloads.distinct_rows(_batches(case, distribution)[0])
