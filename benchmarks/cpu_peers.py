# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Measures what else runs on this CPU, in the same process and on the same ids."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import static_jax
import timing
from figures import Figure
from plan import Job, Plan
from workloads import Case

Measure = Callable[[Job], list[float]]


def available() -> tuple[dict[str, Measure], list[str]]:
    """Returns the peers that can be imported, and a line about those that can not."""
    peers: dict[str, Measure] = {"jax static": _jax}
    try:
        import static_torch
    except ImportError:
        return peers, ["torch is not installed: EmbeddingBag and FBGEMM are left out."]
    peers["torch EmbeddingBag"] = _torch(static_torch.embedding_bag)
    try:
        import fbgemm_gpu  # noqa: F401  # pyright: ignore[reportMissingImports]
    except ImportError:
        return peers, ["fbgemm_gpu is not installed: FBGEMM is left out."]
    return peers | {"FBGEMM": _torch(static_torch.fbgemm)}, []


def measure(
    plan: Plan, name: str, case: Case, peers: dict[str, Measure]
) -> Iterator[Figure]:
    """Times every peer on every work and distribution that a static table can do."""
    for ids in plan.distributions:
        for work in plan.works:
            for peer, run in peers.items():
                job = Job(plan, name, case, ids, work)
                times = [] if ids == "fresh" else run(job)
                if times:
                    yield job.figure(peer, times)


def _jax(job: Job) -> list[float]:
    d_rows = static_jax.gradients(job.case)
    arguments = [(static_jax.to_device(ids), d_rows) for ids in job.batches]
    tables = static_jax.init(job.case, job.work)
    step = static_jax.step(job.case, job.work)
    return timing.time_steps(step, tables, arguments, job.plan.effort)[0]


def _torch(make: Callable[[Case, str], tuple[Any, Any]]) -> Measure:
    def run(job: Job) -> list[float]:
        try:
            step, prepare = make(job.case, job.work)
        except NotImplementedError:
            return []
        ids = [prepare(batch) for batch in job.batches]
        effort = job.plan.effort
        _time(step, ids, len(ids))  # warms up
        steps = timing.steps_for(effort, _time(step, ids, 3))
        return [_time(step, ids, steps) for _ in range(effort.repeats)]

    return run


def _time(step: Callable[[Any], None], ids: list[Any], steps: int) -> float:
    start = time.perf_counter()
    for number in range(steps):
        step(ids[number % len(ids)])
    return (time.perf_counter() - start) / steps
