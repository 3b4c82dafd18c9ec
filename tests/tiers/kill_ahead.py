# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Kills processes that train a table with a store below it, and looks at what is left.

    LD_PRELOAD=faults.so python kill_ahead.py FOLDER TRIALS SEED
    python kill_ahead.py FOLDER TRIALS SEED RocksDB
    python kill_ahead.py FOLDER TRIALS SEED Redis URL

Each process goes on from the latest checkpoint. Above a log it dies at another call
that changes a file of the log or of the checkpoints (see tests/stores/faults.c). Above
other stores it dies at another time. A process that is not killed says what a table
with room for every row holds after each step. Prints a line of JSON after each. This
process only forks: it never runs a program of JAX itself.
"""

import contextlib
import ctypes
import dataclasses
import hashlib
import json
import os
import pickle
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import numpy as np

import jax_dynemb as jde
from walks import BELOW, PLAIN, TIER, cold_batches, rows_in, rows_of, stepper

KIND, URL = [*sys.argv[4:], "Log", ""][:2]
KILL, SAVED_EVERY, MOST_STEPS = 1, 4, 12
SMALL = dataclasses.replace(BELOW, tier=dataclasses.replace(TIER, host_rows=128))


def batch(step: int) -> np.ndarray:
    """The ids of a step, whichever process takes it."""
    return cold_batches(step, 1, 24)[0]


def in_child(work: Callable[[], object], path: Path) -> object | None:
    """Runs a function in a fork; its result, or None if it was killed."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            result = work()
            path.write_bytes(pickle.dumps(result))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return None
    if os.WEXITSTATUS(status):
        raise RuntimeError("a process failed; see above")
    return pickle.loads(path.read_bytes())  # noqa: S301 (written above)


def digest(rows: dict[int, bytes]) -> bytes:
    """Hashes rows: those of all steps would fill the memory."""
    return hashlib.sha256(repr(sorted(rows.items())).encode()).digest()


def truth(steps: int) -> dict[int, bytes]:
    """The rows of a table with room for all, after each step that may be saved."""
    coll = jde.Tables([PLAIN])
    state, held = coll.init(3), {0: digest({})}
    for step in range(1, steps + 1):
        _, state = stepper(coll)(state, {"cat": jde.ids(batch(step - 1))})
        if step % SAVED_EVERY == 0:
            held[step] = digest(rows_of(coll, state))
    return held


def resumed(folder: Path, coll: jde.Tables, store: jde.stores.Store):
    """Reads the state of the latest checkpoint, and the step after it."""
    state = coll.init(3)
    if jde.checkpoint.latest(folder / "checkpoints") is None:
        store.discard(store.keys())  # of a checkpoint that was not completed
        return state, 0
    back = jde.checkpoint.restore(
        folder / "checkpoints", state, tables=coll, stores={"cat": store}
    )
    return back.tree, back.step


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[jde.stores.Store]:
    """Opens the store; segments of a log are small: finished and rewritten often."""
    if KIND == "Redis":
        yield jde.stores.Redis(URL, PLAIN, name=str(folder), batch=7)
        return
    if KIND == "RocksDB":
        store = jde.stores.RocksDB(folder / "rocks", PLAIN)
    else:
        place = folder / "log"
        store = jde.stores.Log(place, PLAIN, segment_megabytes=1 / 128, keep=4)
    with contextlib.closing(store):
        yield store


def armed(folder: Path, call: int) -> Callable[[], int]:
    """Kills this process at a call, or after so many milliseconds.

    Returns:
      A function that counts what has passed.
    """
    if KIND == "Log":
        faults = ctypes.CDLL(None)
        faults.faults_arm(str(folder).encode(), KILL, ctypes.c_long(call))
        return faults.faults_calls
    begin, own = time.monotonic(), os.getpid()
    seconds = min(call / 1e3, threading.TIMEOUT_MAX)
    timer = threading.Timer(seconds, os.kill, (own, signal.SIGKILL))
    timer.daemon = True
    timer.start()
    return lambda: int(1e3 * (time.monotonic() - begin))


def train(folder: Path, call: int, said: int) -> int:
    """Trains and saves, and dies at some call; or returns how many there were."""
    passed = armed(folder, call)
    coll = jde.Tables([SMALL])
    with opened(folder) as store:
        state, first = resumed(folder, coll, store)
        given = ({"cat": batch(step)} for step in range(first, first + MOST_STEPS))
        with jde.tiers.ahead(coll, given, stores={"cat": store}) as feed:
            for step in range(first + 1, first + MOST_STEPS + 1):
                ids, state = feed.next(state)
                _, state = stepper(coll)(state, ids)
                if step % SAVED_EVERY == 0:
                    jde.checkpoint.save(
                        folder / "checkpoints",
                        step,
                        state,
                        tables=coll,
                        feed=feed,
                        keep=2,
                        wait=step % 8 == 0,
                    )
                    if step % 8 == 0:
                        os.write(said, f"{step}\n".encode())
            jde.checkpoint.wait()
    return passed()


def check(folder: Path) -> tuple[int, dict[int, bytes], int]:
    """The step of the latest checkpoint, all its rows, and how many are below."""
    coll = jde.Tables([SMALL])
    with opened(folder) as store:
        state, step = resumed(folder, coll, store)
        above, below = rows_of(coll, state), rows_in(store)
        assert not above.keys() & below.keys()
        if isinstance(store, jde.stores.Log):
            assert store.verify() == len(below)
    return step, above | below, len(below)


def main(folder: Path, trials: int, seed: int) -> dict[str, int]:
    """Kills so many processes, each at a random call."""
    rng, notes = random.Random(seed), folder / "notes"
    rows = folder / "rows"
    rows.mkdir()
    expected = in_child(lambda: truth(MOST_STEPS * (trials + 2)), notes)
    in_child(lambda: train(rows, 1 << 40, 2), notes)  # compiles
    calls = in_child(lambda: train(rows, 1 << 40, 2), notes)
    counts = {"trials": trials, "killed": 0, "calls": calls}
    promised = 0
    for _ in range(trials):
        read, write = os.pipe()
        at = rng.randint(1, calls)
        ended = in_child(lambda at=at, write=write: train(rows, at, write), notes)
        os.close(write)
        with os.fdopen(read) as pipe:
            promised = max([promised, *map(int, pipe.read().split())])
        counts["killed"] += ended is None
        step, held, below = in_child(lambda: check(rows), notes)
        assert step >= promised, f"{step} is left of {promised}"
        assert digest(held) == expected[step], f"the rows of step {step} differ"
        print(json.dumps(counts | {"last": step, "rows": len(held)}), flush=True)
    return counts | {"last": step, "rows": len(held), "rows_below": below}


if __name__ == "__main__":
    jax.config.update("jax_compilation_cache_dir", sys.argv[1] + "/programs")
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
