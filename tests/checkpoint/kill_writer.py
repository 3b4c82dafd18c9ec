# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Processes that save checkpoints and are killed at any moment; run by test_killed.

    python kill_writer.py DIRECTORY KILLS SEED

JAX is imported once. Each writer is a fork of that process: it restores the latest
checkpoint, compares every number with what this step must hold, and saves the next
ones until it is killed. Prints one line of JSON.
"""

import functools
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import jax
import numpy as np

import jax_dynemb as jde
from jax_dynemb._src.files.checkpoint import pieces as _pieces
from support import without_identity

COLL = jde.Tables(
    [jde.TableConfig("cat", dim=4, capacity=1024, optimizer=jde.optim.adagrad(0.1))]
)
KEEP = 2


@functools.cache
def shapes() -> dict:
    """Returns what a state of these tables is made of."""
    return jax.eval_shape(COLL.init, 0)


def content(step: int) -> dict:
    """Makes what a checkpoint of this step holds; no number is the same in another."""
    rng = np.random.default_rng(step)

    def numbers(like: jax.ShapeDtypeStruct) -> jax.Array:
        words = rng.integers(0, 2**32, like.shape, np.uint32)
        floats = rng.normal(size=like.shape).astype(np.float32)
        return jax.device_put(words if like.dtype == np.uint32 else floats)

    return {
        "tables": jax.tree.map(numbers, shapes()),
        "dense": numbers(jax.ShapeDtypeStruct((64, 64), np.float32)),
    }


def check(directory: Path) -> int:
    """The step of the latest checkpoint; raises if it does not hold what it must."""
    if jde.checkpoint.latest(directory) is None:
        return -1
    restored = jde.checkpoint.restore(directory, content(0), tables=COLL)
    expected = content(restored.step)
    for a, b in zip(
        jax.tree.leaves(restored.tree), jax.tree.leaves(expected), strict=True
    ):
        a, b = without_identity(a), without_identity(b)
        np.testing.assert_array_equal(a, b)
    return restored.step


def write_until_killed(directory: Path, log: int) -> None:
    """Goes on from the latest checkpoint; says in the log what it does."""
    step = check(directory)
    os.write(log, f"resumed {step}\n".encode())
    while True:
        step += 1
        os.write(log, f"started {step}\n".encode())
        jde.checkpoint.save(directory, step, content(step), tables=COLL, keep=KEEP)
        jde.checkpoint.wait(directory)
        os.write(log, f"completed {step}\n".encode())


def run_writer(
    directory: Path, saves: int, part: float, usual: float
) -> tuple[list[tuple[str, int]], float]:
    """Forks a writer and kills it inside a save.

    Args:
      directory: of the checkpoints.
      saves: it is killed after it began so many.
      part: how much of that save's time is left to it, as a share of ``usual``.
      usual: seconds that a save takes.

    Returns:
      What it said, and the seconds of its last complete save (0 if none).
    """
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        try:
            write_until_killed(directory, write_end)
        except BaseException as error:  # it must not run the parent's code
            os.write(write_end, f"failed: {error}\n".encode())
        finally:
            os._exit(1)
    os.close(write_end)
    lines, begun, seconds = [], 0.0, 0.0
    with os.fdopen(read_end) as log:
        while saves and (line := log.readline()):
            lines.append(line)
            if line.startswith("started"):
                saves, begun = saves - 1, time.monotonic()
            if line.startswith("completed"):
                seconds = time.monotonic() - begun
        time.sleep(part * usual)
        os.kill(child, signal.SIGKILL)
        lines += log.readlines()
    os.waitpid(child, 0)
    bad = [line for line in lines if line.startswith("failed")]
    if bad:
        raise RuntimeError(bad[0])
    return [(line.split()[0], int(line.split()[1])) for line in lines], seconds


def main(directory: Path, kills: int, seed: int) -> dict[str, int]:
    """Kills so many writers; counts what happened to their checkpoints."""
    _pieces.PIECE_BYTES = (
        1 << 13
    )  # rows are written in pieces, as those of large tables
    rng = random.Random(seed)
    counts = {"kills": 0, "inside_a_save": 0, "started": 0, "completed": 0, "lost": 0}
    durable, usual = -1, 0.1
    for _ in range(kills):
        said, seconds = run_writer(
            directory, rng.choice((1, 1, 2)), rng.random(), usual
        )
        usual = seconds or usual  # the machine may have other work
        counts["kills"] += 1
        for what, step in said:
            if what == "resumed" and step < durable:
                counts["lost"] += 1
            if what == "completed":
                durable = step
            if what in counts:
                counts[what] += 1
        counts["inside_a_save"] += said[-1][0] == "started"
    return counts | {"last": durable}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
