# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Puts rows into stores and gets them back, beside targets and other libraries.

    python benchmarks/bench_stores.py --rows 1000000
    python benchmarks/bench_stores.py --stores Log Redis --directory /mnt/ssd

Rows have 384 bytes: a score, 47 columns and one wide optimizer state. Keys are random,
and are read in another order. Redis needs redis-server and the package redis, RocksDB
the package rocksdict; what is missing is left out with a line that says so.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import jax_dynemb as jde

TABLE = jde.TableConfig(
    name="cat", dim=47, capacity=1000, optimizer=jde.optim.adagrad(0.1)
)
STORES = ("Memory", "Log", "RocksDB", "Redis")
# Thousand rows a second, down and up.
TARGETS = {"Log": (400, 300), "Redis": (60, 60)}
# The same rows on two loaded cores: figures of the libraries alone, in Python.
PEERS = {
    "NumPy files": (421, 299),
    "rocksdict 0.3.29": (59, 23),
    "LMDB 3.0.0": (81, 136),
    "redis 8.1.0": (54, 68),
}


def measure(store: Any, rows: int, batch: int, repeats: int) -> dict[str, Any]:
    """Times one store; the best of several runs, in thousand rows a second."""
    rng = np.random.default_rng(0)
    packed = rng.integers(0, 256, (batch, store.layout.row_bytes), dtype=np.uint8)
    best = {"put": 0.0, "put_and_commit": 0.0, "get": 0.0, "discard": 0.0}
    for turn in range(repeats):
        keys = rng.permutation(rows).astype(np.int64) * 7919
        begin = time.perf_counter()
        for at in range(0, rows, batch):
            some = keys[at : at + batch]
            store.put(some, packed[: len(some)], turn)
        put = time.perf_counter() - begin
        store.commit(f"turn-{turn}")
        committed = time.perf_counter() - begin
        asked = rng.permutation(keys)
        begin = time.perf_counter()
        for at in range(0, rows, batch):
            found, _ = store.get(asked[at : at + batch])
            assert found.all()
        got = time.perf_counter() - begin
        begin = time.perf_counter()
        assert store.discard(keys) == rows
        discarded = time.perf_counter() - begin
        for name, seconds in (
            ("put", put),
            ("put_and_commit", committed),
            ("get", got),
            ("discard", discarded),
        ):
            best[name] = max(best[name], rows / seconds / 1e3)
    return {name: round(value, 1) for name, value in best.items()}


def opened(names: Sequence[str], folder: Path) -> Iterator[tuple[str, Any]]:
    """Makes each store; says which can not be made here."""
    for name in names:
        try:
            if name == "Redis":
                yield from _with_redis(folder)
                continue
            make = getattr(jde.stores, name)
            yield name, make(*(() if name == "Memory" else (folder / name,)), TABLE)
        except (ImportError, FileNotFoundError) as error:
            print(f"{name} is left out: {error}")


def _with_redis(folder: Path) -> Iterator[tuple[str, Any]]:
    server = shutil.which("redis-server")
    if server is None:
        raise FileNotFoundError("no redis-server is installed")
    socket = folder / "redis"
    options = ["--port", "0", "--unixsocket", str(socket), "--save", ""]
    command = [server, *options, "--dir", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            while not socket.exists():
                time.sleep(0.1)
            yield "Redis", jde.stores.Redis(f"unix://{socket}", TABLE, keep=0)
        finally:
            process.terminate()


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Measures and prints; returns the lines."""
    parser = argparse.ArgumentParser(
        description="Puts rows into stores and gets them back."
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=1 << 16)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--stores", nargs="+", choices=STORES, default=STORES)
    parser.add_argument("--directory", type=Path, help="on the disk to measure")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    lines = []
    with tempfile.TemporaryDirectory(dir=given.directory) as folder:
        for name, store in opened(given.stores, Path(folder)):
            rates = measure(store, given.rows, given.batch, given.repeats)
            lines.append({"store": name, "rows": given.rows, **rates})
            getattr(store, "close", lambda: None)()
    show(lines)
    if given.json:
        given.json.write_text(json.dumps(lines, indent=1))
    return lines


def show(lines: Sequence[dict[str, Any]]) -> None:
    """Prints a table, with targets and the figures of others."""
    columns = ("put", "put_and_commit", "get", "discard")
    table = Table("thousand rows of 384 bytes a second", *columns, "target put / get")
    for line in lines:
        target = TARGETS.get(line["store"])
        text = "" if target is None else f"{target[0]} / {target[1]}"
        table.add_row(line["store"], *(str(line[name]) for name in columns), text)
    for name, (put, get) in PEERS.items():
        table.add_row(f"{name}, elsewhere", str(put), "", str(get), "", "")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
