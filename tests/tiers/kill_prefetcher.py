# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Kills processes that train a table with a store below it, and looks at what is left.

    LD_PRELOAD=faults.so python kill_prefetcher.py FOLDER KILLS SEED
    python kill_prefetcher.py FOLDER KILLS SEED RocksDB
    python kill_prefetcher.py FOLDER KILLS SEED Redis URL

Each process goes on from the latest checkpoint, says what is left, trains and saves.
Above a log it dies at another call that changes a file of the log or of the checkpoints
(see tests/stores/faults.c). Above other stores it dies within another step. A process
that is not killed says what a table with room for every row holds after each step.
Prints a line of JSON after each. This process only forks: it never runs a program of
JAX itself.
"""

import contextlib
import ctypes
import dataclasses
import gc
import hashlib
import importlib
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
KILL, SAVED_EVERY, MOST_STEPS, NEVER = 1, 5, 12, 1 << 40
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


def digest(rows: dict[int, bytes]) -> str:
    """Hashes rows: those of all steps would fill the memory."""
    return hashlib.sha256(repr(sorted(rows.items())).encode()).hexdigest()


def truth(steps: int) -> dict[int, str]:
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


class Calls:
    """Kills this process at a call that changes a file; steps do not matter."""

    def __init__(self, folder: Path, call: int):
        faults = ctypes.CDLL(None)
        faults.faults_arm(str(folder).encode(), KILL, ctypes.c_long(call))
        self.passed: Callable[[], int] = faults.faults_calls

    def begin(self, step: int) -> None:
        """Says that a step begins."""


class Steps:
    """Kills this process soon after a step begins; counts thousandths of steps.

    How soon is a part of the longest step so far, whatever the speed of the machine.
    Most steps are far shorter than that one, so most parts are small.
    """

    def __init__(self, call: int):
        self._at, self._part = divmod(call, 1000)
        self._since, self._longest, self._passed = time.monotonic(), 0.1, 0

    def begin(self, step: int) -> None:
        """Says that a step begins; 0: the store is opened."""
        now = time.monotonic()
        self._longest = max(self._longest, now - self._since)
        self._since, self._passed = now, 1000 * (step + 1)
        if step == self._at:
            seconds = (self._part / 1000) ** 3 * self._longest
            timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL))
            timer.daemon = True
            timer.start()

    def passed(self) -> int:
        """How many have passed."""
        return self._passed


def held_by(coll: jde.Tables, state, store: jde.stores.Store) -> dict[str, object]:
    """What the rows above and below are, each of which is at one place."""
    above, below = rows_of(coll, state), rows_in(store)
    assert not above.keys() & below.keys()
    if isinstance(store, jde.stores.Log):
        assert store.verify() == len(below)
    rows = above | below
    return {"digest": digest(rows), "rows": len(rows), "rows_below": len(below)}


def train(folder: Path, call: int, say: Callable[..., None]) -> int:
    """Says what is there, trains and saves; dies at some call, or returns how many."""
    coll = jde.Tables([SMALL])
    moments = Calls(folder, call) if KIND == "Log" else Steps(call)
    moments.begin(0)
    with opened(folder) as store:
        state, first = resumed(folder, coll, store)
        say(step=first, **held_by(coll, state, store))
        given = ({"cat": batch(step)} for step in range(first, first + MOST_STEPS))
        with jde.tiers.prefetch_rows(coll, given, stores={"cat": store}) as prefetcher:
            for step in range(first + 1, first + MOST_STEPS + 1):
                moments.begin(step - first)
                ids, state = prefetcher.next(state)
                _, state = stepper(coll)(state, ids)
                if step % SAVED_EVERY == 0:
                    waits = step % (2 * SAVED_EVERY) == 0
                    jde.checkpoint.save(
                        folder / "checkpoints",
                        step,
                        state,
                        tables=coll,
                        prefetcher=prefetcher,
                        keep=2,
                        wait=waits,
                    )
                    if waits:
                        say(saved=step)
            jde.checkpoint.wait()
    return moments.passed()


class Trials:
    """Starts one process after the other, and compares what each one says is left."""

    def __init__(self, folder: Path, steps: int):
        self.rows, self.notes = folder / "rows", folder / "notes"
        self.rows.mkdir()
        self.expected = in_child(lambda: truth(steps), self.notes)
        self.promised, self.found = 0, {"step": 0}

    def run(self, call: int = NEVER) -> int | None:
        """One process, which dies at a call; how many there were, or None."""
        read, write = os.pipe()

        def say(**said: object) -> None:
            os.write(write, json.dumps(said).encode() + b"\n")

        ended = in_child(lambda: train(self.rows, call, say), self.notes)
        os.close(write)
        with os.fdopen(read) as pipe:
            for line in pipe:
                self.hear(json.loads(line))
        return ended

    def hear(self, said: dict) -> None:
        """A process has found rows of a step, or has completed a checkpoint."""
        if "saved" in said:
            self.promised = max(self.promised, said["saved"])
            return
        step, self.found = said["step"], said
        assert step >= self.promised, f"{step} is left of {self.promised}"
        assert said.pop("digest") == self.expected[step], f"other rows of step {step}"


def main(folder: Path, kills: int, seed: int) -> dict[str, int]:
    """Kills so many processes, each at a random call."""
    rng, steps = random.Random(seed), MOST_STEPS * (kills + 2)
    trials = Trials(folder, steps)
    trials.run()  # compiles
    calls = trials.run()
    counts = {"processes": 0, "killed": 0, "calls": calls}
    while counts["killed"] < kills and trials.found["step"] + MOST_STEPS <= steps:
        ended = trials.run(rng.randint(1, calls))
        counts["processes"] += 1
        counts["killed"] += ended is None
        print(json.dumps(counts | trials.found), flush=True)
    trials.run()
    return counts | trials.found


def import_all() -> None:
    """Imports here, once, what each process would import again."""
    for name in ("orbax.checkpoint", {"Redis": "redis"}.get(KIND, "rocksdict")):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.freeze()  # a collection in a fork would copy all pages


if __name__ == "__main__":
    import_all()
    jax.config.update("jax_compilation_cache_dir", sys.argv[1] + "/programs")
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
