# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Suites of whole steps: which jobs they have, and what each should take at most."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence

from suite.figures import Figure, recorded_peers, recorded_target
from suite.job import FULL, LOAD, OPTIMIZERS, WIDTHS, Job
from suite.suite import Choice, Context
from suite.workloads import (
    CASES,
    CPU_CASES,
    GPU_CASES,
    MIXED_CASES,
    NARROW_CASES,
    USED_CASES,
)

TIMES_FLOOR = 1.35  # uniform ids, on an H200
BF16_GAIN = 1.4
REAL_TIMES_FLOOR = {"eval": 1.3, "train": 1.6}
TIMES_PLAIN = 1.5  # of a full table and of skewed ids

# A target: milliseconds and where they come from. It may look at the other figures.
Target = tuple[float, str] | None
Find = Callable[[Job], Figure | None]
Aim = Callable[[Figure, Find, bool], Target]
Jobs = Callable[[Choice], Iterable[Job]]


def run(context: Context, suite: str, jobs: Jobs, aim: Aim) -> list[Figure]:
    """Measures the jobs that the user wants, printing as it goes.

    Args:
      context: where and how to run.
      suite: its name.
      jobs: all jobs of the suite.
      aim: the target of a figure, once all are measured.

    Returns:
      Figures in the order of the jobs.
    """
    chosen = [job for job in jobs(context.choice) if wanted(context.choice, job)]
    chosen = [job for job in chosen if _fits(context, job)]
    context.runner.compile(chosen)
    figures: dict[Job, Figure] = {}
    for figure in context.runner.wall(suite, chosen):
        context.say(line(figure))
        figures[figure.job] = figure
    if context.choice.busy and context.platform == "gpu":
        for job, busy in context.runner.busy(chosen):
            figures[job] = dataclasses.replace(figures[job], busy=busy)
        if not any(figure.busy for figure in figures.values()):
            context.say("GPU busy: unknown, the profiler saw no kernels (no CUPTI?)")
    return [_beside(figures[job], figures.get, context, aim) for job in chosen]


def line(figure: Figure) -> str:
    """A figure as it is printed while the suite runs."""
    stats = "  ".join(f"{name} {value:,.0f}" for name, value in figure.stats.items())
    copied = "  A TABLE IS COPIED" if figure.in_place is False else ""
    job = figure.job
    return (
        f"{job.name:4} {job.ids:7} {job.label:21} {figure.ms:8.3f} ms  least "
        f"{figure.least_ms:.3f}  floor {figure.floor_ms:.3f}  {stats}{copied}"
    )


def steps_jobs(choice: Choice) -> Iterator[Job]:
    """Every case with every work on power-law ids, and Adam on fresh ids."""
    for name in choice.cases or GPU_CASES:
        case = CASES[name].scaled(choice.scale)
        job = Job(
            name, case, dtype=choice.dtype, load=choice.load, shared=choice.shared
        )
        for ids in choice.ids or ("zipf", "fresh"):
            for optimizer in _works(choice, name, ids):
                each = dataclasses.replace(job, ids=ids, optimizer=optimizer)
                yield each
                if choice.nnx and not each.fresh:
                    yield dataclasses.replace(each, step="nnx")


def steps_aim(figure: Figure, find: Find, comparable: bool) -> Target:
    """What the project aims at on an H200, for the step without flax."""
    del find
    ms = recorded_target(figure.job) if comparable else None
    return None if ms is None else (ms, "H200")


def uniform_jobs(choice: Choice) -> Iterator[Job]:
    """The large cases with uniform ids."""
    for name in ("c", "d", "e"):
        case = CASES[name].scaled(choice.scale)
        for optimizer in (None, "sgd", "rowwise_adagrad", "adam"):
            yield Job(name, case, "uniform", optimizer)


def uniform_aim(figure: Figure, find: Find, comparable: bool) -> Target:
    """A little more than the fewest bytes take."""
    del find
    if not comparable:
        return None
    return TIMES_FLOOR * figure.floor_ms, f"{TIMES_FLOOR} x floor"


def bf16_jobs(choice: Choice) -> Iterator[Job]:
    """The large cases in both precisions."""
    for name in ("c", "d", "e"):
        case = CASES[name].scaled(choice.scale)
        for optimizer in (None, "sgd", "adam"):
            for dtype in ("fp32", "bf16", "bf16_rows"):
                if dtype != "bf16_rows" or optimizer is None:
                    yield Job(name, case, "zipf", optimizer, dtype)


def bf16_aim(figure: Figure, find: Find, comparable: bool) -> Target:
    """Evaluation is bound by rows, so half the bytes must show."""
    del comparable
    if figure.job.dtype != "bf16" or figure.job.work != "eval":
        return None
    fp32 = find(dataclasses.replace(figure.job, dtype="fp32"))
    return None if fp32 is None else (fp32.ms / BF16_GAIN, f"fp32 / {BF16_GAIN}")


def full_jobs(choice: Choice) -> Iterator[Job]:
    """Fresh ids on tables without a free slot: every insert evicts."""
    for name, case in GPU_CASES.items():
        yield Job(name, case.scaled(choice.scale), "fresh", "adam", load=FULL)


def full_aim(figure: Figure, find: Find, comparable: bool) -> Target:
    """A little more than into free slots."""
    del find
    plain = recorded_target(dataclasses.replace(figure.job, load=LOAD))
    if plain is None or not comparable:
        return None
    return TIMES_PLAIN * plain, f"{TIMES_PLAIN} x into free slots"


def narrow_jobs(choice: Choice) -> Iterator[Job]:
    """A million lookups of narrow rows."""
    for name, case in NARROW_CASES.items():
        for ids in ("zipf", "uniform"):
            for optimizer in (None, "sgd", "adam"):
                yield Job(name, case.scaled(choice.scale), ids, optimizer)


def skew_jobs(choice: Choice) -> Iterator[Job]:
    """The power law, one id in half of the places, and one id everywhere."""
    for name in ("c", "e"):
        case = CASES[name].scaled(choice.scale)
        for optimizer in (None, "sgd", "adam"):
            for ids in ("zipf", "hot", "same"):
                yield Job(name, case, ids, optimizer)


def skew_aim(figure: Figure, find: Find, comparable: bool) -> Target:
    """Skew may cost a little."""
    del comparable
    zipf = find(dataclasses.replace(figure.job, ids="zipf"))
    if figure.job.ids == "zipf" or zipf is None:
        return None
    return TIMES_PLAIN * zipf.ms, f"{TIMES_PLAIN} x power law"


def real_jobs(choice: Choice) -> Iterator[Job]:
    """What users bring: in float32 and bf16; of a server, lookups alone."""
    for name, case in (*MIXED_CASES.items(), *USED_CASES.items()):
        serves = name.startswith("serve")
        for optimizer in (
            (None,) if serves else (None, "sgd", "rowwise_adagrad", "adam")
        ):
            for dtype in ("fp32", "bf16"):
                yield Job(name, case.scaled(choice.scale), "zipf", optimizer, dtype)


def real_aim(figure: Figure, find: Find, comparable: bool) -> Target:
    """A little more than the fewest bytes take, of large batches of rows of a line."""
    del find
    job = figure.job
    narrow = min(part.dim * WIDTHS[job.dtype][0] for part in job.case.parts) < 64
    if not comparable or narrow or job.case.num_ids < 200_000:
        return None
    times = REAL_TIMES_FLOOR[job.work]
    return times * figure.floor_ms, f"{times} x floor"


def no_aim(figure: Figure, find: Find, comparable: bool) -> Target:
    """Nobody has said what it should take."""
    del figure, find, comparable
    return None


def _works(choice: Choice, name: str, ids: str) -> Sequence[str | None]:
    optimizers = choice.optimizers
    if optimizers is None and ids == "fresh" and choice.ids is None:
        optimizers = ("adam",)
    if optimizers is None:
        left_out = () if name in CPU_CASES else ("adagrad",)
        optimizers = tuple(o for o in OPTIMIZERS if o not in left_out)
    return optimizers if ids == "fresh" else (None, *optimizers)


def wanted(choice: Choice, job: Job) -> bool:
    """Whether the user asked for a job, or for nothing in particular."""
    return (
        (choice.works is None or job.work in choice.works)
        and (choice.cases is None or job.name in choice.cases)
        and (
            choice.optimizers is None
            or job.optimizer is None
            or job.optimizer in choice.optimizers
        )
    )


def _fits(context: Context, job: Job) -> bool:
    """Whether the device has the memory; a line says so if not."""
    if context.memory is None or job.memory() < context.memory:
        return True
    needed, there = job.memory() / 2**30, context.memory / 2**30
    context.say(
        f"{job.name} {job.ids} {job.label}: left out, it needs {needed:.0f} GiB of "
        f"{there:.0f} (XLA_PYTHON_CLIENT_MEM_FRACTION=.95 gives JAX more of a GPU)"
    )
    return False


def _beside(figure: Figure, find: Find, context: Context, aim: Aim) -> Figure:
    """The figure beside its target and what peers need for the same work."""
    peers = recorded_peers(figure.job) if context.comparable else {}
    target = aim(figure, find, context.comparable)
    target_ms, words = (None, "") if target is None else target
    return dataclasses.replace(
        figure, peers=figure.peers | peers, target_ms=target_ms, target=words
    )
