# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Measures what publishing costs a training step, and how old served rows are.

    python benchmarks/bench_publish.py                  # 50,000 rows a second, dim 128
    python benchmarks/bench_publish.py --rows 1000000 --ids 4000000 --capacity 8000000
    python benchmarks/bench_publish.py --hidden 512     # steps with a dense part
    python benchmarks/bench_publish.py --hidden 512 --every 4  # larger segments, fewer
    python benchmarks/bench_publish.py --to tcp
    python benchmarks/bench_publish.py --to redis://localhost

A trainer uses so many rows a second, in steps of a fixed rate, first without and then
with a publisher. Its first seconds (``--warm``) do not count, since programs are
compiled then. A subscriber in a process of its own looks up 4,096 ids ``--lookups``
times a second, and notes when each step becomes visible to it. Then steps run one after
the other, and are published at the rate, since a training does not wait for each.
Times are of this host's clock; both processes share its cores, and its GPU if there is
one, unless ``--reader cpu``. On a GPU the second command takes less than two minutes;
give JAX half of the memory for each process: XLA_PYTHON_CLIENT_MEM_FRACTION=0.4.
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

_UNCOUNTED, _QUIET, _BUSY = range(3)  # what the reader's lookups run beside
_FIRST = 1 << 40  # the moment of the first snapshot, which no step waits for
WANTED = {
    "step_ratio": 1.03,
    "step_in_a_row_ratio": 1.03,
    "visible_s_p99": 1.0,
    "lookup_ratio": 1.1,
}


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


def follow(source: Any, options: argparse.Namespace, events: Any) -> None:
    """Looks up and notes how long that takes, and when each step is served."""
    if options.reader == "cpu":
        jax.config.update("jax_platforms", "cpu")
    seen, ready, phase = events
    coll = make_tables(options.dim, options.capacity)
    draw = np.random.default_rng(1)
    begin = time.perf_counter()
    served = jde.serving.Subscriber(channel(*source), coll, interval=0.05)
    batches = [jde.ids(draw.integers(0, options.ids, 4096)) for _ in range(8)]

    def look_up(n: int) -> float:
        start = time.perf_counter()
        jax.block_until_ready(served.find({"item": batches[n % 8]}))
        return time.perf_counter() - start

    look_up(0)
    first = time.perf_counter() - begin
    seconds: tuple[list[float], ...] = ([], [], [])
    for n in range(20):
        look_up(n)
    ready.set()
    step = n = -1
    while step != 0:
        n += 1
        seconds[phase.value].append(look_up(n))
        if served.version().step != step:
            step = served.version().step
            seen.put((step, time.time()))
        time.sleep(1 / options.lookups)
    served.close()
    quiet, busy = (float(np.percentile(each or [np.nan], 99)) for each in seconds[1:])
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


def make_step(options: argparse.Namespace, coll: Any) -> Any:
    """Returns a jitted step: the next state, and a loss to wait for."""
    loss = loss_of(options.dim, options.hidden)

    @functools.partial(jax.jit, donate_argnums=0)
    def train(state: Any, ids: Any) -> Any:
        rows, residual, state = coll.lookup(state, ids)
        value, grads = jax.value_and_grad(loss)(rows)
        return coll.apply_gradients(state, residual, grads), value

    return train


class Trainer:
    """Trains on eight batches in turn."""

    def __init__(self, options: argparse.Namespace, coll: Any, state: Any):
        draw = np.random.default_rng(0)
        size = options.rows // options.rate
        self._batches = [
            {"item": jde.ids(draw.integers(0, options.ids, size))} for _ in range(8)
        ]
        self._train, self._rate = make_step(options, coll), options.rate
        self.state, self._step = state, 0
        self._next()

    def _next(self) -> Any:
        self._step += 1
        self.state, loss = self._train(self.state, self._batches[self._step % 8])
        return loss

    def at_rate(self, seconds: int, publisher: Any = None) -> Any:
        """Waits for each step, as many a second as wanted.

        Returns:
          When each ended, and the median of their seconds.
        """
        ends, took, begin = {}, [], time.perf_counter()
        for count in range(seconds * self._rate):
            late = begin + count / self._rate - time.perf_counter()
            time.sleep(max(0.0, late))
            start = time.perf_counter()
            jax.block_until_ready(self._next())
            ends[self._step] = time.time()
            if publisher is not None:
                publisher.step(self.state, step=self._step)
            took.append(time.perf_counter() - start)
        if publisher is not None:  # no later call publishes the last steps
            publisher.flush(self.state, step=self._step)
        return ends, float(np.median(took))

    def in_a_row(self, seconds: int, publisher: Any = None) -> float:
        """Runs steps one after the other, two in flight; returns seconds of a step.

        Publishes as often as at the rate.
        """
        before = jax.block_until_ready(self._next())
        first, begin = self._step, time.perf_counter()
        due = begin
        while time.perf_counter() - begin < seconds:
            loss = self._next()
            if publisher is not None and time.perf_counter() >= due:
                publisher.step(self.state, step=self._step)
                due += 1 / self._rate
            jax.block_until_ready(before)
            before = loss
        jax.block_until_ready(before)
        return (time.perf_counter() - begin) / (self._step - first)


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
    parser.add_argument("--every", type=int, default=1, help="steps from one segment")
    parser.add_argument("--snapshot-every", type=int, help="segments")
    parser.add_argument("--lookups", type=int, default=100, help="in a second")
    parser.add_argument("--reader", choices=("cpu", "default"), default="default")
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
    coll, seconds = make_tables(options.dim, options.capacity), options.seconds
    trainer = Trainer(options, coll, coll.init(0))
    trainer.at_rate(3)
    context = multiprocessing.get_context("spawn")
    events = context.Queue(), context.Event(), context.Value("i", _UNCOUNTED)
    seen, ready, phase = events
    alone, beside, plain, published, ends, counts = [], [], [], [], {}, {}
    with tempfile.TemporaryDirectory() as folder:
        to = channel(options.to, folder)
        with jde.serving.Publisher(
            coll,
            to,
            every=options.every,
            dtype=options.dtype,
            snapshot_every=options.snapshot_every,
        ) as publisher:
            publisher.step(trainer.state, step=_FIRST)
            publisher.flush()
            snapshot = _bytes(folder, "snapshot")
            source = (options.to, folder, getattr(to, "port", None))
            reader = context.Process(target=follow, args=(source, options, events))
            reader.start()
            ready.wait(300)
            trainer.at_rate(options.warm, publisher)
            publisher.flush()
            for _ in range(2):
                phase.value = _QUIET
                alone.append(trainer.at_rate(seconds)[1])
                before = publisher.stats()
                phase.value = _BUSY
                some, median = trainer.at_rate(seconds, publisher)
                ends |= some
                beside.append(median)
                after = publisher.stats()
                counts = {n: after[n] - before[n] for n in after}
                phase.value = _UNCOUNTED
                publisher.flush()
                plain.append(trainer.in_a_row(seconds))
                published.append(trainer.in_a_row(seconds, publisher))
                publisher.flush()
            publisher.flush(trainer.state, step=0)
            ages, served = _seen(seen, ends)
            reader.join(60)
            size = _bytes(folder, "segment")
    return {
        "step_ms": 1e3 * float(np.mean(alone)),
        "step_ms_published": 1e3 * float(np.mean(beside)),
        "step_ratio": float(np.sum(beside) / np.sum(alone)),
        "step_in_a_row_ms": 1e3 * float(np.mean(plain)),
        "step_in_a_row_ms_published": 1e3 * float(np.mean(published)),
        "step_in_a_row_ratio": float(np.sum(published) / np.sum(plain)),
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
    ages, waiting = [], sorted(ends)
    while True:
        step, said = seen.get(timeout=120)
        if step == "reader":
            return ages, said
        while waiting and waiting[0] <= step < _FIRST:
            ages.append(said - ends[waiting.pop(0)])


if __name__ == "__main__":
    main()
