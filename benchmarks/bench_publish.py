# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Measures what publishing costs a training step, and how old served rows are.

    python benchmarks/bench_publish.py                  # 50,000 rows a second, dim 128
    python benchmarks/bench_publish.py --rows 1000000 --capacity 10000000
    python benchmarks/bench_publish.py --to tcp
    python benchmarks/bench_publish.py --to redis://localhost

A trainer uses so many rows a second, in steps of a fixed rate, with and without a
publisher in turns. A subscriber in a process of its own notes when each step becomes
visible to it. Times are of this host's clock; both processes share its cores.
"""

from __future__ import annotations

import argparse
import functools
import json
import multiprocessing
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jax_dynemb as jde


def make_tables(dim: int, capacity: int) -> jde.Tables:
    """Makes one table with a log of removed keys."""
    return jde.Tables(
        [
            jde.TableConfig(
                "item",
                dim,
                capacity,
                optimizer=jde.optim.sgd(0.1),
                log_removed=1 << 16,
            )
        ]
    )


def channel(to: str, folder: str, port: int | None = None) -> Any:
    """Returns what a publisher takes, or with a port of TCP what a subscriber takes."""
    if to == "folder":
        return folder
    if to == "tcp":
        if port is None:
            return jde.serving.Listener(folder, "127.0.0.1:0")
        return jde.serving.Socket(f"127.0.0.1:{port}")
    return jde.serving.Redis(to, f"bench_publish:{folder}")


def follow(source: Any, dim: int, capacity: int, seen: Any, ready: Any) -> None:
    """Notes when each step is served."""
    coll = make_tables(dim, capacity)
    served = jde.serving.Subscriber(channel(*source), coll, interval=0)
    ready.set()
    step = -1
    while step != 0:
        served.update()
        if served.version().step != step:
            step = served.version().step
            seen.put((step, time.time()))
        time.sleep(0.002)


def measure(options: argparse.Namespace, publisher: Any, coll: Any, state: Any) -> Any:
    """Runs steps at a fixed rate; returns the state, seconds and moments of steps."""

    @functools.partial(jax.jit, donate_argnums=0)
    def train(state: Any, ids: Any) -> Any:
        rows, residual, state = coll.lookup(state, ids)
        grads = {name: jnp.ones_like(each) for name, each in rows.items()}
        return coll.apply_gradients(state, residual, grads)

    draw = np.random.default_rng(0)
    size = options.rows // options.rate
    batches = [jde.ids(draw.integers(0, options.ids, size)) for _ in range(8)]
    state = jax.block_until_ready(train(state, {"item": batches[0]}))
    seconds, ends = [], {}
    begin = time.perf_counter()
    for step in range(1, options.seconds * options.rate + 1):
        late = begin + (step - 1) / options.rate - time.perf_counter()
        time.sleep(max(0.0, late))
        start = time.perf_counter()
        state = jax.block_until_ready(train(state, {"item": batches[step % 8]}))
        ends[step] = time.time()
        if publisher is not None:
            publisher.step(state, step=step)
        seconds.append(time.perf_counter() - start)
    return state, np.array(seconds), ends


def main() -> None:
    """Prints the table, and with --json the same for programs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=50_000, help="used in a second")
    parser.add_argument("--rate", type=int, default=10, help="steps in a second")
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--ids", type=int, default=300_000)
    parser.add_argument("--capacity", type=int, default=500_000)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--dtype", default="int8")
    parser.add_argument("--to", default="folder", help="folder, tcp, or URL of a Redis")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    coll = make_tables(options.dim, options.capacity)
    plain = []
    for _ in range(2):
        state, some, _ = measure(options, None, coll, coll.init(0))
        plain.append(float(np.median(some)))
    context = multiprocessing.get_context("spawn")
    seen, ready = context.Queue(), context.Event()
    with tempfile.TemporaryDirectory() as folder:
        to = channel(options.to, folder)
        with jde.serving.Publisher(coll, to, dtype=options.dtype) as publisher:
            publisher.step(state, step=1 << 40)
            source = (options.to, folder, getattr(to, "port", None))
            reader = context.Process(
                target=follow,
                args=(source, options.dim, options.capacity, seen, ready),
            )
            reader.start()
            ready.wait(120)
            state, published, ends = measure(options, publisher, coll, state)
            counts = publisher.stats()
            publisher.flush(state, step=0)
            reader.join(60)
            size = sum(x.stat().st_size for x in Path(folder).rglob("segment*/*"))
        ages = []
        while not seen.empty():
            step, when = seen.get()
            if step in ends:
                ages.append(when - ends[step])
    result = {
        "step_ms": 1e3 * min(plain),
        "step_ms_published": 1e3 * float(np.median(published)),
        "visible_s_p50": float(np.percentile(ages, 50)),
        "visible_s_p99": float(np.percentile(ages, 99)),
        "segments": counts["segments"],
        "skipped": counts["skipped"],
        "segment_bytes": size,
    }
    if options.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name:20} {value:,.3f}")


if __name__ == "__main__":
    main()
