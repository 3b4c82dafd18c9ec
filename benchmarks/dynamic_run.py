# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the works of one case on dynamic tables that are filled once an optimizer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp

import dynamic_step
import jax_dynemb as jde
import timing
from figures import Figure
from plan import Job, Plan
from workloads import Case

MOST_FRESH_STEPS = 100
COUNTERS = ("rows", "inserted", "evicted", "refused", "lost_updates")


def measure(plan: Plan, name: str, case: Case) -> Iterator[Figure]:
    """Yields the figures of a case."""
    for optimizer, works in _groups(plan.works).items():
        coll = dynamic_step.collection(case, optimizer)
        state = dynamic_step.fill(coll, case)
        for ids in plan.distributions:
            for work in works:
                if ids != "fresh" or work in plan.fresh_works:
                    job = Job(plan, name, case, ids, work)
                    figure, state = _measure(job, coll, state)
                    yield figure
        del state  # room for the tables of the next optimizer


def _measure(job: Job, coll: jde.Tables, state: Any) -> tuple[Figure, Any]:
    arguments = _arguments(job, coll)
    carry = (state, jnp.zeros((), jnp.uint32))
    compiled = _step(job, coll).lower(carry, *arguments[0]).compile()
    options = _until_full(job, coll) if job.ids == "fresh" else {}
    effort = job.plan.effort
    times, carry = timing.time_steps(compiled, carry, arguments, effort, **options)
    figure = job.figure(
        "jax_dynemb",
        times,
        temp_bytes=compiled.memory_analysis().temp_size_in_bytes,
        stats=_total(coll.stats(carry[0])),
    )
    return figure, carry[0]


def _step(job: Job, coll: jde.Tables) -> Any:
    if job.work == "eval":
        return dynamic_step.evaluation_step(coll)
    return dynamic_step.training_step(coll, fresh=job.ids == "fresh")


def _arguments(job: Job, coll: jde.Tables) -> list[tuple[Any, Any]]:
    d_rows = {} if job.work == "eval" else dynamic_step.gradients(coll, job.case)
    return [(dynamic_step.to_device(coll, job.case, b), d_rows) for b in job.batches]


def _until_full(job: Job, coll: jde.Tables) -> dict[str, Any]:
    """Each repeat starts from empty tables and ends when they hold `rows` rows."""
    clear = dynamic_step.clear(coll)
    steps = job.case.rows // job.case.ids_per_table

    def before(carry: dynamic_step.Carry) -> dynamic_step.Carry:
        return clear(carry[0]), carry[1]

    return {"steps": max(1, min(MOST_FRESH_STEPS, steps)), "before": before}


def _groups(works: tuple[str, ...]) -> dict[str, list[str]]:
    """Works by the optimizer on whose tables they run; "eval" joins the first."""
    optimizers = [work for work in works if work != "eval"]
    if not optimizers:
        return {"sgd": ["eval"]}
    groups = {optimizer: [optimizer] for optimizer in optimizers}
    if "eval" in works:
        groups[optimizers[0]].insert(0, "eval")
    return groups


def _total(stats: dict[str, float]) -> dict[str, float]:
    return {
        counter: sum(v for name, v in stats.items() if name.endswith(f"/{counter}"))
        for counter in COUNTERS
    }
