# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Training steps of tables whose rows lie in host memory, beside rows in HBM.

    python benchmarks/bench_tiers.py --json tiers.json
    python benchmarks/bench_tiers.py --scale 0.01 --warm 8 --clock cpu  # a CPU
    python benchmarks/bench_tiers.py --parts hits

Workload t: 10 tables of 2.7 M rows of dim 128, a million ids a step, a power law of
1.05. Every id is in the tables before a step counts, and no batch comes twice. Parts:

- `steps`: a training step for each optimizer and each share of rows in HBM. Beside it
  its hit rate, what it moves, the time that its bytes allow, and figures of others.
- `find`: a lookup that changes nothing.
- `hits`: hit rates of one LRU list, of Belady's cache and of buckets of frames on the
  same stream, for one table; simulated with NumPy.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PARTS = ("steps", "find", "hits")
BUCKET = 128
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Measures, prints and returns the figures."""
    given = _options().parse_args(arguments)
    # Read when the first device is used; homes of workload t take 41 GB.
    os.environ.setdefault("XLA_PJRT_GPU_HOST_MEMORY_LIMIT_GB", str(given.pinned))
    from tiers.stream import WORKLOAD, Stream

    case = WORKLOAD.scaled(given.scale)
    if given.tables:
        case = dataclasses.replace(case, tables=given.tables)
    if given.dim:
        case = dataclasses.replace(case, dim=given.dim)
    stream = Stream(case, given.distribution)
    found: dict[str, Any] = {"case": dataclasses.asdict(case), **vars(given)}
    found |= {"json": str(given.json), "plot": str(given.plot)}
    if "steps" in given.parts or "find" in given.parts:
        found["lines"] = _measure(given, stream)
    if "hits" in given.parts:
        found["hits"] = _simulate(given, stream)
    if given.json:
        given.json.write_text(json.dumps(found, indent=1))
    if given.plot:
        from tiers.picture import draw

        draw(found, given.plot)
    return found


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS[:2])
    parser.add_argument("--scale", type=float, default=1.0, help="of rows and ids")
    parser.add_argument("--tables", type=int, default=0)
    parser.add_argument("--dim", type=int, default=0)
    parser.add_argument("--distribution", default="zipf")
    parser.add_argument("--optimizers", nargs="+", default=("adam", "sgd"))
    parser.add_argument("--shares", nargs="*", type=float, default=(0.5, 0.125, 0.0625))
    parser.add_argument("--prefetch", action="store_true", help="the following batch")
    parser.add_argument(
        "--xla", nargs="*", type=_option, default=[], help="NAME=VALUE of the compiler"
    )
    parser.add_argument("--warm", type=int, default=100, help="steps that do not count")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--clock", choices=CLOCKS, default="wall", help="processor time on a CPU"
    )
    parser.add_argument(
        "--pinned", type=int, default=110, help="most GB of host memory"
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path, help="a picture, with matplotlib")
    return parser


def _option(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value


def _measure(given: argparse.Namespace, stream: Any) -> list[dict[str, Any]]:
    import jax
    from rich.console import Console

    import jax_dynemb as jde
    from tiers.report import line_of, table_of
    from tiers.training import Training

    print(jax.devices()[0].device_kind, stream.case, flush=True)
    warm = stream.batches(0, given.warm)
    timed = stream.batches(given.warm, given.warm + given.steps)
    lines: list[dict[str, Any]] = []
    for optimizer in given.optimizers:
        untiered = None
        for share in (None, *given.shares):
            tier = None
            if share is not None:
                # Room for a whole batch: an update takes one round.
                room = stream.case.ids_per_table
                tier = jde.tiers.host(hbm_fraction=share, spill_rows=room)
            training = Training(
                stream.case,
                optimizer,
                tier,
                given.prefetch,
                dict(given.xla),
                CLOCKS[given.clock],
            )
            training.fill(stream)
            training.run(training.batches(warm))
            batches = training.batches(timed)
            figures = training.measure(batches, given.rounds)
            find = training.find(batches) if "find" in given.parts else None
            untiered = untiered or figures.ms
            line = line_of(stream.case, optimizer, share, figures, find, untiered)
            print(json.dumps(line), flush=True)
            lines.append(line)
            del training
    Console(width=150).print(table_of(lines))
    return lines


def _simulate(given: argparse.Namespace, stream: Any) -> list[dict[str, Any]]:
    import numpy as np

    from tiers.hit_rates import Buckets, Furthest, LeastRecent, rate

    rows = stream.case.rows
    one = dataclasses.replace(
        stream, case=dataclasses.replace(stream.case, tables=1), seed=stream.seed
    )
    # Before them a batch of every row, so that none is new.
    drawn = [ids[0] for ids in one.batches(0, given.warm + given.steps)]
    order, distinct, counts = np.random.default_rng(1), [], []
    for ids in [np.arange(rows), *drawn]:
        some, count = np.unique(ids, return_counts=True)
        mixed = order.permutation(len(some))
        distinct.append(some[mixed])
        counts.append(count[mixed])
    buckets = -(-int(rows / 0.75) // BUCKET)
    lines = []
    for share in given.shares:
        frames = max(1, round(share * BUCKET))
        caches = {
            "one LRU list": LeastRecent(rows, frames * buckets),
            "Belady": Furthest(rows, frames * buckets, distinct),
            "buckets": Buckets(rows, frames, buckets),
        }
        for name, cache in caches.items():
            found = rate(cache, distinct, counts, given.warm + 1)
            lines.append({"cache": name, "frames": frames, "share": share})
            lines[-1].update(dataclasses.asdict(found))
            print(json.dumps(lines[-1]), flush=True)
    return lines


if __name__ == "__main__":
    main()
