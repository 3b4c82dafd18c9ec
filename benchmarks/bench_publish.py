# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Measures what publishing costs a training step, and how old served rows are.

    python benchmarks/bench_publish.py                  # 50,000 rows a second, dim 128
    python benchmarks/bench_publish.py --rows 1000000 --ids 4000000 --capacity 8000000
    python benchmarks/bench_publish.py --hidden 512     # steps with a dense part
    python benchmarks/bench_publish.py --to tcp
    python benchmarks/bench_publish.py --to redis://localhost

A trainer uses so many rows a second, in steps of a fixed rate, first without and then
with a publisher. Its first seconds (``--warm``) do not count, since programs are
compiled then. A subscriber in a process of its own looks up 4,096 ids again and
again, and notes when each step becomes visible to it. Times are of this host's clock;
both processes share its cores, and its GPU if there is one. On a GPU the second command
takes less than two minutes; give JAX half of the memory for each process:
XLA_PYTHON_CLIENT_MEM_FRACTION=0.4.
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

WANTED = {"step_ratio": 1.03, "visible_s_p99": 1.0, "lookup_ratio": 1.1}


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


def follow(source: Any, dim: int, capacity: int, size: int, events: Any) -> None:
    """Looks up and notes how long that takes, and when each step is served."""
    seen, ready, updating = events
    coll, draw = make_tables(dim, capacity), np.random.default_rng(1)
    begin = time.perf_counter()
    served = jde.serving.Subscriber(channel(*source), coll, interval=0.005)
    batches = [jde.ids(draw.integers(0, size, 4096)) for _ in range(8)]

    def look_up(n: int) -> float:
        start = time.perf_counter()
        jax.block_until_ready(served.find({"item": batches[n % 8]}))
        return time.perf_counter() - start

    look_up(0)
    first = time.perf_counter() - begin
    seconds: tuple[list[float], list[float]] = ([], [])
    for n in range(20):
        look_up(n)
    ready.set()
    step = n = -1
    while step != 0:
        n += 1
        seconds[updating.is_set()].append(look_up(n))
        if served.version().step != step:
            step = served.version().step
            seen.put((step, time.time()))
        time.sleep(0.002)
    served.close()
    quiet, busy = (float(np.percentile(each or [np.nan], 99)) for each in seconds)
    seen.put(("reader", {"first_answer_s": first, "quiet_s": quiet, "busy_s": busy}))


def loss_of(dim: int, hidden: int) -> Any:
    """Returns a loss of rows: their sum, or that of a network of two layers."""
    if not hidden:
        return lambda rows: rows["item"].sum()
    draw = np.random.default_rng(0)
    first = jnp.asarray(draw.normal(size=(dim, hidden)), jnp.float32)
    second = jnp.asarray(draw.normal(size=(hidden, hidden)), jnp.float32)

    def loss(rows: Any) -> jax.Array:
        return jax.nn.relu(jax.nn.relu(rows["item"] @ first) @ second).mean()

    return loss


def measure(
    options: argparse.Namespace,
    publisher: Any,
    coll: Any,
    state: Any,
    seconds: int | None = None,
    first: int = 1,
) -> Any:
    """Runs steps at a fixed rate; returns the state, seconds and moments of steps."""
    count = options.rate * (options.seconds if seconds is None else seconds)
    loss = loss_of(options.dim, options.hidden)

    @functools.partial(jax.jit, donate_argnums=0)
    def train(state: Any, ids: Any) -> Any:
        rows, residual, state = coll.lookup(state, ids)
        return coll.apply_gradients(state, residual, jax.grad(loss)(rows))

    draw = np.random.default_rng(0)
    size = options.rows // options.rate
    batches = [jde.ids(draw.integers(0, options.ids, size)) for _ in range(8)]
    state = jax.block_until_ready(train(state, {"item": batches[0]}))
    times, ends = [], {}
    begin = time.perf_counter()
    for step in range(first, first + count):
        late = begin + (step - first) / options.rate - time.perf_counter()
        time.sleep(max(0.0, late))
        start = time.perf_counter()
        state = jax.block_until_ready(train(state, {"item": batches[step % 8]}))
        ends[step] = time.time()
        if publisher is not None:
            publisher.step(state, step=step)
        times.append(time.perf_counter() - start)
    return state, np.array(times), ends


def main() -> None:
    """Prints the table, and with --json the same for programs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=50_000, help="used in a second")
    parser.add_argument("--rate", type=int, default=10, help="steps in a second")
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--ids", type=int, default=300_000)
    parser.add_argument("--capacity", type=int, default=500_000)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument(
        "--warm", type=int, default=3, help="seconds of publishing before it counts"
    )
    parser.add_argument("--dtype", default="int8")
    parser.add_argument("--hidden", type=int, default=0, help="width of a dense part")
    parser.add_argument("--to", default="folder", help="folder, tcp, or URL of a Redis")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = run(options)
    if options.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        limit = WANTED.get(name)
        said = "" if limit is None else f"   wanted: at most {limit:g}"
        print(f"{name:24} {value:14,.3f}{said}")


def run(options: argparse.Namespace) -> dict[str, float]:
    """Measures without a publisher, then with one; a reader looks up all the time."""
    coll = make_tables(options.dim, options.capacity)
    state, first, _ = measure(options, None, coll, coll.init(0))
    plain = [float(np.median(first))]
    context = multiprocessing.get_context("spawn")
    events = context.Queue(), context.Event(), context.Event()
    seen, ready, updating = events
    with tempfile.TemporaryDirectory() as folder:
        to = channel(options.to, folder)
        with jde.serving.Publisher(coll, to, dtype=options.dtype) as publisher:
            publisher.step(state, step=1 << 40)
            publisher.flush()
            snapshot = _bytes(folder, "snapshot")
            source = (options.to, folder, getattr(to, "port", None))
            arguments = (source, options.dim, options.capacity, options.ids, events)
            reader = context.Process(target=follow, args=arguments)
            reader.start()
            ready.wait(300)
            state, some, _ = measure(options, None, coll, state)
            plain.append(float(np.median(some)))
            state, _, _ = measure(
                options, publisher, coll, state, options.warm, 1 << 41
            )
            before = publisher.stats()
            updating.set()
            state, published, ends = measure(options, publisher, coll, state)
            counts = {n: each - before[n] for n, each in publisher.stats().items()}
            publisher.flush(state, step=0)
            found = _seen(seen, ends)
            reader.join(60)
            size = _bytes(folder, "segment")
    ages, served = found
    return {
        "step_ms": 1e3 * min(plain),
        "step_ms_published": 1e3 * float(np.median(published)),
        "step_ms_published_mean": 1e3 * float(np.mean(published)),
        "step_ratio": float(np.median(published)) / min(plain),
        "visible_s_p50": float(np.percentile(ages, 50)),
        "visible_s_p99": float(np.percentile(ages, 99)),
        "lookup_ms_p99_quiet": 1e3 * served["quiet_s"],
        "lookup_ms_p99": 1e3 * served["busy_s"],
        "lookup_ratio": served["busy_s"] / served["quiet_s"],
        "first_answer_s": served["first_answer_s"],
        "snapshot_bytes": snapshot,
        "segments": counts["segments"],
        "skipped": counts["skipped"],
        "segment_bytes": size,
    }


def _bytes(folder: str, kind: str) -> int:
    found = Path(folder).rglob(f"{kind}*/**/*")
    return sum(path.stat().st_size for path in found if path.is_file())


def _seen(seen: Any, ends: dict[int, float]) -> tuple[list[float], dict[str, float]]:
    """Seconds from the end of each step until it was served, and what a reader took."""
    ages = []
    while True:
        step, said = seen.get(timeout=120)
        if step == "reader":
            return ages, said
        if step in ends:
            ages.append(said - ends[step])


if __name__ == "__main__":
    main()
