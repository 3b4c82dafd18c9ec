# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Time of each kernel of one step, as Nsight Compute measures it.

    python benchmarks/kernel_times.py --case e --work eval,sgd,adam --dist zipf,fresh

Runs itself again under `ncu`, which times the kernels between the profiler's start and
stop. Each kernel runs alone there, so the sum is the busy time of the GPU, without
launches and overlap.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import io
import os
import re
import subprocess
import sys
from collections import defaultdict

from rich.console import Console
from rich.table import Table

from suite.workloads import CASES

WARM_STEPS = 3
_INSIDE = "KERNEL_TIMES_INSIDE_NCU"
_FIELDS = "gpu__time_duration.sum,dram__bytes.sum,launch__registers_per_thread"


def main() -> None:
    """Measures, or is measured."""
    parser = argparse.ArgumentParser(description="Time of each kernel of one step.")
    parser.add_argument("--case", default="e")
    parser.add_argument("--work", default="eval,sgd,adam")
    parser.add_argument("--dist", default="zipf")
    options = parser.parse_args()
    if os.environ.get(_INSIDE):
        _run_step(options.case, options.work, options.dist)
        return
    console = Console(width=120)
    for case in options.case.split(","):
        for dist in options.dist.split(","):
            for work in options.work.split(","):
                if dist != "fresh" or work != "eval":
                    console.print(_table(case, work, dist))


def _table(case: str, work: str, dist: str) -> Table:
    kernels = _measure(case, work, dist)
    total = sum(k["us"] for k in kernels)
    title = f"case {case}, {dist}, {work}: {total:.0f} us in {len(kernels)} kernels"
    table = Table(title=title)
    for column in ("kernel", "us", "MB", "GB/s", "registers"):
        table.add_column(column, justify="left" if column == "kernel" else "right")
    for k in kernels:
        rate = k["bytes"] / k["us"] / 1e3 if k["us"] else 0.0
        table.add_row(
            k["name"],
            f"{k['us']:.1f}",
            f"{k['bytes'] / 1e6:.1f}",
            f"{rate:.0f}",
            f"{k['registers']:.0f}",
        )
    return table


def _measure(case: str, work: str, dist: str) -> list[dict]:
    command = ["ncu", "--csv", "--clock-control", "none", "--profile-from-start", "off"]
    command += ["--metrics", _FIELDS, sys.executable, __file__]
    command += ["--case", case, "--work", work, "--dist", dist]
    result = subprocess.run(
        command,
        env=os.environ | {_INSIDE: "1", "PYTHONFAULTHANDLER": "1"},
        capture_output=True,
        text=True,
    )
    lines = [line for line in result.stdout.splitlines() if line.startswith('"')]
    if not lines:
        raise RuntimeError(f"ncu gave nothing: {result.stdout}{result.stderr}")
    kernels: dict[str, dict] = defaultdict(dict)
    for row in csv.DictReader(io.StringIO("\n".join(lines))):
        kernel = kernels[row["ID"]]
        kernel["name"] = _short(row["Kernel Name"])
        value = float(row["Metric Value"].replace(",", ""))
        kernel[row["Metric Name"]] = value * _unit(row["Metric Unit"])
    return [
        {
            "name": k["name"],
            "us": k["gpu__time_duration.sum"] * 1e6,
            "bytes": k["dram__bytes.sum"],
            "registers": k["launch__registers_per_thread"],
        }
        for k in kernels.values()
    ]


def _unit(unit: str) -> float:
    scale = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "usecond": 1e-6}
    scale |= {"nsecond": 1e-9, "msecond": 1e-3}
    scale |= {"byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}
    return scale.get(unit, 1.0)


def _short(name: str) -> str:
    """Without namespaces, templates and parameters."""
    name = re.sub(r"\(anonymous namespace\)::|<unnamed>::", "", name)
    return re.sub(r"[<(].*", "", name).split("::")[-1][:48]


def _run_step(name: str, work: str, dist: str) -> None:
    import jax

    from suite.job import Job
    from suite.runner import Runner
    from suite.timing import H200_BANDWIDTH, Effort

    # Only where CUDA is: no part of any environment of this project.
    runtime = importlib.import_module("cuda.bindings.runtime")
    job = Job(name, CASES[name], dist, None if work == "eval" else work)
    for ready in Runner(Effort(), H200_BANDWIDTH).ready([job]):
        ready.before()
        ready.chain.run(min(WARM_STEPS, ready.steps or WARM_STEPS))
        runtime.cudaProfilerStart()
        ready.chain.run(1)
        jax.block_until_ready(ready.chain.carry)
        runtime.cudaProfilerStop()


if __name__ == "__main__":
    main()
