# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Runs jobs on dynamic tables: each program compiled once, each case filled once."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import numpy as np

import jax_dynemb as jde
from suite import busy, filled, steps, timing
from suite.figures import Figure
from suite.filled import Filled
from suite.job import Job, gradients

TRACED_STEPS = 4
COUNTERS = ("rows", "inserted", "evicted", "refused", "lost_updates")


@dataclasses.dataclass(frozen=True)
class _Program:
    """A step: the jitted function, as a user calls it, and what was compiled of it.

    Attributes:
      step: finds in JAX's cache what was compiled.
      compiled: tells of memory.
    """

    step: Any
    compiled: Any


@dataclasses.dataclass(frozen=True)
class Ready:
    """A job whose tables are filled and whose program is compiled.

    Attributes:
      job: what to measure.
      coll: its tables.
      chain: its steps.
      steps: of a repeat; None where any number will do.
      before: prepares a repeat.
    """

    job: Job
    coll: jde.Tables
    chain: timing.Chain
    steps: int | None
    before: Callable[[], None]


class Runner:
    """Measures jobs; keeps their compiled programs.

    Attributes:
      effort: how long to measure.
      bytes_per_second: speed of a copy, for the floors.
    """

    def __init__(self, effort: timing.Effort, bytes_per_second: float):
        self.effort, self.bytes_per_second = effort, bytes_per_second
        self._programs: dict[Job, _Program] = {}

    def compile(self, jobs: Iterable[Job]) -> None:
        """Compiles the programs of jobs side by side."""
        missing = {_program_of(job): None for job in jobs if job.step == "jax"}
        missing = [job for job in missing if job not in self._programs]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            programs = pool.map(_compile, missing)
            self._programs |= dict(zip(missing, programs, strict=True))

    def wall(self, suite: str, jobs: Iterable[Job]) -> Iterator[Figure]:
        """Yields a figure for each job, those that share tables together."""
        for ready in self.ready(jobs):
            times = timing.time_chain(
                ready.chain, self.effort, steps=ready.steps, before=ready.before
            )
            yield self.figure(suite, ready, times)

    def busy(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, busy.Busy | None]]:
        """Yields what the GPU does in the steps of each job."""
        for ready in self.ready(jobs):
            # Steps of a repeat that fills tables differ, so all of them count.
            traced = ready.steps or TRACED_STEPS
            yield ready.job, busy.trace_chain(ready.chain, traced, ready.before)

    def ready(self, jobs: Iterable[Job]) -> Iterator[Ready]:
        """Yields jobs one at a time, ready to run; their tables live no longer."""
        for group in _groups(jobs):
            tables = Filled(group[0], rows=any(not j.starts_empty for j in group))
            held: dict[str, Any] = {}  # ids and gradients, for all jobs of the group
            for job in group:
                coll, state = tables.borrow(job.optimizer or "sgd")
                ready = self._ready(job, coll, state, arguments(job, coll, held))
                del state
                yield ready
                tables.give_back(_state_of(ready.chain.carry))
                ready.chain.close()
            del tables  # room for the next ones

    def _ready(self, job: Job, coll: jde.Tables, state: Any, batches: Any) -> Ready:
        if job.step == "nnx":
            model = steps.NnxStep(coll, state, job.work)
            return Ready(
                job, coll, timing.Chain(model, model, batches), None, lambda: None
            )
        self.compile([job])
        step, only_reads = self._programs[_program_of(job)].step, job.work == "eval"
        chain = timing.Chain(step, state, batches, only_reads=only_reads)
        if not job.starts_empty:
            return Ready(job, coll, chain, None, lambda: None)
        return Ready(job, coll, chain, job.num_batches, lambda: _empty(coll, chain))

    def steps_of(self, ready: Ready) -> int:
        """Warms a job up and chooses the steps of its repeats."""
        ready.before()
        ready.chain.run(ready.steps or 2)
        return ready.steps or self.effort.steps(ready.chain.run(2))

    def figure(self, suite: str, ready: Ready, times: list[float]) -> Figure:
        """Makes the record of a job from the seconds of a step in each repeat."""
        job, state = ready.job, _state_of(ready.chain.carry)
        memory: dict[str, Any] = {}
        if job.step == "jax":
            used = self._programs[_program_of(job)].compiled.memory_analysis()
            size = sum(x.nbytes for x in jax.tree.leaves(_written(job, state)))
            memory["scratch_bytes"] = used.temp_size_in_bytes
            if job.work == "eval":
                memory["in_place"] = used.temp_size_in_bytes < size
            else:
                memory["in_place"] = used.alias_size_in_bytes >= size
        else:
            memory["in_place"] = ready.chain.carry.in_place
        return Figure(
            suite=suite,
            job=job,
            ms=timing.milliseconds(times),
            least_ms=min(times) * 1e3,
            floor_ms=job.floor_bytes() / self.bytes_per_second * 1e3,
            stats=_total(_stats(ready.coll, state)),
            **memory,
        )


def arguments(
    job: Job, coll: jde.Tables, held: dict[str, Any]
) -> list[tuple[Any, ...]]:
    """The arguments of steps on the device: ids and gradients, by feature.

    Args:
      job: what to measure.
      coll: its tables.
      held: what other jobs of the same case have on the device already; grows.
    """
    if job.ids not in held:
        batches = [filled.to_device(coll, job.case, ids) for ids in job.batches()]
        if job.fresh:
            numbers = np.arange(job.num_batches, dtype=np.uint32)
            batches = [filled.later(batches[0], number) for number in numbers]
        held[job.ids] = batches
    if job.work == "eval":
        return [(ids,) for ids in held[job.ids]]
    if "gradients" not in held:
        arrays = gradients(job.case, filled.dtypes(job.dtype)[1])
        held["gradients"] = dict(zip(coll.features, arrays, strict=True))
    return [(ids, held["gradients"]) for ids in held[job.ids]]


def _written(job: Job, state: Any) -> Any:
    """The arrays that a step must not copy."""
    if job.work == "train":
        return state
    return [(table.index, table.values) for table in state.values()]


def _state_of(carry: Any) -> Any:
    if isinstance(carry, steps.NnxStep):
        return carry.model.sparse.get_state()
    return carry


def _empty(coll: jde.Tables, chain: timing.Chain) -> None:
    chain.carry = filled.clear(coll)(chain.carry)


def _groups(jobs: Iterable[Job]) -> Iterator[list[Job]]:
    """Jobs that share tables; those with fresh ids last, as they empty them."""
    groups: dict[Any, list[Job]] = {}
    for job in jobs:
        groups.setdefault(job.tables, []).append(job)
    for group in groups.values():
        yield sorted(group, key=lambda job: (job.fresh, job.optimizer or ""))


def _program_of(job: Job) -> Job:
    """A job that stands for all with the same program."""
    return dataclasses.replace(job, name="", ids="")


def _compile(job: Job) -> _Program:
    """Compiles the step of a job for arrays that need not exist yet."""
    case, *others = job.tables
    coll = filled.collection(case, job.optimizer or "sgd", *others)
    row_type = filled.dtypes(job.dtype)[1]
    state = jax.eval_shape(lambda: coll.init(0))
    parts = dict(zip(coll.features, job.case.parts, strict=True))
    batch: list[Any] = [{f: filled.ids_type(part) for f, part in parts.items()}]
    step = steps.evaluation_step(coll)
    if job.work == "train":
        shapes = {f: (part.num_outputs, part.dim) for f, part in parts.items()}
        batch += [{f: jax.ShapeDtypeStruct(s, row_type) for f, s in shapes.items()}]
        step = steps.training_step(coll)
    return _Program(step, step.lower(state, *batch).compile())


def _stats(coll: jde.Tables, state: Any) -> dict[str, int | float]:
    """Reads the counters; a fill inserts by lookups, which needs no warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* training lookups and no update")
        return coll.stats(state)


def _total(stats: dict[str, int | float]) -> dict[str, float]:
    return {
        counter: sum(v for name, v in stats.items() if name.endswith(f"/{counter}"))
        for counter in COUNTERS
    }
