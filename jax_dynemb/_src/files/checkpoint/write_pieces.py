# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Writes arrays from devices to files, piece by piece.

A piece is cut off on its device, copied into pinned memory, and written and summed up
by a thread. So the device is read as fast as its bus allows. The host touches each byte
once, and holds no more of the array than the caller allows.
"""

from __future__ import annotations

import functools
import os
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import SingleDeviceSharding

from jax_dynemb._src.files.checkpoint.checksums import leave_entries
from jax_dynemb._src.files.checkpoint.pieces import PIECE_BYTES, Grid, as_bytes, is_host
from jax_dynemb._src.files.disk import disk_errors, entry_of

_THREADS = 8
_ON_DEVICE = 4  # pieces: what a save takes of a device's memory


class Writing:
    """Holds pieces that are being written; a future, as orbax knows them.

    ``arrays`` are by directory in ``item``, with grids that may have fewer rows. At
    most ``host_bytes`` of them are on the host at a time.
    """

    def __init__(
        self,
        item: Path,
        arrays: Mapping[str, tuple[jax.Array, Grid]],
        host_bytes: int,
    ):
        self._item = item
        self._room = threading.Semaphore(max(_THREADS, host_bytes // PIECE_BYTES))
        self._failed = threading.Event()
        self._files: dict[str, Future] = {}
        self._pool = ThreadPoolExecutor(_THREADS, "jax_dynemb_save")
        try:
            for name in arrays:
                (item / name).mkdir(exist_ok=True)
            for name, (array, grid) in arrays.items():
                self._start(name, array, grid)
        except BaseException:  # the threads leave out the rest
            self.cancel()
            raise
        finally:
            self._pool.shutdown(wait=False)

    def _start(self, name: str, array: jax.Array, grid: Grid) -> None:
        """Returns when the whole array has left its devices, or will in their order."""
        leaving: deque[Any] = deque()
        for file, piece in _pieces_here(array, grid, self._room):
            if self._failed.is_set():
                return
            leaving.append(piece)
            if len(leaving) > _ON_DEVICE:
                jax.block_until_ready(leaving.popleft())
            path = f"{name}/{file}"
            rows = grid.piece[0]
            self._files[path] = self._pool.submit(self._write, path, piece, rows)

    def _write(self, path: str, piece: Any, rows: int) -> dict[str, Any]:
        try:
            if self._failed.is_set():
                return {}
            data = as_bytes(_whole(np.asarray(piece), rows))
            whole = self._item / path
            with disk_errors(whole), whole.open("wb", buffering=0) as file:
                written = 0
                while written < len(data):
                    written += file.write(data[written:].data)
                os.fsync(file.fileno())
            return entry_of(data)
        except BaseException:
            self._failed.set()
            raise
        finally:
            self._room.release()

    def result(self, timeout: float | None = None) -> None:
        """Waits; leaves checksums for ``write_checksums``. OSError if a file failed."""
        errors = [file.exception(timeout) for file in self._files.values()]
        if any(errors):
            for path in self._files:  # room for the next one
                (self._item / path).unlink(missing_ok=True)
            raise next(error for error in errors if error is not None)
        entries = {path: file.result() for path, file in self._files.items()}
        leave_entries(self._item, entries)

    def cancel(self) -> None:
        """Leaves out what is not begun."""
        self._failed.set()


def _pieces_here(
    array: jax.Array, grid: Grid, room: threading.Semaphore
) -> Iterator[tuple[str, Any]]:
    """The pieces that this process writes, on their way to the host."""
    for shard in array.addressable_shards:
        if shard.replica_id:
            continue
        take = _taker(shard.data)
        for file, whole, place in grid.overlapping(shard.index):
            room.acquire()
            yield file, take(place[0].start, whole[0].stop - whole[0].start)


def _whole(piece: np.ndarray, rows: int) -> np.ndarray:
    """Fills the last piece of an array up, as all files have one size."""
    missing = rows - piece.shape[0]
    if missing == 0:
        return piece
    return np.pad(piece, [(0, missing)] + [(0, 0)] * (piece.ndim - 1))


def _taker(data: jax.Array) -> Any:
    """A function that takes some rows of one device's array to the host."""
    (device,) = data.devices()
    usual = device.default_memory().kind
    if is_host(device) or data.sharding.memory_kind not in (None, usual):
        view = np.asarray(data)  # of a CPU it shares its memory
        return lambda start, rows: view[start : start + rows]
    kinds = {memory.kind for memory in device.addressable_memories()}
    if "pinned_host" in kinds:
        pinned = SingleDeviceSharding(device, memory_kind="pinned_host")
        return lambda start, rows: jax.device_put(_cut(data, start, rows), pinned)

    def unpinned(start: int, rows: int) -> jax.Array:
        piece = _cut(data, start, rows)
        piece.copy_to_host_async()
        return piece

    return unpinned


@functools.partial(jax.jit, static_argnums=2)
def _cut(data: jax.Array, start: int, rows: int) -> jax.Array:
    return jax.lax.dynamic_slice_in_dim(data, start, rows)
