# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The command line of the suites: arguments in, tables and files out."""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
from rich.console import Console

from jax_dynemb._version import __version__
from suite import growth, hash_suite, peers_suite, step_report, timing
from suite import step_suites as steps
from suite.figures import Figure
from suite.job import OPTIMIZERS, WIDTHS
from suite.runner import Runner
from suite.suite import Choice, Context, Suite
from suite.workloads import CASES, CPU_MIXED_CASES, DISTRIBUTIONS, MIXED_CASES

WIDTH = 190  # of the tables, where the output is no terminal
_NAMES = (*CASES, *MIXED_CASES, *CPU_MIXED_CASES)
NOTHING = "suite {} has nothing to measure: leave out some of --case, --work, --ids"
NEEDS_CPU = "suites cpu and cpu_used compare on a CPU: set JAX_PLATFORMS=cpu"
NO_MATPLOTLIB = "--plot needs matplotlib: pip install matplotlib"


def _of_steps(name: str, help: str, jobs: steps.Jobs, aim: steps.Aim) -> Suite:
    def run(context: Context) -> list[Figure]:
        return steps.run(context, name, jobs, aim)

    return Suite(help, run, step_report.table, step_report.plot)


_STEPS: list[tuple[str, str, steps.Jobs, steps.Aim]] = [
    ("steps", "whole steps of every case", steps.steps_jobs, steps.steps_aim),
    ("uniform", "uniform ids", steps.uniform_jobs, steps.uniform_aim),
    ("bf16", "16-bit rows", steps.bf16_jobs, steps.bf16_aim),
    ("full", "fresh ids on full tables", steps.full_jobs, steps.full_aim),
    ("narrow", "rows of 8, 16, 32", steps.narrow_jobs, steps.no_aim),
    ("real", "what users bring", steps.real_jobs, steps.real_aim),
    ("skew", "ids that repeat", steps.skew_jobs, steps.skew_aim),
]
SUITES: dict[str, Suite] = {each[0]: _of_steps(*each) for each in _STEPS}
SUITES |= {"hash": hash_suite.SUITE, "growth": growth.SUITE} | peers_suite.SUITES


def parser() -> argparse.ArgumentParser:
    """Returns the grammar of the command line."""
    text = "Time lookups and training steps beside targets, byte floors and peers."
    result = argparse.ArgumentParser(prog="bench_suite.py", description=text)
    add = result.add_argument
    suites = "; ".join(f"{name}: {suite.help}" for name, suite in SUITES.items())
    add(
        "--suite",
        type=_some_of(SUITES),
        help=f"some of them, or all ({suites}). Default: steps on a GPU, else cpu",
    )
    add("--case", type=_some_of(_NAMES), help=f"some of {','.join(_NAMES)}")
    add("--optimizer", type=_some_of(OPTIMIZERS), help=f"of {','.join(OPTIMIZERS)}")
    add("--work", type=_some_of(("eval", "train")), help="eval or train alone")
    add("--ids", type=_some_of(DISTRIBUTIONS), help=f"of {','.join(DISTRIBUTIONS)}")
    add("--dtype", choices=WIDTHS, default=Choice.dtype, help="of rows and outputs")
    add("--load", type=_load, default=Choice.load, help="rows a slot, 0.05 to 1.0")
    add("--nnx", action="store_true", help="the step through jde.nnx as well")
    add("--shared", action="store_true", help="tables of a case share arrays")
    add("--scale", type=float, default=1.0, help="factor on rows and batches")
    add("--seconds", type=float, help="length of one repeat; 0.2 on a GPU, else 0.05")
    add("--no-busy", action="store_true", help="do not trace the GPU")
    add("--kernels", action="store_true", help="print the time of each kernel")
    add("--json", type=Path, metavar="FILE", help="write the figures")
    add("--plot", type=Path, metavar="FILE.png", help="draw the figures")
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the suites; the exit status is 0 even where a target is missed."""
    options = parser().parse_args(arguments)
    if options.plot and importlib.util.find_spec("matplotlib") is None:
        raise SystemExit(NO_MATPLOTLIB)
    timing.keep_freed_memory()
    device = jax.devices()[0]
    names = _names(options, device.platform)
    _refuse_what_does_nothing(options, names)
    console = Console()
    context = _context(options, device, console)
    context.say(
        f"{device.device_kind}, jax {jax.__version__}, jax_dynemb {__version__}, copy "
        f"{context.runner.bytes_per_second / 1e9:.0f} GB/s"
    )
    records: list[Any] = []
    for name in names:
        start = time.perf_counter()
        measured = SUITES[name].run(context)
        if not measured:
            context.say(NOTHING.format(name))
            continue
        _show(name, measured, console, options.kernels)
        context.say(f"suite {name}: {time.perf_counter() - start:.1f} s")
        if options.plot:
            path = _plot_path(options.plot, name, names)
            SUITES[name].plot(measured, path)
            context.say(f"drawn: {path}")
        records += measured
        if options.json:  # after each suite, so that a later one can lose nothing
            _write_json(options.json, device, records)
    return 0 if records else 2


def _names(options: argparse.Namespace, platform: str) -> list[str]:
    """The suites to run; the one that compares with a CPU's libraries needs a CPU."""
    on_cpu = platform == "cpu"
    names = options.suite or (("cpu",) if on_cpu else ("steps",))
    suited = [name for name in names if on_cpu or name not in peers_suite.SUITES]
    if not suited:
        raise SystemExit(NEEDS_CPU)
    return suited


def _context(options: argparse.Namespace, device: Any, console: Console) -> Context:
    on_gpu = device.platform == "gpu"
    # On a GPU nothing hides the dispatch of a repeat's first step: 1 ms with 26 tables.
    usual = 0.2 if on_gpu else 0.05
    seconds = usual if options.seconds is None else options.seconds
    effort = timing.Effort(seconds, fewest=6 if on_gpu else 2)
    return Context(
        choice=Choice(
            cases=options.case,
            optimizers=options.optimizer,
            works=options.work,
            ids=options.ids,
            dtype=options.dtype,
            load=options.load,
            nnx=options.nnx,
            shared=options.shared,
            scale=options.scale,
            busy=not options.no_busy,
        ),
        runner=Runner(effort, timing.bandwidth(device, options.scale)),
        platform=device.platform,
        memory=(device.memory_stats() or {}).get("bytes_limit"),
        comparable="H200" in device.device_kind and options.scale == 1.0,
        console=console,
    )


def _refuse_what_does_nothing(
    options: argparse.Namespace, names: Sequence[str]
) -> None:
    """Most suites say themselves how ids are drawn and so on."""
    asked = {"ids": options.ids, "nnx": options.nnx or None}
    asked |= {"shared": options.shared or None}
    asked |= {"dtype": options.dtype if options.dtype != Choice.dtype else None}
    asked |= {"load": options.load if options.load != Choice.load else None}
    for name in (name for name, value in asked.items() if value is not None):
        heeding = ["steps", "cpu"] if name in ("ids", "shared") else ["steps"]
        if not set(names) & set(heeding):
            raise SystemExit(
                f"--{name} does nothing in suite {names[0]!r}, which has its own; "
                f"leave it out, or use --suite {' or '.join(heeding)}"
            )


def _show(
    name: str, records: Sequence[Any], console: Console, with_kernels: bool
) -> None:
    wide = Console(width=max(WIDTH, console.width))
    table = SUITES[name].table(records)
    table.title = f"suite {name}: {SUITES[name].help}; {table.title}"
    wide.print(table)
    if with_kernels:
        for record in records:
            if isinstance(record, Figure) and record.busy is not None:
                wide.print(step_report.kernel_line(record), highlight=False)
    verdicts = [record.met for record in records if record.met is not None]
    if verdicts:
        wide.print(f"targets met: {sum(verdicts)} of {len(verdicts)}")


def _write_json(path: Path, device: Any, records: Iterable[Any]) -> None:
    """Writes where and when, and every record."""
    now = datetime.datetime.now(datetime.UTC)
    document = {
        "device": device.device_kind,
        "date": now.isoformat(timespec="seconds"),
        "jax": jax.__version__,
        "jax_dynemb": __version__,
        "figures": [record.record() for record in records],
    }
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _plot_path(path: Path, name: str, names: Sequence[str]) -> Path:
    return path if len(names) == 1 else path.with_stem(f"{path.stem}-{name}")


def _some_of(known: Iterable[str]) -> Callable[[str], tuple[str, ...]]:
    known = tuple(known)

    def parse(text: str) -> tuple[str, ...]:
        names = known if text == "all" else tuple(dict.fromkeys(text.split(",")))
        unknown = [name for name in names if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(
                f"{unknown[0]!r} is none of {', '.join(known)}; use names with commas "
                "between, or all"
            )
        return names

    return parse


def _load(text: str) -> float:
    load = float(text)
    if not 0.05 <= load <= 1.0:
        raise argparse.ArgumentTypeError(f"{text} is not between 0.05 and 1.0")
    return load
