# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Measures how long a fresh reader of a publication takes to its first answer.

    python benchmarks/bench_first_answer.py --gigabytes 10 --directory /tmp/first
    python benchmarks/bench_first_answer.py --readers torch --dtype int8

Writes the snapshot of one table without its state, so rows may take more than half of
the memory. Then it starts each reader in a process of its own, which loads the snapshot
and looks up 4,096 ids. Seconds count from the start of the process. ``cold`` readers
find no file in the page cache, others all that fits. What the process has besides
mapped files is ``anonymous``. The directory needs twice the bytes of the rows while the
snapshot is written, and is removed at the end.

``--table`` says in which dtype a JAX reader keeps its rows. ``--keep`` leaves the
snapshot for the next run, which finds it there.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

_ROOT = Path(__file__).resolve().parents[1]
_CHUNK = 1 << 16  # rows
_FILL = 0.62  # of the slots: no bucket of random keys overflows
_TABLES = ("float32", "bfloat16")
_BYTES = {"float32": 4, "bfloat16": 2, "int8": 1}


def keys_of(rows: int) -> np.ndarray:
    """Draws int64[rows], distinct: each in a range of its own, in random order."""
    draw = np.random.default_rng(0)
    width = 2**63 // rows
    keys = np.arange(rows) * width + draw.integers(0, width, rows)
    draw.shuffle(keys)
    return keys


def rows_of(keys: np.ndarray, dim: int) -> np.ndarray:
    """Computes float32[n, dim], which all formats hold but for their last bit."""
    return np.repeat(((keys % 251 - 125) / 128).astype(np.float32)[:, None], dim, 1)


def make_tables(rows: int, dim: int, dtype: str) -> Any:
    """Makes one table that has room for all rows."""
    import jax_dynemb as jde  # noqa: PLC0415 (readers count its import)

    return jde.Tables(
        [
            jde.TableConfig(
                "item",
                dim,
                int(rows / _FILL),
                param_dtype=dtype,
                optimizer=jde.optim.sgd(0.1),
                log_removed=16,
            )
        ]
    )


def write(folder: Path, keys: np.ndarray, dim: int, dtype: str) -> None:
    """Writes the snapshot that a publisher writes first, from rows made on the way."""
    from jax_dynemb._src.files.integrity import FolderChannel  # noqa: PLC0415
    from jax_dynemb._src.files.live import live_table  # noqa: PLC0415
    from jax_dynemb._src.rows import Exported  # noqa: PLC0415
    from jax_dynemb._src.serving.capture import Captured, mark_of  # noqa: PLC0415
    from jax_dynemb._src.serving.parts import _snapshot  # noqa: PLC0415

    coll = make_tables(1000, dim, "float32")
    state = coll.init(0)
    parts = [slice(at, at + _CHUNK) for at in range(0, len(keys), _CHUNK)]

    def index() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for part in parts:
            yield keys[part], np.ones(len(keys[part]), np.uint64)

    def chunks() -> Iterator[Exported]:
        for own, scores in index():
            yield Exported(own, rows_of(own, dim), scores, {})

    table = replace(
        live_table(coll, state, "item"), rows=len(keys), chunks=chunks, index=index
    )
    mark = mark_of(coll, state, "item", None)
    about = {"item": {"rows": len(keys), "mark": mark.to_json()}}
    moment = Captured(1, time.time(), {}, {}, {})
    channel = FolderChannel(folder)
    channel.take()
    _snapshot(channel, {"item": table}, 1, about, dtype, moment, None)
    channel.close()


def peak(of: str) -> float:
    """Reads a peak or a size of this process in GB; ``of`` as the system names it."""
    text = Path("/proc/self/status").read_text(encoding="ascii")
    found = re.search(rf"{of}:\s+(\d+) kB", text)
    return 0.0 if found is None else int(found[1]) * 1024 / 1e9


class Watch:
    """Notes the most anonymous memory of this process."""

    def __init__(self) -> None:
        self.most = 0.0
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        while True:
            self.most = max(self.most, peak("RssAnon"))
            time.sleep(0.05)


def answer_jax(folder: Path, options: argparse.Namespace, ids: np.ndarray) -> Any:
    """Returns the rows of ids, from a subscriber in JAX."""
    import jax_dynemb as jde  # noqa: PLC0415

    coll = make_tables(options.rows, options.dim, options.table)
    served = jde.serving.Subscriber(folder, coll, interval=0)
    return np.asarray(served.find({"item": jde.ids(ids)})["item"], np.float32)


def answer_torch(folder: Path, options: argparse.Namespace, ids: np.ndarray) -> Any:
    """Returns the rows of ids, from a subscriber in PyTorch."""
    del options
    sys.path.insert(0, str(_ROOT / "jax_dynemb_torch/src"))
    import torch  # noqa: PLC0415  # pyright: ignore[reportMissingImports]

    import jax_dynemb_torch as package  # noqa: PLC0415

    torch_package: Any = package  # its source lies in another folder
    served = torch_package.Subscriber(folder, interval=0)
    return served({"item": torch.from_numpy(ids)[:, None]})["item"].detach().numpy()


def read(options: argparse.Namespace, folder: Path, begin: float) -> None:
    """Is the process of a reader: prints what the first answer took."""
    watch = Watch()
    ids = np.load(folder.with_suffix(".npy"))
    answer = {"jax": answer_jax, "torch": answer_torch}[options.read]
    rows = answer(folder, options, ids)
    seconds = time.time() - begin
    np.testing.assert_allclose(rows, rows_of(ids, options.dim), atol=0.01)
    said = {"seconds": seconds, "anonymous_GB": watch.most, "peak_GB": peak("VmHWM")}
    print(json.dumps(said | {"cpu_s": time.process_time()}))


def forget(folder: Path) -> None:
    """Drops files from the page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure(options: argparse.Namespace, folder: Path, reader: str, cold: bool) -> None:
    """Starts a reader and prints its line."""
    if cold:
        forget(folder)
    keep = [f"--{name}={getattr(options, name)}" for name in ("rows", "dim", "table")]
    command = [sys.executable, __file__, "--read", reader, "--directory", str(folder)]
    begin = time.time()
    done = subprocess.run(
        [*command, *keep, "--begin", str(begin)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    said = json.loads(done.stdout.splitlines()[-1])
    table = options.table if reader == "jax" else options.dtype
    about = {"reader": reader, "rows": options.dtype, "table": table, "cold": cold}
    print(json.dumps(about | {k: round(v, 2) for k, v in said.items()}), flush=True)


def main() -> None:
    """Writes a snapshot and measures readers of it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gigabytes", type=float, default=1.0, help="of the rows")
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--dtype", choices=_BYTES, default="float32")
    parser.add_argument("--table", choices=_TABLES, default="float32")
    parser.add_argument("--readers", nargs="+", default=["torch", "jax"])
    parser.add_argument("--directory", type=Path, default=Path("out_first_answer"))
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--rows", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--read", help=argparse.SUPPRESS)
    parser.add_argument("--begin", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        read(options, options.directory, options.begin)
        return
    item = _BYTES[options.dtype]
    options.rows = int(options.gigabytes * 1e9 / (item * options.dim))
    folder = options.directory / f"{options.dtype}-{options.rows}"
    if not folder.exists():
        folder.mkdir(parents=True)
        begin = time.time()
        keys = keys_of(options.rows)
        np.save(folder.with_suffix(".npy"), keys[:4096])
        write(folder, keys, options.dim, options.dtype)
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        about = {"wrote_s": round(time.time() - begin), "bytes": size}
        print(json.dumps(about | {"rows": options.rows}), flush=True)
    for reader in options.readers:
        for cold in (True, False):
            measure(options, folder, reader, cold)
    if not options.keep:
        shutil.rmtree(folder)
        folder.with_suffix(".npy").unlink()


if __name__ == "__main__":
    main()
