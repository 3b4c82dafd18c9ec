# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""How much memory files take to write and to read; run by test_host_memory.

    python resident_memory.py DIRECTORY

A fresh process, because memory that tests gave back before would hide what is taken.
Pieces are made smaller by as much as this table is smaller than a real one.
"""

import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import jax_dynemb as jde
from jax_dynemb._src.engines.shard import export_rows as _export
from jax_dynemb._src.files.dynamicemb import dump as _dynamicemb
from jax_dynemb._src.table import chunks as _chunks

PIECE = 1 << 20
ROWS = 200_000
COLL = jde.Tables(
    [jde.TableConfig("t", dim=128, capacity=1 << 18, optimizer=jde.optim.adagrad(0.1))]
)


def resident() -> int:
    """Bytes of this process's own memory; mapped files do not count."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return 1024 * int(line.split()[1])
    raise RuntimeError("no RssAnon in /proc/self/status")


def growth(function: Callable[[], object]) -> int:
    """The most bytes that a call took beside what was there before."""
    before, most, done = resident(), 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.is_set():
            most = max(most, resident())
            time.sleep(0.002)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        function()
    finally:
        done.set()
        watcher.join()
    return most - before


def main(folder: Path) -> dict[str, int]:
    """Fills a table, writes it in each format, and reads it."""
    _export._CHUNK_BYTES = _chunks._BATCH_BYTES = PIECE
    _dynamicemb.BLOCK_ROWS = 1024
    keys = np.random.default_rng(0).integers(0, 2**62, ROWS)
    _, _, state = COLL.lookup(COLL.init(0), {"t": jde.ids(keys)})

    def dynamicemb(name: str) -> None:
        jde.export.dynamicemb(folder / name, COLL, state, quiet=True)

    def safetensors(name: str, **options) -> None:
        path, size = folder / name, {"sort_bytes": PIECE, "quiet": True}
        jde.export.safetensors(path, COLL, state, **size, **options)

    dynamicemb("first")  # compiles what all of them need
    said = {
        "dynamicemb": growth(lambda: dynamicemb("dump")),
        "safetensors": growth(lambda: safetensors("export", index=False)),
        "with its index": growth(lambda: safetensors("indexed")),
    }

    def imported(name: str, state) -> dict:
        return jde.import_.dynamicemb(folder / name, COLL, state, quiet=True).state

    resident_table = imported("first", state)  # it was there before
    said["import"] = growth(lambda: imported("dump", resident_table))
    return said | {"table": ROWS * (2 * 4 * 128 + 16)}


if __name__ == "__main__":
    print("RESULT " + json.dumps(main(Path(sys.argv[1]))))
