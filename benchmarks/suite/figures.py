# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""What has been measured of steps, and what was recorded of peers and targets."""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path
from typing import Any

from suite.busy import Busy
from suite.job import LOAD, Job

# Plain JAX is one column: the fastest of its sparse ways.
PEERS = {
    "FBGEMM": ("fbgemm-tbe",),
    "DynamicEmb": ("dynamicemb",),
    "plain JAX": ("jax take", "jax sparse", "jax direct", "jax segsum"),
}


@dataclasses.dataclass(frozen=True)
class Figure:
    """One measured step.

    Attributes:
      suite: which suite measured it.
      job: what was measured.
      ms: milliseconds of a step, the median of the repeats.
      least_ms: of the fastest repeat.
      floor_ms: milliseconds that the fewest bytes take at the speed of a copy.
      scratch_bytes: temporary memory of the compiled step; None if unknown.
      in_place: whether the compiled step aliases every table array; None if unknown.
      stats: counters of the tables after the last step, summed over tables.
      busy: what the GPU did; None if unknown.
      target_ms: what the step should take at most; None if nobody said.
      target: where the target comes from.
      peers: milliseconds that others take for the same work, by name.
    """

    suite: str
    job: Job
    ms: float
    least_ms: float
    floor_ms: float
    scratch_bytes: int | None = None
    in_place: bool | None = None
    stats: dict[str, float] = dataclasses.field(default_factory=dict)
    busy: Busy | None = None
    target_ms: float | None = None
    target: str = ""
    peers: dict[str, float] = dataclasses.field(default_factory=dict)

    @property
    def met(self) -> bool | None:
        """Whether the target was reached; None if there is none."""
        return None if self.target_ms is None else self.ms <= self.target_ms

    def record(self) -> dict[str, Any]:
        """Everything as one flat JSON object."""
        job, busy = self.job, self.busy
        own = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in ("suite", "job", "busy")
        }
        traced = {} if busy is None else {"busy_ms": busy.ms, "kernels": busy.kernels}
        traced |= {} if busy is None else {"kernel_us": busy.by_name}
        return {
            "suite": self.suite,
            "case": job.name,
            "shape": dataclasses.asdict(job.case),
            "ids": job.ids,
            "work": job.work,
            "optimizer": job.optimizer,
            "dtype": job.dtype,
            "load": job.load,
            "step": job.step,
            "shared": job.shared,
            "num_ids": job.case.num_ids,
            "scratch_limit": job.scratch_limit(),
            **own,
            **traced,
            "met": self.met,
        }


@functools.cache
def recorded(name: str) -> list[dict[str, Any]]:
    """Reads the records of a JSON file of this package."""
    file = Path(__file__).with_name(name)
    return json.loads(file.read_text(encoding="utf-8"))


def recorded_peers(job: Job) -> dict[str, float]:
    """Milliseconds of peers for the same work on an H200; all of them with fp32."""
    peers = [r for r in recorded("peers_h200.json") if _same_work(job, r)]
    best = {
        name: min((r["ms"] for r in peers if r["peer"] in kinds), default=None)
        for name, kinds in PEERS.items()
    }
    return {name: ms for name, ms in best.items() if ms is not None}


def recorded_target(job: Job) -> float | None:
    """Milliseconds that are aimed at on an H200, for fp32 and the usual load."""
    targets = [r for r in recorded("targets_h200.json") if _same_work(job, r)]
    plain = job.dtype == "fp32" and job.load == LOAD
    return targets[0]["ms"] if targets and plain else None


def _same_work(job: Job, record: dict[str, Any]) -> bool:
    mine = (job.name, job.ids, job.work, job.optimizer)
    return mine == tuple(record[k] for k in ("case", "ids", "work", "optimizer"))
