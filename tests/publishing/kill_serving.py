# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Kills publishers and subscribers at any moment, and counts rows that are wrong.

    python tests/publishing/kill_serving.py --kills 10000 --channels folder redis

A trainer resumes from its latest checkpoint, which may be older than what it has
published, and goes on. A reader compares all rows of each version with those that its
step must have (counted_training.py). Either is killed, or both, or a Redis server,
which comes back with what it saved up to a second before. At the end a trainer
publishes its last step, which a new reader must have.

Each process is a fork of one that has compiled all programs, so a life takes a tenth of
a second. Forks have none of XLA's threads: there a step runs in the thread that calls
it. With --cold a fork begins before XLA, has its threads, and takes two seconds.

Prints one line of JSON for each channel. The exit status is 1 if a row was wrong.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jax_dynemb as jde
from jax_dynemb._src.engines.shard import copied
from jax_dynemb._src.serving.changed_keys import ChangedKeys, with_changes
from jax_dynemb._src.serving.changed_keys import prepare as prepare_store
from jax_dynemb._src.table import erase_keys
from publishing.counted_training import (
    COLL,
    DIM,
    IDS,
    TABLES,
    Faults,
    counts_at,
    faults_of,
    of_both,
    resumed,
    save,
    trained,
)
from publishing.forks import Fork
from publishing.kill_channels import (
    KINDS,
    Server,
    prepare,
    reached,
    reader_of,
    writer_of,
)

SAVE_EVERY, SNAPSHOT_EVERY = 7, 9
# How often both are killed, or the server, or a process that has only begun.
BOTH, SERVER, BEGINNING = 0.1, 0.03, 0.3


def run_trainer(folder: Path, log: int, steps: int | None = None) -> None:
    """Trains and publishes until it is killed, or so many steps and all of them."""
    checkpoint = folder / "saved.npz"
    state, step = resumed(checkpoint)
    publisher = reached(
        lambda: jde.serving.Publisher(
            COLL, writer_of(folder), snapshot_every=SNAPSHOT_EVERY
        )
    )
    last = None if steps is None else step + steps
    while step != last:
        step += 1
        state = trained(state, step)
        dense = {"w": jnp.full(2, step)}
        with contextlib.suppress(ConnectionError):  # training goes on
            publisher.step(state, dense, step=step)
        os.write(log, f"step {step}\n".encode())
        if step % SAVE_EVERY == 0:
            save(checkpoint, step, state)
        time.sleep(0.004)  # so that most steps are published
    publisher.flush(state, {"w": jnp.full(2, step)}, step=step)
    os.write(log, f"end {step}\n".encode())
    time.sleep(3600)  # a listener ends with its process


def check(served: jde.serving.Subscriber) -> tuple[int, Faults]:
    """Compares all rows of a version; returns its step, and how many are wrong."""
    with served.reading() as (version, state):
        rows, found, _ = COLL.find(state, of_both(np.arange(IDS)))
        rows, found = jax.device_get((rows, found))
    rows = {name: np.where(found[name][:, None], rows[name], 0) for name in TABLES}
    return version.step, faults_of(version.step, version.dense.get("w", -1), rows)


def check_torch(served: Any) -> tuple[int, Faults]:
    """Does what ``check`` does, with a subscriber of PyTorch."""
    import torch  # noqa: PLC0415 (it may not be installed)

    version = served.version()
    rows = version.collection({name: torch.arange(IDS) for name in TABLES})
    rows = {name: each.detach().numpy() for name, each in rows.items()}
    return version.step, faults_of(version.step, version.dense.get("w", -1), rows)


def run_reader(
    package: Any, folder: Path, log: int, versions: int | None = None
) -> None:
    """Compares, while a thread follows, until it is killed, or for so many versions."""
    source = reader_of(folder, package)
    if package is jde.serving:
        served, compare = jde.serving.Subscriber(source, COLL, interval=0.005), check
    else:
        served, compare = package.Subscriber(source, interval=0.005), check_torch
    number = -1
    while versions != 0:
        if served.version().number == number:
            time.sleep(0.002)
            continue
        number = served.version().number
        step, faults = compare(served)
        os.write(log, f"{step} {' '.join(map(str, faults))}\n".encode())
        versions = None if versions is None else versions - 1
    served.close()


def package_of(framework: str) -> Any:
    """The package whose subscribers are killed."""
    if framework == "jax":
        return jde.serving
    source = Path(__file__).resolve().parents[2] / "jax_dynemb_torch/src"
    sys.path.insert(0, str(source))
    import torch  # noqa: PLC0415 (it may not be installed)

    import jax_dynemb_torch  # noqa: PLC0415

    torch.set_num_threads(1)
    return jax_dynemb_torch


def warm_up(package: Any) -> None:
    """Compiles all programs that forks run, which must not compile any."""
    # No work for threads, which forks do not have. XLA reads it when it begins.
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false"
    os.environ["XLA_FLAGS"] = flags
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    with tempfile.TemporaryDirectory() as name, open(os.devnull, "wb") as log:
        folder = Path(name)
        prepare(folder, "folder")
        state, step = resumed(folder / "saved.npz")
        for history in range(6):  # from few rows to all
            to = folder / f"{history}"
            for _ in range(2):
                with jde.serving.Publisher(COLL, to, snapshot_every=2) as publisher:
                    for _ in range(3):
                        step += 1
                        state = trained(state, step)
                        dense = {"w": jnp.full(2, step)}
                        publisher.step(state, dense, step=step)
                    publisher.flush(state, dense, step=step)
                save(folder / "saved.npz", step, state)
                state, step = resumed(folder / "saved.npz")
        to.rename(folder / "out")
        for each in (package, jde.serving):
            run_reader(each, folder, log.fileno(), 1)
        served = jde.serving.Subscriber(folder / "out", COLL, interval=0)
        state = copied(served._states[0])
        for size in (100, 200, 300):  # keys that segments of several steps remove
            for name in TABLES:
                gone = erase_keys(COLL, name, state[name], np.arange(size))
                state = state | {name: gone}
                keys, rows = np.arange(size), np.zeros((size, DIM), np.float32)
                some = ChangedKeys(keys, rows, None, np.empty(0, np.int64))
                stored = with_changes(COLL, name, state[name], [some])
                state = state | {name: stored}
                prepare_store(COLL, name, stored, some, some.larger_size())


def main(
    folder: Path, kills: int, seed: int, kind: str, framework: str = "jax"
) -> dict[str, int]:
    """Kills so many trainers, readers and servers; counts steps, versions and rows."""
    server = prepare(folder.absolute(), kind)
    package, draw = package_of(framework), random.Random(seed)
    try:
        return Killing(folder.absolute(), draw, server, package).run(kills)
    finally:
        for child in Fork.alive:
            os.kill(child, signal.SIGKILL)
        if server is not None:
            server.kill()


class Killing:
    """A trainer and a reader that are killed and begin again."""

    def __init__(
        self, folder: Path, draw: random.Random, server: Server | None, package: Any
    ):
        self.folder, self.draw, self.server = folder, draw, server
        self.runs: dict[str, Callable[[Path, int], None]] = {
            "trainers": run_trainer,
            "readers": partial(run_reader, package),
        }
        self.counts = dict.fromkeys(
            ["kills", *self.runs, "servers", "steps", "versions", *Faults._fields], 0
        )
        self.forks: dict[str, Fork] = {}
        self.begin("trainers")
        self.forks["trainers"].wait_for_lines(1)
        self.begin("readers")

    def begin(self, name: str) -> None:
        """Begins a life."""
        self.forks[name] = Fork(self.runs[name], self.folder)

    def run(self, kills: int) -> dict[str, int]:
        """Does what ``main`` says."""
        shown = time.monotonic()
        while self.counts["kills"] < kills:
            self.kill_some()
            if time.monotonic() - shown > 60:  # a run of hours may be ended
                shown = time.monotonic()
                print(json.dumps(self.counts), file=sys.stderr, flush=True)
        for fork in self.forks.values():
            fork.wait_for_lines(1, self.forks.values())
        for name in self.runs:
            self.end(name, 0)
        self.compare_the_end()
        return self.counts

    def kill_some(self) -> None:
        """Waits for any moment, and kills one process or two."""
        draw, both = self.draw, self.draw.random() < BOTH
        if self.server is not None and draw.random() < SERVER:
            self.kill_server(self.server)
            return
        victim = "trainers" if draw.random() < 0.6 else "readers"
        if draw.random() < BEGINNING:
            time.sleep(draw.random() * 0.1)
        else:
            self.forks[victim].wait_for_lines(
                draw.choice((1, 1, 2, 5)), self.forks.values()
            )
            time.sleep(draw.random() * 0.02)
        for name in self.runs if both else [victim]:
            self.end(name)
        for name in self.runs if both else [victim]:
            self.begin(name)

    def kill_server(self, server: Server) -> None:
        """Lets it work for a moment, and its clients without it."""
        time.sleep(self.draw.random())
        server.kill()
        time.sleep(self.draw.random() * 0.2)
        server.start()
        self.counts["servers"] += 1
        self.counts["kills"] += 1

    def end(self, name: str, kills: int = 1) -> None:
        """Kills a process, and counts what it said."""
        self.counts["kills"] += kills
        self.counts[name] += kills
        for line in self.forks[name].kill():
            if name == "trainers":
                self.counts["steps"] += 1
                counts_at(int(line.split()[1]))  # for the readers that begin later
            else:
                self.count(line)

    def count(self, line: str) -> None:
        """Counts a version."""
        self.counts["versions"] += 1
        for fault, rows in zip(Faults._fields, line.split()[1:], strict=True):
            self.counts[fault] += int(rows)

    def compare_the_end(self) -> None:
        """Lets a trainer publish all, and a new reader have its last step."""
        trainer = Fork(partial(run_trainer, steps=5), self.folder)
        trainer.wait_for_lines(6)
        step = int(trainer.read()[-1].split()[1])
        reader = Fork(self.runs["readers"], self.folder)
        until = time.monotonic() + 60
        while not any(int(line.split()[0]) >= step for line in reader.read()):
            if time.monotonic() > until:
                raise RuntimeError(f"no reader has step {step}: {reader.lines[-3:]}")
            time.sleep(0.01)
        for line in reader.kill():
            self.count(line)
        trainer.kill()


def run_all(arguments: list[str]) -> int:
    """Runs the program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=100, help="of each channel")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--channels", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--framework", choices=("jax", "torch"), default="jax")
    parser.add_argument("--cold", action="store_true", help="with XLA's threads")
    options = parser.parse_args(arguments)
    if not options.cold:
        warm_up(package_of(options.framework))
    wrong = 0
    for kind in options.channels:
        with tempfile.TemporaryDirectory() as folder:
            begin = time.monotonic()
            counts = main(
                Path(folder), options.kills, options.seed, kind, options.framework
            )
        seconds = round(time.monotonic() - begin)
        said = {"channel": kind, "framework": options.framework, "seconds": seconds}
        print(json.dumps(said | counts), flush=True)
        wrong += sum(counts[fault] for fault in Faults._fields)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(run_all(sys.argv[1:]))
