# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""What a step costs the host: many tiny tables, so that kernels take next to nothing.

    JAX_PLATFORMS=cpu python benchmarks/bench_host.py
    python benchmarks/bench_host.py --tables 1,4,26 --json host.json

Microseconds a step, the least of many repeats: a plain ``jax.jit`` step and the nnx
step, each with arrays of its own for every table and with shared ones.
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path
from typing import Any

import jax

from suite import timing
from suite.job import Job
from suite.runner import Runner
from suite.workloads import Case

EFFORT = timing.Effort(seconds=0.02, repeats=40, most=2000)
ROWS, DIM = 170, 4  # 256 slots at the benchmarks' load


def measure(tables: int) -> list[dict[str, Any]]:
    """Every kind of step with so many tables."""
    case = Case(tables, ROWS, DIM, 1, 1, False)
    runner = Runner(EFFORT, bytes_per_second=1e12)
    records = []
    for optimizer, step, shared in itertools.product(
        (None, "sgd", "adam"), ("jax", "nnx"), (False, True)
    ):
        job = Job("host", case, "uniform", optimizer, step=step, shared=shared)
        for ready in runner.ready([job]):
            least = min(timing.time_chain(ready.chain, EFFORT)) * 1e6
            print(f"{tables:4} tables  {job.label:24} {least:9.1f} us", flush=True)
            record = {"tables": tables, "work": job.label, "us": round(least, 1)}
            records.append(record)
    return records


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description="What a step costs the host.")
    parser.add_argument("--tables", default="26", help="numbers of tables")
    parser.add_argument("--json", type=Path, help="write the figures")
    options = parser.parse_args()
    device = jax.devices()[0]
    print(f"{device.device_kind}, jax {jax.__version__}")
    records = [r for n in options.tables.split(",") for r in measure(int(n))]
    if options.json:
        document = {"device": device.device_kind, "jax": jax.__version__}
        text = json.dumps(document | {"steps": records}, indent=1)
        options.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
