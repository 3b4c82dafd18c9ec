# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Jobs of two processes that train and save, some of which are killed at any moment.

    python kill_job.py DIRECTORY RUNS SEED

Run by test_killed_job. JAX is imported once; each process of a job is a fork. It goes
on from the latest checkpoint and says in a pipe what it does, with a sum over the rows
on its devices that does not depend on their order: what was held when a checkpoint was
saved must be there when it is restored. In every other run one process is killed, in
the others all are. Prints one line of JSON.
"""

import json
import os
import random
import selectors
import signal
import socket
import sys
import tempfile
import time
import zlib
from collections import Counter
from pathlib import Path

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import jax_dynemb as jde
from jax_dynemb._src.files.checkpoint import pieces as _pieces

PROCESSES, DEVICES = 2, 2
KEEP = 2
HEARTBEAT = 10  # seconds until JAX takes a silent process for dead
PATIENCE = 60  # seconds that a survivor may take to end by itself
WATCHED = 3  # survivors; the others are killed soon
TABLE = jde.TableConfig("cat", dim=4, capacity=2048, optimizer=jde.optim.adagrad(0.1))


def held(coll: jde.Tables, state: dict) -> int:
    """A sum over the rows on this process's devices, in any order."""
    total = 0
    for chunk in coll.export(state, "cat"):
        columns = [chunk.keys, chunk.scores, chunk.rows]
        columns += chunk.optimizer_state.values()
        for row in zip(*columns, strict=True):
            total += zlib.crc32(b"".join(np.asarray(x).tobytes() for x in row))
    return total


class Job:
    """One process's part: tables on the mesh of all processes."""

    def __init__(self, directory: Path):
        self.directory = directory
        mesh = Mesh(np.array(jax.devices()), ("data",))
        self.coll = jde.Tables([TABLE], mesh=mesh)
        self.split = NamedSharding(mesh, PartitionSpec("data"))
        self.state = self.coll.init(0)
        self.train = jax.jit(self._train, donate_argnums=0)

    def _train(self, state, ids):
        rows, residual, state = self.coll.lookup(state, {"cat": ids})
        return self.coll.apply_gradients(state, residual, rows)

    def restore(self) -> int:
        """The step of the latest checkpoint; -1 if there is none."""
        if jde.checkpoint.latest(self.directory) is None:
            return -1
        done = jde.checkpoint.restore(self.directory, self.state, tables=self.coll)
        self.state = done.tree
        return done.step

    def advance(self, step: int) -> None:
        """Trains on this process's part of a batch; new and known ids."""
        ids = np.random.default_rng(step).integers(0, 20 * (step + 10), 64)
        mine = ids[jax.process_index() :: PROCESSES]
        self.state = self.train(self.state, jde.ids(mine, sharding=self.split))

    def save(self, step: int) -> None:
        """Begins to save."""
        jde.checkpoint.save(
            self.directory, step, self.state, tables=self.coll, keep=KEEP
        )


def work(directory: Path, number: int, port: int, log: int) -> None:
    """Goes on from the latest checkpoint for ever."""

    def say(*words) -> None:
        os.write(log, (" ".join(map(str, words)) + "\n").encode())

    jax.config.update("jax_num_cpu_devices", DEVICES)
    jax.distributed.initialize(
        f"127.0.0.1:{port}", PROCESSES, number, heartbeat_timeout_seconds=HEARTBEAT
    )
    job = Job(directory)
    step = job.restore()
    say("resumed", step, held(job.coll, job.state))
    while True:
        step += 1
        job.advance(step)
        say("saving", step, held(job.coll, job.state))
        job.save(step)
        jde.checkpoint.wait(directory)
        say("completed", step, 0)


class Run:
    """The processes of one job, seen from outside."""

    def __init__(self, directory: Path):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        self.said: list[list[tuple[str, int, int]]] = [[] for _ in range(PROCESSES)]
        self.errors: list[str] = []
        self._folder = tempfile.TemporaryDirectory()
        self._rest = [b""] * PROCESSES
        self._selector = selectors.DefaultSelector()
        self.children = [self._fork(directory, n, port) for n in range(PROCESSES)]

    def _fork(self, directory: Path, number: int, port: int) -> int:
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            os.dup2(os.open(self._stderr(number), os.O_WRONLY | os.O_CREAT), 2)
            os.dup2(2, 1)
            try:
                work(directory, number, port, write_end)
            except BaseException as error:  # it must not run the parent's code
                text = f"{type(error).__name__}: {error}".replace("\n", " ")
                os.write(write_end, f"failed {text[:300]}\n".encode())
            finally:
                os._exit(1)
        os.close(write_end)
        self._selector.register(read_end, selectors.EVENT_READ, number)
        return child

    def _stderr(self, number: int) -> str:
        return os.path.join(self._folder.name, str(number))

    def last_words(self, child: int) -> str:
        """Returns what a process printed when it ended: an exception or JAX's text."""
        number = self.children.index(child)
        for error in self.errors:
            if error.startswith(f"{number}: "):
                return error
        with open(self._stderr(number)) as file:
            fatal = [line for line in file if " F0" in line or line.startswith("F")]
        return f"{number}: " + (fatal[0].strip()[:400] if fatal else "")

    def listen(self, seconds: float) -> bool:
        """Hears what processes say; False when all have ended."""
        for key, _ in self._selector.select(max(0.0, seconds)):
            data = os.read(key.fd, 1 << 16)
            if not data:
                self._selector.unregister(key.fd)
                os.close(key.fd)
                continue
            *lines, self._rest[key.data] = (self._rest[key.data] + data).split(b"\n")
            for line in lines:
                what, *rest = line.decode().split(" ")
                if what == "failed":
                    self.errors.append(f"{key.data}: " + " ".join(rest))
                else:
                    self.said[key.data].append((what, int(rest[0]), int(rest[1])))
        return bool(self._selector.get_map())

    def count(self, what: str) -> int:
        """How often all processes have said something."""
        return min(sum(said[0] == what for said in each) for each in self.said)

    def end(self, patience: float) -> list[float]:
        """Waits, then kills the rest; seconds that each took to end by itself."""
        begin, took, left = time.monotonic(), [], set(self.children)
        while left and time.monotonic() - begin < patience:
            self.listen(0.05)
            for child in list(left):
                if os.waitpid(child, os.WNOHANG)[0]:
                    left.remove(child)
                    took.append(time.monotonic() - begin)
        for child in left:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        while self.listen(0.1):
            pass
        return took


def main(directory: Path, runs: int, seed: int) -> dict:
    """Kills so many jobs; counts what happened to their checkpoints."""
    _pieces.PIECE_BYTES = 1 << 12  # some arrays are written in pieces, as large ones
    rng, counts, expected = random.Random(seed), Counter(), {}
    durable, survivors = -1, []
    for number in range(runs):
        run = Run(directory)
        saves = rng.choice((1, 2, 3))
        limit = time.monotonic() + 120
        while run.count("saving") < saves and run.listen(0.05):
            if time.monotonic() > limit:
                break
        alone = number % 2 == 0
        ready = run.count("saving") >= saves
        pause = time.monotonic() + rng.random() * 0.3
        while time.monotonic() < pause:
            run.listen(pause - time.monotonic())
        victims = [rng.choice(run.children)] if alone else run.children
        for victim in victims:
            os.kill(victim, signal.SIGKILL)
        counts["kills"] += len(victims)
        watched = alone and len(survivors) < WATCHED
        took = run.end(PATIENCE if watched else 0.5)
        if watched:
            (other,) = set(run.children) - set(victims)
            seconds = round(took[1], 1) if len(took) == PROCESSES else None
            survivors.append([seconds, run.last_words(other)])
        if not ready:
            raise RuntimeError(f"the job did not begin: {run.said} {run.errors}")
        durable = judge(run, counts, expected, durable)
    latest = jde.checkpoint.latest(directory)
    found = {"last": durable, "latest": latest, "held": expected[latest]}
    return dict(counts) | found | {"survivors": survivors}


def judge(run: Run, counts: Counter, expected: dict, durable: int) -> int:
    """Compares what the processes of a run say; the newest complete step."""
    for what in ("resumed", "saving"):
        for parts in zip(*([s for s in each if s[0] == what] for each in run.said)):  # noqa: B905
            step, total = parts[0][1], sum(part[2] for part in parts)
            assert {part[1] for part in parts} == {step}
            if what == "resumed":
                counts["lost"] += step < durable
                counts["wrong"] += step >= 0 and expected[step] != total
            else:
                counts["started"] += 1
                expected[step] = total
    for each in run.said:
        durable = max([durable, *(s[1] for s in each if s[0] == "completed")])
    counts["completed"] += run.count("completed")
    return durable


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
