# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Saves and restores one large table, beside a plain file write of the same bytes.

    python benchmarks/bench_checkpoint.py --gigabytes 40 --directory /tmp/bench
    python benchmarks/bench_checkpoint.py --gigabytes 0.1        # on a laptop

Needs orbax (`pip install 'jax-dynemb[checkpoint]'`) and the table's size on the disk.
Each line is printed, and written into --json, when it is known; what is written is
deleted before the next part begins. README.md beside this file says what lines mean.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import json
import os
import resource
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import jax_dynemb as jde
from jax_dynemb._src.files.checkpoint import checksums as _checksums
from jax_dynemb._src.files.dynamicemb import lossless_capacity

DIM = 128
PARTS = ("checkpoint", "plain", "export")
_FILL = 0.6  # of the slots
_BATCH = 1 << 20
_PIECE = 1 << 26
_KEPT = 16  # pieces that plain files are made of
_THREADS = 8


class Clock:
    """Times parts and keeps what they took.

    Args:
      total_bytes: of the table.
      about: what stands beside the lines in the file.
      path: of a JSON file, or None.
    """

    def __init__(self, total_bytes: int, about: dict[str, Any], path: Path | None):
        self.bytes = total_bytes
        self.lines: list[dict[str, Any]] = []
        self._about, self._path = about, path

    @contextlib.contextmanager
    def time(self, what: str, moved: int | None = None) -> Iterator[None]:
        """Adds a line: seconds, and bytes a second of ``moved`` or of the table."""
        start = time.perf_counter()
        yield
        seconds = time.perf_counter() - start
        self.add(what, seconds, self.bytes if moved is None else moved)

    def add(self, what: str, seconds: float, moved: int) -> None:
        """Adds a line, and shows the most host memory that the process has had."""
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        line = {"what": what, "seconds": seconds, "GB/s": moved / seconds / 1e9}
        self.lines.append(line | {"host_memory_GB": memory / 1e9})
        speed = f"{seconds:.2f} s, {line['GB/s']:.2f} GB/s"
        print(f"{what}: {speed} ({memory / 1e9:.1f} GB of memory so far)", flush=True)
        if self._path is not None:
            result = self._about | {"bytes": self.bytes, "lines": self.lines}
            self._path.write_text(json.dumps(result, indent=1), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Measures, prints, and returns the lines."""
    options = _parser().parse_args(arguments)
    directory = options.directory.absolute()
    directory.mkdir(parents=True, exist_ok=True)
    coll = _tables(options.gigabytes)
    state = coll.init(0)
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    device = jax.devices()[0].device_kind
    clock = Clock(size, {"device": device, "jax": jax.__version__}, options.json)
    print(f"{device}, jax {jax.__version__}: {coll}, {size / 1e9:.2f} GB", flush=True)
    with clock.time("fill"):
        state = _filled(coll, state)
    parts: dict[str, Callable[..., Any]] = {
        "plain": _plain,
        "summed": functools.partial(_plain, summed=True),
        "checkpoint": _checkpoint,
        "export": _export,
    }
    box = [state]  # the only reference, so that a part can let the table go
    del state
    for name in options.parts.split(","):
        box.append(parts[name](clock, coll, box, directory))
    _print(clock.lines)
    return clock.lines


def _tables(gigabytes: float) -> jde.Tables:
    row = 4 * (DIM + 1) + 17  # row-wise Adagrad: one number a row beside it
    return jde.Tables(
        [
            jde.TableConfig(
                "table",
                dim=DIM,
                capacity=max(256, int(gigabytes * 1e9 / row)),
                optimizer=jde.optim.rowwise_adagrad(0.1),
            )
        ]
    )


def _filled(coll: jde.Tables, state: Any) -> Any:
    """A share of the slots taken by random keys."""
    lookup = jax.jit(
        lambda state, ids: coll.lookup(state, {"table": ids})[2], donate_argnums=0
    )
    rows = int(_FILL * coll.tables["table"].num_slots)
    rng = np.random.default_rng(0)
    batch = min(_BATCH, rows)
    for _ in range(max(1, rows // batch)):
        state = lookup(state, jde.ids(rng.integers(0, 2**62, batch)))
    return jax.block_until_ready(state)


def _plain(
    clock: Clock,
    coll: jde.Tables,
    box: list[Any],
    directory: Path,
    summed: bool = False,
) -> Any:
    """As many bytes of rows to the host, and through files of one size and back.

    Summed: each thread also makes the checksums of what it has written, as a save does.
    """
    state = box.pop()
    values = state["table"].values
    rows = max(1, min(len(values), _PIECE // (values.nbytes // len(values))))
    starts = range(0, len(values) - rows + 1, rows)
    moved = len(starts) * rows * values.nbytes // len(values)
    name = "summed" if summed else "plain"
    with clock.time(f"{name}: device to host, in pieces", moved):
        kept = _to_host(values, starts, rows)
    folder = directory / "plain"
    folder.mkdir()

    def write(number: int) -> None:
        with (folder / str(number)).open("wb", buffering=0) as file:
            file.write(kept[number % len(kept)].data)
            os.fsync(file.fileno())
        if summed:
            _checksums.entry_of(kept[number % len(kept)])

    def read(number: int) -> None:
        with (folder / str(number)).open("rb", buffering=0) as file:
            file.readinto(np.empty(kept[0].nbytes, np.uint8).data)

    with ThreadPoolExecutor(_THREADS) as pool:
        with clock.time(f"{name}: write, {_THREADS} threads, fsync", moved):
            list(pool.map(write, range(len(starts))))
        for each in folder.iterdir():
            _forget(each)
        with clock.time(f"{name}: read, {_THREADS} threads", moved):
            list(pool.map(read, range(len(starts))))
    shutil.rmtree(folder)
    return state


def _to_host(values: jax.Array, starts: range, rows: int) -> list[np.ndarray]:
    """Copies all pieces through pinned memory, if there is such; keeps a few."""
    device = next(iter(values.devices()))
    pinned = any(m.kind == "pinned_host" for m in device.addressable_memories())
    to = jax.sharding.SingleDeviceSharding(
        device, memory_kind="pinned_host" if pinned else None
    )
    cut = jax.jit(lambda x, start: jax.lax.dynamic_slice_in_dim(x, start, rows))
    kept, coming = [], []
    for start in starts:
        coming.append(jax.device_put(cut(values, start), to))
        if len(coming) > 4:
            piece = np.asarray(coming.pop(0)).reshape(-1).view(np.uint8)
            kept += [piece.copy()] if len(kept) < _KEPT else []
    kept += [np.array(piece).reshape(-1).view(np.uint8) for piece in coming]
    return kept


def _checkpoint(clock: Clock, coll: jde.Tables, box: list[Any], directory: Path) -> Any:
    """Save and restore, as users call them: with checksums."""
    path, state = directory / f"checkpoint-{len(clock.lines)}", box.pop()
    shutil.rmtree(path, ignore_errors=True)
    expected = _fingerprint(coll, state)
    start = time.perf_counter()
    with clock.time("save: until training may go on"):
        jde.checkpoint.save(path, 1, state, tables=coll)
    with clock.time("save: the rest, in the background"):
        jde.checkpoint.wait(path)
    clock.add("save: all of it", time.perf_counter() - start, clock.bytes)
    for each in path.rglob("*"):
        _forget(each)
    like = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state
    )
    del state
    with clock.time("restore: files, checksums, arrays"):
        restored = jde.checkpoint.restore(path, like, tables=coll).tree
        jax.block_until_ready(restored)
    shutil.rmtree(path)
    if _fingerprint(coll, restored) != expected:
        raise AssertionError("the restored table is not the one that was saved")
    return restored


def _export(clock: Clock, coll: jde.Tables, box: list[Any], directory: Path) -> Any:
    """The rows alone: as the plain stream of chunks, and as DynamicEmb's dump."""
    state = box.pop()
    rows = coll.stats(state)["table/rows"]
    moved = int(rows) * (4 * (DIM + 1) + 16)
    with clock.time("export: chunks to the host", moved):
        for _ in coll.export(state, "table"):
            pass
    path = directory / "dynamicemb"
    shutil.rmtree(path, ignore_errors=True)
    with clock.time("export: DynamicEmb dump, fsync, num_embeddings", moved):
        report = jde.export.dynamicemb(path, coll, state, quiet=True)["table"]
    file = path / "table_emb_keys.rank_0.world_size_1"
    with clock.time("export: num_embeddings alone (a part of it)", file.stat().st_size):
        found = _lossless_capacity(np.memmap(file, "<i8", "r"))
    if found != report.num_embeddings:
        raise AssertionError("the same keys need the same num_embeddings")
    shutil.rmtree(path)
    return state


def _lossless_capacity(keys: np.ndarray) -> int:
    blocks = range(0, len(keys), _BATCH)
    return lossless_capacity(lambda: (keys[i : i + _BATCH] for i in blocks), len(keys))


def _fingerprint(coll: jde.Tables, state: Any) -> Any:
    """A sum of the words of each array, on the device; of the counters their counts.

    A restore begins a segment in the counters, so their other words differ.
    """
    plain = {n: dataclasses.replace(s, counters=s.index) for n, s in state.items()}
    sums = [int(_word_sum(leaf)) for leaf in jax.tree.leaves(plain)]
    return sums, coll.stats(state)


@jax.jit
def _word_sum(x: jax.Array) -> jax.Array:
    words = jax.lax.bitcast_convert_type(x, jnp.uint32)
    return jnp.sum(words, dtype=jnp.uint32)


def _forget(path: Path) -> None:
    """Drops a file from the page cache, so that reading it reads the disk."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _print(lines: list[dict[str, Any]]) -> None:
    table = Table("what", "seconds", "GB/s", "host memory, GB")
    for line in lines:
        numbers = (line["seconds"], line["GB/s"], line["host_memory_GB"])
        table.add_row(line["what"], *(f"{number:.2f}" for number in numbers))
    Console().print(table)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=0.1)
    parser.add_argument("--directory", type=Path, default=Path("/tmp/bench_checkpoint"))
    parser.add_argument(
        "--parts", default=",".join(PARTS), help="in this order; also: summed"
    )
    parser.add_argument("--json", type=Path, help="write the lines there")
    return parser


if __name__ == "__main__":
    main()
