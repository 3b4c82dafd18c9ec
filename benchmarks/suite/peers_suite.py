# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Whole steps on a CPU beside other libraries, all in one run on one machine."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from suite import cpu_peers, step_report, step_suites
from suite.figures import Figure
from suite.job import OPTIMIZERS, Job
from suite.runner import Ready
from suite.suite import Choice, Context, Suite
from suite.timing import Runnable
from suite.workloads import CASES, CPU_CASES, CPU_MIXED_CASES, CPU_USED_CASES

ROUNDS = 15  # short ones: the least is taken, so one quiet moment is enough
PAUSE = 0.02  # seconds, in which the threads of the library before go to sleep
BEST = "best peer"

# How many times as long as the best peer a step may take.
Times = Callable[[Job], float]


def jobs(choice: Choice) -> Iterator[Job]:
    """Every CPU case with every work."""
    for name in choice.cases or CPU_CASES:
        case = CASES[name].scaled(choice.scale)
        for ids in choice.ids or ("zipf",):
            for optimizer in (None, *OPTIMIZERS):
                if ids != "fresh" or optimizer is not None:
                    yield Job(name, case, ids, optimizer, shared=choice.shared)


def times_best(job: Job) -> float:
    """Of the first cases."""
    return {None: 2.0, "rowwise_adagrad": 1.2}.get(job.optimizer, 1.0)


def used_jobs(choice: Choice) -> Iterator[Job]:
    """Widths and bags of every kind with every work, two widths in bf16 as well."""
    for name, case in (*CPU_USED_CASES.items(), *CPU_MIXED_CASES.items()):
        in_bf16 = name in ("u16x10", "u100x10")
        for dtype in ("fp32", "bf16") if in_bf16 else ("fp32",):
            for optimizer in (None, "sgd", "rowwise_adagrad", "adam"):
                yield Job(name, case.scaled(choice.scale), "zipf", optimizer, dtype)


def used_times_best(job: Job) -> float:
    """An evaluation may hash: twice for rows that are read once each."""
    if job.optimizer is not None:
        return 1.0
    return 1.3 if all(part.bag > 1 and part.pooled for part in job.case.parts) else 2.0


def run(
    jobs: Callable[[Choice], Iterable[Job]], times: Times, context: Context
) -> list[Figure]:
    """Measures every job, and every peer that can do it, in turns."""
    peers, notes = cpu_peers.available()
    for note in notes:
        context.say(note)
    wanted = [j for j in jobs(context.choice) if step_suites.wanted(context.choice, j)]
    context.runner.compile(wanted)
    figures = {}
    for ready in context.runner.ready(wanted):
        figure = _measure(context, ready, peers, times)
        others = "  ".join(f"{name} {ms:.3f}" for name, ms in figure.peers.items())
        context.say(f"{step_suites.line(figure)}  {others}")
        figures[ready.job] = figure
    return [figures[job] for job in wanted]


def _measure(
    context: Context, ready: Ready, peers: dict[str, cpu_peers.Peer], times_best: Times
) -> Figure:
    """Takes turns, so that whatever else the machine does meets all alike."""
    static = {} if ready.job.fresh else peers
    chains: dict[str, Runnable | None] = {
        name: peer(ready.job) for name, peer in static.items()
    }
    runnables = {name: chain for name, chain in chains.items() if chain is not None}
    effort = context.runner.effort
    steps = {name: _warm(chain, effort) for name, chain in runnables.items()}
    ours = context.runner.steps_of(ready)
    times: dict[str, list[float]] = {name: [] for name in ("", *runnables)}
    for _ in range(ROUNDS):
        ready.before()
        times[""].append(ready.chain.run(ours))
        for name, chain in runnables.items():
            time.sleep(PAUSE)
            times[name].append(chain.run(steps[name]))
        time.sleep(PAUSE)
    figure = context.runner.figure("cpu", ready, times.pop(""))
    least = {name: min(each) * 1e3 for name, each in times.items()}
    figure = dataclasses.replace(figure, ms=figure.least_ms)
    return _beside(figure, least, times_best(ready.job))


def _warm(chain: Runnable, effort) -> int:
    chain.run(2)
    return effort.steps(chain.run(2))


def _beside(figure: Figure, peers: dict[str, float], factor: float) -> Figure:
    if not peers:
        return figure
    return dataclasses.replace(
        figure,
        peers=peers,
        target_ms=factor * min(peers.values()),
        target=f"{factor} x {BEST}",
    )


def _suite(help: str, *how: Any) -> Suite:
    return Suite(
        help, functools.partial(run, *how), step_report.table, step_report.plot
    )


SUITES = {
    "cpu": _suite("steps on a CPU beside FBGEMM, torch, plain JAX", jobs, times_best),
    "cpu_used": _suite(
        "widths and bags that users bring, on a CPU", used_jobs, used_times_best
    ),
}
