# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A training step whose next batch is routed within it, beside the plain step.

    python benchmarks/bench_route_ahead.py                # all devices
    python benchmarks/bench_route_ahead.py --cpu 8 --batch 256 --layers 64

A model of 26 row-wise tables and a dense part, split over the batch. The steps train on
the same batches and take turns: the plain one, the one that routes ahead, and that one
with the routed batch donated. Prints the time of each, what the ahead steps save, how
many kernels XLA has made of each program, and on a GPU how long kernels run in a step:
the time of collectives, how much of it other kernels hide, and which. The last line is
JSON; ``--events FILE`` writes every kernel of a step.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import re
import tempfile
import time
from pathlib import Path
from typing import Any

TABLES = 26
_FREE = ("parameter", "constant", "get-tuple-element", "tuple", "bitcast")


def main() -> None:
    """Measures and prints."""
    options = _options()
    if options.cpu:
        os.environ["JAX_PLATFORMS"] = "cpu"
    import jax

    if options.cpu:
        jax.config.update("jax_num_cpu_devices", options.cpu)
    steps = {
        "plain": _Loop(options, ahead=False),
        "ahead": _Loop(options, ahead=True),
        "donated": _Loop(options, ahead=True, donated=True),
    }
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(options.rounds):
        for name, loop in steps.items():
            times[name].append(loop.run(options.steps))
    least = {name: 1e3 * min(some) for name, some in times.items()}
    found: dict[str, Any] = {
        "device": jax.devices()[0].device_kind,
        "devices": jax.device_count(),
        "ms": least,
        "median_ms": {n: 1e3 * sorted(t)[len(t) // 2] for n, t in times.items()},
        "saved_ms": {n: least["plain"] - ms for n, ms in least.items()},
        "operations": {name: loop.operations() for name, loop in steps.items()},
        "route_alone_ms": 1e3 * steps["ahead"].route_alone(options.steps),
        "collectives": {name: _traced(loop) for name, loop in steps.items()},
    }
    if options.events:
        every = {name: loop.events for name, loop in steps.items()}
        Path(options.events).write_text(json.dumps(every))
    print(json.dumps(found))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, default=8192, help="examples of a device")
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of all tables")
    parser.add_argument("--layers", default="512,256,64", help="of the dense part")
    parser.add_argument("--steps", type=int, default=20, help="of a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--events", default="", help="write the kernels of steps here")
    parser.add_argument("--cpu", type=int, default=0, help="forced CPU devices")
    return parser.parse_args()


class _Loop:
    """One of the training loops, compiled."""

    def __init__(self, options: Any, ahead: bool, donated: bool = False):
        import jax
        import jax.numpy as jnp
        import numpy as np
        from jax.sharding import Mesh, NamedSharding, PartitionSpec

        import jax_dynemb as jde

        mesh = Mesh(np.array(jax.devices()), ("data",))
        tables = [
            jde.TableConfig(
                f"t{n}",
                options.dim,
                options.rows // TABLES,
                optimizer=jde.optim.adagrad(0.05),
            )
            for n in range(TABLES)
        ]
        self._coll = coll = jde.Tables(tables, mesh=mesh)
        split = NamedSharding(mesh, PartitionSpec("data"))
        draw, examples = np.random.default_rng(0), options.batch * mesh.size
        keys = [draw.zipf(1.2, (TABLES, examples)) % options.rows for _ in range(4)]
        self._batches = [
            {f"t{n}": jax.device_put(jde.ids(k[n]), split) for n in range(TABLES)}
            for k in keys
        ]
        sizes = [TABLES * options.dim, *map(int, options.layers.split(",")), 1]
        pairs = zip(sizes[:-1], sizes[1:], strict=True)
        everywhere = NamedSharding(mesh, PartitionSpec())
        dense = [draw.normal(0, a**-0.5, (a, b)).astype(np.float32) for a, b in pairs]
        dense = jax.device_put(dense, everywhere)

        def loss(dense: Any, rows: Any) -> Any:
            x = jnp.concatenate(list(rows.values()), axis=-1)
            for weight in dense[:-1]:
                x = jax.nn.relu(x @ weight)
            return jnp.mean(jax.nn.softplus(x @ dense[-1]))

        def train(state: Any, dense: Any, batch: Any) -> Any:
            rows, residual, state = coll.lookup(state, batch)
            d_dense, d_rows = jax.grad(loss, argnums=(0, 1))(dense, rows)
            dense = [w - 1e-3 * d for w, d in zip(dense, d_dense, strict=True)]
            return coll.apply_gradients(state, residual, d_rows), dense

        def routing(state: Any, dense: Any, routed: Any, ids: Any) -> Any:
            return *train(state, dense, routed), coll.route(ids)

        self._route = jax.jit(coll.route)
        self._routed = self._route(self._batches[0]) if ahead else None
        donate = (0, 1, 2) if donated else (0, 1)
        step: Any = jax.jit(routing if ahead else train, donate_argnums=donate)
        self._carry = coll.init(0), dense
        given = () if self._routed is None else (self._routed,)
        self._step = step.lower(*self._carry, *given, self._batches[1]).compile()
        self.events: list[Any] = []
        for _ in range(4):
            self.run(len(self._batches))  # rows are there, programs compiled

    def run(self, steps: int) -> float:
        """Takes the steps; returns the seconds of one."""
        import jax

        jax.block_until_ready(self._carry)
        begin = time.perf_counter()
        for n in range(steps):
            ids = self._batches[(n + 1) % len(self._batches)]
            if self._routed is None:
                self._carry = self._step(*self._carry, ids)
            else:
                *carry, self._routed = self._step(*self._carry, self._routed, ids)
                self._carry = tuple(carry)
        jax.block_until_ready(self._carry)
        return (time.perf_counter() - begin) / steps

    def operations(self) -> dict[str, int]:
        """Counts what a program runs one after the other, outside of further rounds."""
        text = self._step.as_text() or ""
        lines = text[text.index("\nENTRY ") :].splitlines()
        found = [re.search(r" ([a-z][\w-]*)\(", x.split(" = ")[-1]) for x in lines]
        names = collections.Counter(x.group(1) for x in found if x)
        return {name: n for name, n in names.items() if name not in _FREE}

    def route_alone(self, steps: int) -> float:
        """Routes batches without a step; returns the seconds of one."""
        import jax

        begin = time.perf_counter()
        for _ in range(steps):
            jax.block_until_ready(self._route(self._batches[0]))
        return (time.perf_counter() - begin) / steps


def _traced(loop: _Loop, steps: int = 6) -> dict[str, Any]:
    """Milliseconds of a step in collectives on the first GPU, and what hides them."""
    import jax

    if jax.devices()[0].platform == "cpu":
        return {}
    with tempfile.TemporaryDirectory() as folder:
        options = jax.profiler.ProfileOptions()
        options.host_tracer_level = options.python_tracer_level = 0
        jax.profiler.start_trace(folder, profiler_options=options)
        loop.run(steps)
        jax.profiler.stop_trace()
        (file,) = list(Path(folder).rglob("*.xplane.pb"))[-1:]
        profile = jax.profiler.ProfileData.from_file(str(file))
    events = [
        (event.start_ns, event.start_ns + event.duration_ns, event.name)
        for plane in profile.planes
        if plane.name.startswith("/device:GPU:0")
        for line in plane.lines
        if line.name.startswith("Stream")
        for event in line.events
    ]
    loop.events = sorted(events)
    sent = [e for e in events if "nccl" in e[2].lower()]
    others = sorted(e for e in events if "nccl" not in e[2].lower())
    hidden, under = 0.0, collections.Counter()
    for begin, end, _ in sent:
        covered = begin
        for start, stop, name in others:
            shared = min(stop, end) - max(start, begin)
            if shared > 0:
                under[name.split("(")[0].split("<")[0][-40:]] += shared
            if start < end and stop > covered:
                hidden += max(0.0, min(stop, end) - max(start, covered))
                covered = min(end, max(covered, stop))
    whole = sum(end - begin for begin, end, _ in sent)
    scale = 1e6 * steps
    return {
        "kernels": len(events) / steps,
        "busy_ms": _covered(events) / scale,
        "span_ms": (max(e[1] for e in events) - min(e[0] for e in events)) / scale,
        "collectives_ms": whole / scale,
        "hidden_ms": hidden / scale,
        "hidden_under_ms": {n: ns / scale for n, ns in under.most_common(5)},
    }


def _covered(events: list[Any]) -> float:
    """Computes the nanoseconds in which some kernel runs."""
    total, until = 0.0, 0.0
    for begin, end, _ in sorted(events):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


if __name__ == "__main__":
    main()
