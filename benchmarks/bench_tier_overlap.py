# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""How much of a tier's bus time a dense part of a step hides.

    python benchmarks/bench_tier_overlap.py
    python benchmarks/bench_tier_overlap.py --scale 0.01 --width 256 --warm 8  # a CPU

Workload t (see ``bench_tiers.py``) with products of bfloat16 matrices between lookup
and update. Compares a plain step, a prefetch before the dense part and a prefetch
during it. `hidden` is the share of the shorter of the bus and the dense part by which a
step is shorter than both after each other. `--json` also has a step of each way as a
timeline, which ``tiers/timeline.py`` draws.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jax_dynemb as jde
from tiers.stream import WORKLOAD, Stream
from tiers.timeline import Event, record
from tiers.training import Training, events_of

PLAIN, BEFORE, DURING = "plain", "prefetch", "prefetch_during"
WAYS = (PLAIN, BEFORE, DURING)
_Step = Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class Dense:
    """Products of matrices that begin with rows and end with gradients."""

    width: int
    layers: int

    def __call__(self, rows: dict[str, jax.Array], gradients: Any, weights: Any) -> Any:
        """Returns gradients of the rows, and what the last product is."""
        moved = {name: gradients[name] + 1e-6 * row for name, row in rows.items()}
        if not self.layers:
            return moved, jnp.zeros(())
        first = next(iter(rows.values()))
        x = jnp.resize(first.astype(jnp.bfloat16), (self.width, self.width))
        for _ in range(self.layers):
            x = jnp.tanh(x @ weights)
        last = jnp.max(x).astype(jnp.float32)
        return {name: each + 0 * last for name, each in moved.items()}, last


def compiled(training: Training, way: str, dense: Dense) -> _Step:
    """Compiles a step that takes a batch and the one behind it."""
    coll = training.coll

    def step(state: Any, batch: Any, following: Any, gradients: Any, w: Any) -> Any:
        rows, residual, state = coll.lookup(state, batch)
        if way == BEFORE:
            state = coll.prefetch(state, following)

        def compute(rows: Any) -> Any:
            return dense(rows, gradients, w)

        if way == DURING:
            moved, last, state = coll.prefetch_during(state, following, compute, rows)
        else:
            moved, last = compute(rows)
        return coll.apply_gradients(state, residual, moved), last

    options = jde.compiler_options(loops=True)
    return jax.jit(step, donate_argnums=0, compiler_options=options)


class Timer:
    """Takes steps on a stream of which no batch comes twice."""

    def __init__(self, given: argparse.Namespace, tier: Any):
        """Fills tables with every id."""
        case = WORKLOAD.scaled(given.scale)
        if given.tables:
            case = dataclasses.replace(case, tables=given.tables)
        self.stream = Stream(case, "zipf")
        self.training = Training(case, given.optimizer, tier)
        self.training.fill(self.stream)
        width, rng = given.width, np.random.default_rng(0)
        drawn = rng.normal(size=(width, width)).astype(np.float32) / np.sqrt(width)
        self._weights = jnp.asarray(drawn, jnp.bfloat16)
        self._next = 0

    def milliseconds(self, step: _Step, steps: int, rounds: int) -> float:
        """Times a step: the median of some rounds, after one that does not count."""
        took = [self._round(step, steps) for _ in range(rounds + 1)]
        return float(np.median(took[1:]))

    def warm(self, steps: int) -> None:
        """Takes plain steps, until frames have what a run gives them."""
        self._round(compiled(self.training, PLAIN, Dense(1, 0)), steps)

    def dense_alone(self, dense: Dense) -> float:
        """Times the dense part without tables."""
        rows = {name: 1 * each for name, each in self.training.gradients.items()}
        run = jax.jit(lambda r, w: dense(r, r, w))
        jax.block_until_ready(run(rows, self._weights))
        best = float("inf")
        for _ in range(3):
            begin = time.perf_counter()
            for _ in range(10):
                result = run(rows, self._weights)
            jax.block_until_ready(result)
            best = min(best, 100 * (time.perf_counter() - begin))
        return best

    def timeline(self, step: _Step) -> list[Event]:
        """Records what a GPU did in one step of five."""
        return record(lambda: self._round(step, 5))

    def _round(self, step: _Step, steps: int) -> float:
        first, self._next = self._next, self._next + steps
        drawn = self.stream.batches(first, first + steps + 1)
        batches, state = self.training.batches(drawn), self.training.state
        jax.block_until_ready((state, batches))
        begin = time.perf_counter()
        for batch, following in zip(batches, batches[1:], strict=False):
            state, last = step(
                state, batch, following, self.training.gradients, self._weights
            )
        jax.block_until_ready((state, last))
        self.training.state = state
        return 1e3 * (time.perf_counter() - begin) / steps


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures every way at every dense part, and prints a line for each."""
    given = _options().parse_args(arguments)
    os.environ.setdefault("XLA_PJRT_GPU_HOST_MEMORY_LIMIT_GB", str(given.pinned))
    nothing = Dense(given.width, 0)
    timer = Timer(given, None)
    untiered = timer.milliseconds(compiled(timer.training, PLAIN, nothing), 10, 3)
    del timer
    timer = Timer(given, jde.tiers.host(hbm_fraction=given.share))
    timer.warm(given.warm)
    tiered = timer.milliseconds(compiled(timer.training, PLAIN, nothing), 10, 3)
    bus = tiered - untiered
    found = {"device": jax.devices()[0].device_kind, "optimizer": given.optimizer}
    told = {"untiered_ms": untiered, "tiered_ms": tiered, "bus_ms": bus}
    print(json.dumps(found | told), flush=True)
    lines, timelines = [], []
    for layers in given.layers:
        dense = Dense(given.width, layers)
        alone = timer.dense_alone(dense)
        for way in given.ways:
            step = compiled(timer.training, way, dense)
            before = events_of(timer.training.state)
            ms = timer.milliseconds(step, given.steps, given.rounds)
            after = events_of(timer.training.state)
            moved = {name: after[name] - before[name] for name in after}
            hits = moved["hits"] / max(1, moved["hits"] + moved["misses"])
            line = {"dense_ms": alone, "way": way, "ms": ms, "over_dense": ms - alone}
            line |= {"hidden": (tiered + alone - ms) / min(bus, max(alone, 1e-3))}
            line |= {"hit_rate": hits}
            print(json.dumps(line), flush=True)
            lines.append(line)
            if given.json and layers == given.drawn:
                timelines.append({"way": way, "events": timer.timeline(step)})
    if given.json:
        figures = found | told | {"lines": lines, "timelines": timelines}
        Path(given.json).write_text(json.dumps(figures))


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scale", type=float, default=1.0, help="of rows and ids")
    parser.add_argument("--tables", type=int, default=0)
    parser.add_argument("--optimizer", default="adam")
    parser.add_argument("--share", type=float, default=0.125, help="of rows in HBM")
    parser.add_argument("--width", type=int, default=8192, help="of the matrices")
    parser.add_argument("--layers", nargs="+", type=int, default=(0, 2, 4, 7))
    parser.add_argument("--warm", type=int, default=60, help="steps before any count")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--json", help="file for all figures")
    parser.add_argument("--drawn", type=int, default=4, help="layers of the timelines")
    parser.add_argument(
        "--pinned", type=int, default=110, help="most GB of host memory"
    )
    return parser


if __name__ == "__main__":
    main()
