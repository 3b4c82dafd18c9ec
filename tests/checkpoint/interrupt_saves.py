# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Saves that Ctrl-C ends at any moment, in one process: python THIS FOLDER ROUNDS."""

import gc
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import jax_dynemb as jde
from jax_dynemb._src.files.checkpoint import pieces as _pieces

COLL = jde.Tables([jde.TableConfig("a", 16, 10_000)])


def tree(number: int) -> dict[str, Any]:
    return {"tables": COLL.init(0), "x": jnp.full(3, float(number)), "n": number}


def interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def restored(folder: Path) -> int:
    """The step of the newest checkpoint, which is whole."""
    found = jde.checkpoint.restore(folder, tree(0), tables=COLL)
    assert found.tree["n"] == found.step
    np.testing.assert_array_equal(found.tree["x"], np.full(3, float(found.step)))
    return found.step


def save(folder: Path, step: int, wait: bool = True) -> None:
    jde.checkpoint.save(folder, step, tree(step), tables=COLL, wait=wait)


def is_of_interrupt(error: BaseException | None) -> bool:
    """Whether Ctrl-C began the chain that ends in this error.

    An interrupt between two steps of a lock's ``with`` makes Python's threading
    raise ``RuntimeError: release unlocked lock`` while it handles the interrupt.
    """
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def save_interrupted(folder: Path, step: int, after: float, wait: bool) -> bool:
    """Begins a save and ends it by Ctrl-C; returns whether that came in time."""
    try:
        signal.setitimer(signal.ITIMER_REAL, after)
        try:
            save(folder, step, wait)
        finally:  # the alarm may come in here, so the caller of both catches it
            signal.setitimer(signal.ITIMER_REAL, 0)
    except BaseException as error:
        if not is_of_interrupt(error):
            raise
        return True
    return False


def main(folder: Path, rounds: int) -> None:
    _pieces.PIECE_BYTES = 1 << 17  # tables are large arrays
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGALRM, interrupt)
    save(folder, 1)
    begin = time.monotonic()
    save(folder, 2)
    took, threads = time.monotonic() - begin, set(threading.enumerate())
    step, ended = 2, 0
    for i in range(rounds):
        after = max(1e-4, took * (i + 0.5) / rounds)
        ended += save_interrupted(folder, step + 1, after, bool(i % 2))
        jde.checkpoint.wait(folder)
        assert restored(folder) in (step, step + 1), "the former one is not intact"
        step += 2
        save(folder, step)
        assert restored(folder) == step, "the next one is not there"
    time.sleep(1)  # a thread may have written a draft after its removal
    save(folder, step + 1)
    left = [name for name in os.listdir(folder) if not name.isdigit()]
    assert not left, f"drafts stay: {left}"
    gc.collect()
    new = {each.name for each in threading.enumerate() if each not in threads}
    # Idle ones of event loops that orbax left open go with these.
    assert all(name.startswith(("asyncio_", "metadata_store")) for name in new), new
    print(f"ended {ended} of {rounds}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
