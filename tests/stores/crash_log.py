# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Kills processes that write a log, again and again, and looks at what is left.

    LD_PRELOAD=faults.so python crash_log.py FOLDER MODE TRIALS [SEED]

MODE is kill, power, nospace or slow (see faults.c). Every trial goes on from the commit
that the one before left, and dies at another call. A dict says what each commit holds.
Prints how many died, and exits with an error at the first difference.
"""

import ctypes
import os
import sys
from pathlib import Path

import numpy as np

import jax_dynemb as jde

MODES = {"kill": 1, "power": 2, "nospace": 3, "slow": 4}
TABLE = jde.TableConfig(name="cat", dim=3, capacity=100, optimizer=jde.optim.sgd(0.1))
ROUNDS, KEYS = 3, 400
WIDTH = jde.stores.Layout.of(TABLE).row_bytes


def opened(folder: Path) -> jde.stores.Log:
    """A log of small segments, so that they are finished and rewritten often."""
    return jde.stores.Log(folder, TABLE, segment_megabytes=1 / 128, keep=2, threads=2)


def rounds(seed: int, held: dict[int, bytes]):
    """Lists what a process does: rows put, keys discarded, and then all rows by key."""
    rng = np.random.default_rng(seed)
    held = dict(held)
    for number in range(ROUNDS):
        keys = rng.integers(0, KEYS, 150)
        rows = rng.integers(0, 256, (len(keys), WIDTH), dtype=np.uint8)
        gone = rng.integers(0, KEYS, 60)
        held.update(zip(keys.tolist(), [row.tobytes() for row in rows], strict=True))
        held = {k: v for k, v in held.items() if k not in set(gone.tolist())}
        yield f"t{seed}-{number}", keys, rows, gone, dict(held)


def repeat(function, *arguments) -> None:
    """Calls once more if the disk was full, as a program may do."""
    try:
        function(*arguments)
    except OSError:
        function(*arguments)


def work(folder: Path, seed: int, acknowledge: int) -> None:
    """The process that may die; says which commits it has been promised."""
    try:
        log = opened(folder)
    except OSError:
        log = opened(folder)
    for tag, keys, rows, gone, _ in rounds(seed, {}):
        repeat(log.put, keys, rows, seed)
        log.discard(gone)
        repeat(log.commit, tag)
        os.write(acknowledge, f"{tag}\n".encode())


def trial(folder: Path, seed: int, mode: int, call: int, held: dict[int, bytes]):
    """Runs one process.

    Returns:
      What the log holds now, whether the process died, and its calls if it did not.
    """
    faults = ctypes.CDLL(None)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        code = 1
        try:
            faults.faults_arm(str(folder).encode(), mode, ctypes.c_long(call))
            work(folder, seed, write)
            os.write(write, f"calls {faults.faults_calls()}\n".encode())
            code = 0
        except OSError as error:
            os.write(write, b"refused\n")
            code = 0 if mode == MODES["nospace"] else 1
            if code:
                print(repr(error), file=sys.stderr)
        finally:
            os._exit(code)
    os.close(write)
    with os.fdopen(read) as pipe:
        told = pipe.read().split("\n")
    _, status = os.waitpid(child, 0)
    for left in folder.rglob("*.power-*"):  # of the model of a power failure
        left.unlink()
    died = os.WIFSIGNALED(status)
    assert died or os.WEXITSTATUS(status) == 0, (seed, call, status, told)
    calls = [int(line.split()[1]) for line in told if line.startswith("calls")]
    promised = [line for line in told if line.startswith("t")]
    return _checked(folder, seed, held, promised), died, calls


def _checked(folder: Path, seed: int, held: dict[int, bytes], promised: list[str]):
    """Opens the log: it has the last promised commit, or the one begun after it."""
    states: dict[str | None, dict[int, bytes]] = {None: held}
    for tag, *_, after in rounds(seed, held):
        states[tag] = after
    tags = list(states)
    at_least = tags.index(promised[-1]) if promised else 0
    with opened(folder) as log:
        tag = log.stats()["tag"]
        if tag not in states:  # no commit of this process
            tag = None
        allowed = tags[at_least : at_least + 2]
        assert tag in allowed, f"seed {seed}: {tag!r} is left of {allowed}"
        expected = states[tag]
        keys = np.array(sorted(expected), np.int64)
        np.testing.assert_array_equal(np.sort(log.keys()), keys)
        found, packed = log.get(keys)
        assert found.all()
        assert [row.tobytes() for row in packed] == [expected[k] for k in keys.tolist()]
        assert log.verify() == len(keys)
    return expected


def main(folder: str, mode: str, trials: str, first_seed: str = "0") -> None:
    """Runs trials; each dies one call later than the one before."""
    path = Path(folder)
    opened(path).close()
    held: dict[int, bytes] = {}
    deaths, call, most = 0, 1, 0
    for seed in range(int(first_seed), int(first_seed) + int(trials)):
        held, died, calls = trial(path, seed, MODES[mode], call, held)
        deaths += died
        most = max([most, *calls])
        call = 1 if calls and call > calls[0] else call + 1
    files = sum(1 for each in path.rglob("*") if each.is_file())
    assert files < 200, f"{files} files are left: nothing reclaims them"
    print(f"{trials} trials of up to {most} calls, {deaths} deaths, {len(held)} rows")


if __name__ == "__main__":
    main(*sys.argv[1:])
