# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Publishers and subscribers that are killed at any moment; run by test_killed.

    python kill_serving.py DIRECTORY KILLS SEED

JAX is imported once, and each process is a fork. A trainer restores its latest
checkpoint, which may be older than what it has published, and goes on. A reader
compares all rows of each version with those that its step must have: a row is the
number of steps that have used it since it was last removed. Prints one line of JSON.
"""

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

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


def run_trainer(folder: Path, log: int) -> None:
    """Trains and publishes until it is killed."""
    saved, step = folder / "saved", 0
    state = COLL.init(0)
    if jde.checkpoint.latest(saved) is not None:
        restored = jde.checkpoint.restore(saved, {"tables": state}, tables=COLL)
        state, step = restored.tree["tables"], restored.step
    publisher = jde.serving.Publisher(COLL, folder / "out", snapshot_every=9)
    while True:
        step += 1
        used, removed = drawn(step)
        state = train(state, of_both(used), of_both(removed))
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
    served = jde.serving.Subscriber(folder / "out", COLL, interval=0)
    number = -1
    while True:
        if served.version().number != number:
            number = served.version().number
            os.write(log, f"checked {check(served)}\n".encode())
        if served.update() == 0:
            time.sleep(0.005)


class Child:
    """A fork that runs a function and says in lines what it does."""

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
        said = self.read()
        os.close(self._read)
        return said


def main(folder: Path, kills: int, seed: int) -> dict[str, int]:
    """Kills so many trainers and readers; counts steps and versions."""
    draw = random.Random(seed)
    counts = {"kills": 0, "steps": 0, "versions": 0}
    trainer = Child(run_trainer, folder)
    trainer.wait_for_lines(1)
    reader = Child(run_reader, folder)
    while counts["kills"] < kills:
        victim = trainer if draw.random() < 0.6 else reader
        victim.wait_for_lines(draw.choice((1, 2, 5, 12)))
        time.sleep(draw.random() * 0.02)
        said = victim.kill()
        counts["kills"] += 1
        if victim is trainer:
            counts["steps"] += len(said)
            trainer = Child(run_trainer, folder)
        else:
            counts["versions"] += len(said)
            reader = Child(run_reader, folder)
    trainer.wait_for_lines(3)
    trainer.kill()
    reader.wait_for_lines(1)
    counts["versions"] += len(reader.kill())
    return counts


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
