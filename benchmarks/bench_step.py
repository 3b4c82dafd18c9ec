# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Times whole steps on dynamic tables: from ids on the device to updated tables.

    python benchmarks/bench_step.py              # all that suits the device
    python benchmarks/bench_step.py --case e --work sgd,adam --dist zipf
    python benchmarks/bench_step.py --peers      # on a CPU: other libraries as well

README.md beside this file says what is counted and how.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
from rich.console import Console

import cpu_peers
import dynamic_run
import figures
import timing
from figures import Figure
from plan import DISTRIBUTIONS, WORKS, Plan
from workloads import CASES, CPU_CASES, GPU_CASES

WORKS_ON_GPU = ("eval", "sgd", "rowwise_adagrad", "adam")
FRESH_WORKS = ("sgd", "adam")
WIDTH = 140  # of the table, where the output is no terminal


def main(arguments: Sequence[str] | None = None) -> list[Figure]:
    """Measures, prints, and returns the figures."""
    options = _parser().parse_args(arguments)
    timing.keep_freed_memory()
    device = jax.devices()[0]
    plan = _plan(options, device)
    console = Console()
    speed = plan.bytes_per_second / 1e9
    console.print(f"{device.device_kind}, jax {jax.__version__}, copy {speed:.0f} GB/s")
    results = []
    for figure in _measure(plan, options.peers, console):
        console.print(_line(figure), highlight=False, soft_wrap=True)
        results.append(figure)
    on_h200 = "H200" in device.device_kind
    wide = Console(width=max(WIDTH, console.width))
    wide.print(figures.step_table(results, on_h200=on_h200))
    if options.json is not None:
        figures.write_json(options.json, device.device_kind, results)
    return results


def _measure(plan: Plan, with_peers: bool, console: Console) -> Iterator[Figure]:
    peers, notes = cpu_peers.available() if with_peers else ({}, [])
    for note in notes:
        console.print(note)
    for name, case in plan.cases.items():
        yield from dynamic_run.measure(plan, name, case)
        yield from cpu_peers.measure(plan, name, case, peers)


def _line(figure: Figure) -> str:
    stats = "  ".join(f"{name} {value:,.0f}" for name, value in figure.stats.items())
    return (
        f"{figure.peer:18} {figure.case:3} {figure.ids:7} {figure.label:21} "
        f"{figure.ms:8.3f} ms  floor {figure.floor_ms:.3f}  "
        f"least {figure.least_ms:.3f}  {stats}"
    )


def _plan(options: argparse.Namespace, device: Any) -> Plan:
    on_gpu = device.platform == "gpu"
    suited = GPU_CASES if on_gpu else CPU_CASES
    shrink = 64 if options.quick else 1
    cases = {name: CASES[name].shrunk(shrink) for name in options.case or suited}
    effort = timing.Effort(seconds=0.08 if on_gpu else 0.3)
    works = options.work or (WORKS_ON_GPU if on_gpu else WORKS)
    return Plan(
        cases=cases,
        works=tuple(works),
        distributions=tuple(sorted(options.dist or DISTRIBUTIONS, key=_fresh_last)),
        fresh_works=tuple(w for w in options.work or FRESH_WORKS if w != "eval"),
        effort=timing.Effort(0.0, repeats=2, fewest=2) if options.quick else effort,
        bytes_per_second=timing.bandwidth(device),
    )


def _fresh_last(distribution: str) -> bool:
    return distribution == "fresh"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--case", type=_some_of(CASES), help=f"some of {', '.join(CASES)}")
    add("--work", type=_some_of(WORKS), help=f"some of {', '.join(WORKS)}")
    add("--dist", type=_some_of(DISTRIBUTIONS), help="some of zipf, uniform, fresh")
    add("--quick", action="store_true", help="a 64th of each case: does it run at all?")
    add("--peers", action="store_true", help="also measure what else runs on a CPU")
    add("--json", type=Path, help="file for the figures")
    return parser


def _some_of(known: Iterable[str]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        names = text.split(",")
        unknown = [name for name in names if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(
                f"{unknown[0]!r} is none of {', '.join(known)}"
            )
        return names

    return parse


if __name__ == "__main__":
    main()
