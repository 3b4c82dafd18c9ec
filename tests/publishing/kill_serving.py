# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Publishers and subscribers that are killed at any moment; run by test_killed.

    python kill_serving.py DIRECTORY KILLS SEED CHANNEL

CHANNEL is folder, socket or redis. A Redis server is killed too, and comes back with
what it saved up to a second before. JAX is imported once, and each process is a fork. A
trainer restores its latest checkpoint, which may be older than what it has published,
and goes on. A reader compares all rows of each version with those that its step must
have: a row is the number of steps that have used it since it was last removed. Prints
one line of JSON.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

import jax_dynemb as jde

IDS, BATCH, REMOVED, SAVE_EVERY = 400, 60, 15, 7
COLL = jde.Tables(
    [
        jde.TableConfig(
            name,
            dim=4,
            capacity=1024,
            initializer=jde.initializers.zeros(),
            optimizer=jde.optim.sgd(1.0),
            log_removed=4096,
        )
        for name in "ab"
    ]
)


def drawn(step: int) -> tuple[np.ndarray, np.ndarray]:
    """The ids that a step uses, and those that it removes before."""
    draw = np.random.default_rng(step)
    return draw.permutation(IDS)[:BATCH], draw.permutation(IDS)[:REMOVED]


_COUNTS = [np.zeros(IDS, np.int64)]


def counts_at(step: int) -> np.ndarray:
    """How often each id was used since it was removed last, after a step."""
    while len(_COUNTS) <= step:
        used, removed = drawn(len(_COUNTS))
        counts = _COUNTS[-1].copy()
        counts[removed] = 0
        counts[used] += 1
        _COUNTS.append(counts)
    return _COUNTS[step]


@jax.jit
def train(state, used, removed):
    state = COLL.erase(state, removed)
    rows, residual, state = COLL.lookup(state, used)
    grads = {name: -jnp.ones_like(each) for name, each in rows.items()}
    return COLL.apply_gradients(state, residual, grads)


def of_both(ids: np.ndarray) -> dict:
    """The same ids for both tables."""
    return {name: jde.ids(ids) for name in "ab"}


def writer_of(folder: Path) -> Any:
    """Where a trainer publishes."""
    kind, where = (folder / "channel").read_text().split()
    if kind == "redis":
        return jde.serving.Redis(where, "p", lease=0.2)
    if kind == "socket":
        return jde.serving.Listener(folder / "out", where)
    return folder / "out"


def reader_of(folder: Path) -> Any:
    """Where a reader reads."""
    kind, where = (folder / "channel").read_text().split()
    return jde.serving.Socket(where) if kind == "socket" else writer_of(folder)


def reached(call: Callable) -> Any:
    """Calls again while the channel is away."""
    while True:
        try:
            return call()
        except ConnectionError:
            time.sleep(0.01)


def run_trainer(folder: Path, log: int) -> None:
    """Trains and publishes until it is killed."""
    saved, step = folder / "saved", 0
    state = COLL.init(0)
    if jde.checkpoint.latest(saved) is not None:
        restored = jde.checkpoint.restore(saved, {"tables": state}, tables=COLL)
        state, step = restored.tree["tables"], restored.step
    publisher = reached(
        lambda: jde.serving.Publisher(COLL, writer_of(folder), snapshot_every=9)
    )
    while True:
        step += 1
        used, removed = drawn(step)
        state = train(state, of_both(used), of_both(removed))
        with contextlib.suppress(ConnectionError):  # training goes on
            publisher.step(state, {"w": jnp.full(2, step)}, step=step)
        os.write(log, f"step {step}\n".encode())
        if step % SAVE_EVERY == 0:
            jde.checkpoint.save(saved, step, {"tables": state}, tables=COLL, keep=2)
            jde.checkpoint.wait(saved)


def check(served: jde.serving.Subscriber) -> int:
    """Compares all rows of a version with what they must be; returns its step."""
    with served.reading() as (version, state):
        rows, found, _ = COLL.find(state, of_both(np.arange(IDS)))
        rows, found = jax.device_get((rows, found))
    want = counts_at(version.step)
    for name in "ab":
        np.testing.assert_array_equal(rows[name], np.repeat(want[:, None], 4, 1))
        np.testing.assert_array_equal(found[name], want > 0)
    assert version.dense["w"].tolist() == [version.step] * 2
    return version.step


def run_reader(folder: Path, log: int) -> None:
    """Follows and compares until it is killed."""
    served = jde.serving.Subscriber(reader_of(folder), COLL, interval=0)
    number = -1
    while True:
        if served.version().number != number:
            number = served.version().number
            os.write(log, f"checked {check(served)}\n".encode())
        try:
            taken = served.update()
        except ConnectionError:
            taken = 0
        if taken == 0:
            time.sleep(0.005)


class Child:
    """A fork that runs a function and says in lines what it does."""

    alive: ClassVar[set[int]] = set()

    def __init__(self, run: Callable[[Path, int], None], folder: Path):
        self._read, write = os.pipe()
        os.set_blocking(self._read, False)
        self.lines: list[str] = []
        self._rest = b""
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._read)
            try:
                run(folder, write)
            except BaseException as error:  # it must not run the parent's code
                os.write(write, f"failed: {error!r}\n".encode())
            finally:
                os._exit(1)
        os.close(write)
        self.alive.add(self.pid)

    def read(self) -> list[str]:
        """What it has said until now; RuntimeError if it has failed."""
        try:
            while data := os.read(self._read, 1 << 16):
                self._rest += data
        except BlockingIOError:
            pass
        *lines, self._rest = self._rest.split(b"\n")
        self.lines += [line.decode() for line in lines]
        if bad := [line for line in self.lines if line.startswith("failed")]:
            raise RuntimeError(bad[0])
        return self.lines

    def wait_for_lines(self, count: int) -> None:
        """Waits until it has said so many."""
        until = time.monotonic() + 240
        while len(self.read()) < count:
            if time.monotonic() > until:
                raise RuntimeError(f"it has said {self.lines} after four minutes")
            time.sleep(0.002)

    def kill(self) -> list[str]:
        """Ends it at once, and returns all that it said."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.alive.discard(self.pid)
        said = self.read()
        os.close(self._read)
        return said


class Server:
    """A Redis server that saves each second."""

    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir()
        self.start()

    def start(self) -> None:
        """Starts it with what it saved."""
        program = shutil.which("redis-server")
        assert program is not None
        arguments = ["--port", "0", "--unixsocket", str(self.folder / "s")]
        arguments += ["--save", "1 1", "--dir", str(self.folder)]
        self.process = subprocess.Popen(
            [program, *arguments], stdout=subprocess.DEVNULL
        )

    def kill(self) -> None:
        """Ends it at once."""
        self.process.kill()
        self.process.wait()


def prepare(folder: Path, kind: str) -> Server | None:
    """Says where the channel is; starts a server for it."""
    where = "-"
    if kind == "redis":
        where = f"unix://{folder / 'server' / 's'}"
    elif kind == "socket":
        with socket.create_server(("127.0.0.1", 0)) as some:
            where = f"127.0.0.1:{some.getsockname()[1]}"
    (folder / "channel").write_text(f"{kind} {where}")
    return Server(folder / "server") if kind == "redis" else None


def main(folder: Path, kills: int, seed: int, kind: str = "folder") -> dict[str, int]:
    """Kills so many trainers, readers and servers; counts steps and versions."""
    folder = folder.absolute()
    server = prepare(folder, kind)
    try:
        return kill(folder, kills, random.Random(seed), server)
    finally:
        for child in Child.alive:
            os.kill(child, signal.SIGKILL)
        if server is not None:
            server.kill()


def kill(
    folder: Path, kills: int, draw: random.Random, server: Server | None
) -> dict[str, int]:
    """Does what ``main`` says."""
    counts = {"kills": 0, "servers": 0, "steps": 0, "versions": 0}
    trainer = Child(run_trainer, folder)
    trainer.wait_for_lines(1)
    reader = Child(run_reader, folder)
    while counts["kills"] < kills:
        counts["kills"] += 1
        if counts["kills"] % 50 == 0:  # a run of hours may be ended
            print(json.dumps(counts), file=sys.stderr, flush=True)
        if server is not None and draw.random() < 0.15:
            time.sleep(draw.random())
            server.kill()
            time.sleep(draw.random() * 0.2)
            server.start()
            counts["servers"] += 1
            continue
        victim = trainer if draw.random() < 0.6 else reader
        victim.wait_for_lines(draw.choice((1, 2, 5, 12)))
        time.sleep(draw.random() * 0.02)
        said = victim.kill()
        if victim is trainer:
            counts["steps"] += len(said)
            trainer = Child(run_trainer, folder)
        else:
            counts["versions"] += len(said)
            reader = Child(run_reader, folder)
    trainer.wait_for_lines(3)
    reader.wait_for_lines(1)
    trainer.kill()
    counts["versions"] += len(reader.kill())
    return counts


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), *map(int, sys.argv[2:4]), *sys.argv[4:])))
