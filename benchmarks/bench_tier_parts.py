# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Where the time of a tiered step goes, and what a tier does besides steps.

    python benchmarks/bench_tier_parts.py --scale 0.5
    python benchmarks/bench_tier_parts.py --scale 0.002 --warm 3 --steps 3  # a CPU

Tables and ids are those of `bench_tiers.py`. Each part prints a line of JSON:

- `kernels`: one training step with and without a tier, microseconds by kernel, from a
  trace of JAX's profiler. A CPU has no kernels.
- `framed`: a step whose ids all have frames, beside the same step without a tier:
  milliseconds, and kernels as above.
- `flush`: rows that are newer than their homes, and how fast they go there.
- `find`: a lookup of uniform ids, three quarters of the rows of 64 floats at home.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

PARTS = ("kernels", "framed", "flush", "find")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--scale", type=float, default=0.5, help="of rows and ids")
    parser.add_argument("--optimizer", default="sgd")
    parser.add_argument("--share", type=float, default=0.125, help="of rows in HBM")
    parser.add_argument("--warm", type=int, default=50, help="steps that do not count")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--pinned", type=int, default=64, help="most GB of host memory")
    given = parser.parse_args(arguments)
    # Read when the first device is used.
    os.environ.setdefault("XLA_PJRT_GPU_HOST_MEMORY_LIMIT_GB", str(given.pinned))
    parts = _Parts(given)
    for part in given.parts:
        begin = time.perf_counter()
        found = getattr(parts, part)()
        seconds = round(time.perf_counter() - begin, 1)
        print(json.dumps({"part": part, **found, "seconds": seconds}), flush=True)


class _Parts:
    """The parts of a run, each with tables of its own."""

    def __init__(self, given: argparse.Namespace):
        from tiers.stream import WORKLOAD, Stream

        self._given = given
        self._case = WORKLOAD.scaled(given.scale)
        self._stream = Stream(self._case, "zipf")

    def _trained(
        self, tiered: bool, stream: Any, share: float, case: Any = None
    ) -> Any:
        """Tables that hold every id of a stream, after the steps that do not count."""
        import jax_dynemb as jde
        from tiers.training import Training

        room = self._case.ids_per_table  # an update takes one round
        tier = jde.tiers.host(hbm_fraction=share, spill_rows=room) if tiered else None
        training = Training(case or self._case, self._given.optimizer, tier)
        training.fill(stream)
        training.run(training.batches(stream.batches(0, self._given.warm)))
        return training

    def _timed(self, training: Any, stream: Any) -> list[Any]:
        first = self._given.warm
        return training.batches(stream.batches(first, first + self._given.steps))

    def kernels(self) -> dict[str, Any]:
        """Traces steps with and without a tier."""
        found: dict[str, Any] = {}
        for name, tiered in (("untiered", False), ("tiered", True)):
            training = self._trained(tiered, self._stream, self._given.share)
            batches = self._timed(training, self._stream)
            half = max(1, len(batches) // 2)
            found[name] = {"ms": training.run(batches[:half])}
            last = batches[half:]
            found[name] |= _traced(functools.partial(training.run, last), len(last))
        return found

    def framed(self) -> dict[str, Any]:
        """Takes steps whose rows all have frames: ids of a quarter of the rows."""
        from tiers.stream import Stream

        few = dataclasses.replace(self._case, rows=self._case.rows // 4)
        stream = Stream(few, "zipf")
        found: dict[str, Any] = {}
        for name, tiered in (("untiered", False), ("tiered", True)):
            training = self._trained(tiered, stream, 0.5)
            batches = self._timed(training, stream)
            figures = training.measure(batches, min(5, len(batches)))
            found[name] = {"ms": figures.ms, "enqueued_ms": training.enqueue(batches)}
            run = functools.partial(training.run, batches)
            found[name] |= _traced(run, len(batches))
            if tiered:
                found["hit_rate"] = figures.events["hit_rate"]
        times = {"times": found["tiered"]["ms"] / found["untiered"]["ms"]}
        if "busy_ms" in found["tiered"]:
            busy = (found[name]["busy_ms"] for name in ("tiered", "untiered"))
            times["times_busy"] = next(busy) / next(busy)
        return found | times

    def flush(self) -> dict[str, Any]:
        """Writes all rows home that are newer there."""
        import jax

        from tiers.training import events_of

        training = self._trained(True, self._stream, self._given.share)
        run = jax.jit(training.coll.flush, donate_argnums=0)
        training.state = run(training.state)  # compiles
        training.run(self._timed(training, self._stream))
        before = events_of(training.state)["written_back"]
        jax.block_until_ready(training.state)
        begin = time.perf_counter()
        training.state = jax.block_until_ready(run(training.state))
        ms = 1e3 * (time.perf_counter() - begin)
        rows = events_of(training.state)["written_back"] - before
        tier = next(iter(training.state.values())).tier
        nbytes = rows * 4 * tier.homes.shape[1]
        return {"ms": ms, "rows": rows, "gigabytes_per_second": nbytes / ms / 1e6}

    def find(self) -> dict[str, Any]:
        """Looks uniform ids up, a quarter of the rows in frames."""
        from tiers.stream import Stream

        case = dataclasses.replace(self._case, dim=64)
        stream = Stream(case, "uniform")
        training = self._trained(True, stream, 0.25, case)
        batches = self._timed(training, stream)
        ms = training.find(batches)
        found = {"ms": ms, "ids_per_second": case.num_ids / ms * 1e3}
        finds = functools.partial(training.find, batches)
        return found | _traced(finds, len(batches) + 1)  # one find more, to compile


def _traced(run: Callable[[], Any], steps: int) -> dict[str, Any]:
    """What a GPU did in a step; nothing on a CPU."""
    from suite.busy import trace

    busy = trace(run, steps)
    if busy is None:
        return {}
    found = {"busy_ms": busy.ms, "count": busy.kernels}
    return found | {"microseconds": busy.by_name}


if __name__ == "__main__":
    main()
