# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Reads files onto devices, piece by piece; the host holds a few pieces at a time."""

from __future__ import annotations

import functools
import math
import mmap
import queue
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb._src.files.checkpoint.arrays import check_array
from jax_dynemb._src.files.checkpoint.checksums import of_checkpoint
from jax_dynemb._src.files.checkpoint.pieces import DESCRIPTION, Grid, Index, is_host
from jax_dynemb._src.files.disk import disk_errors
from jax_dynemb._src.files.integrity import DamagedFileError

_THREADS = 8
_AHEAD = 16  # pieces on the host and on the device before they are needed

Check = Callable[[str, np.ndarray], None]


def read_pieces(
    item: Path,
    wanted: Mapping[str, jax.ShapeDtypeStruct],
    check: Check | None,
    rows: Mapping[str, int],
) -> dict[str, jax.Array]:
    """Reads arrays; ``check`` gets each file's name and bytes, and raises if altered.

    Arrays in ``rows`` have so many rows in the files; zeros follow them.
    """
    with ThreadPoolExecutor(_THREADS, "jax_dynemb_restore") as pool:
        result = {}
        for name, like in wanted.items():
            stored = like.update(shape=(rows.get(name, like.shape[0]), *like.shape[1:]))
            files = _Files(item, name, stored, check)
            result[name] = _read_array(files, like, pool)
        return result


class _Files:
    """The pieces of one array."""

    def __init__(
        self,
        item: Path,
        name: str,
        like: jax.ShapeDtypeStruct,
        check: Check | None,
    ):
        self.dtype = np.dtype(like.dtype)
        self._item, self._name, self._check = item, name, check
        with of_checkpoint():
            self.grid: Grid = check_array(item / name, self.dtype)
            if self.grid.shape != like.shape:
                problem = f"it has the shape {self.grid.shape}, not {like.shape}"
                raise DamagedFileError(item / name / DESCRIPTION, problem)

    @property
    def piece_bytes(self) -> int:
        """Size of a file."""
        return math.prod(self.grid.piece) * self.dtype.itemsize

    def read(self, file: str, data: np.ndarray) -> np.ndarray:
        """Reads a file into uint8[piece_bytes]; returns it as a piece."""
        path, read = self._item / self._name / file, 0
        with disk_errors(path), path.open("rb", buffering=0) as source:
            while read < len(data) and (more := source.readinto(data[read:].data)):
                read += more
        if read < len(data):
            with of_checkpoint():
                raise DamagedFileError(path, f"it has {read} bytes, not {len(data)}")
        if self._check is not None:
            self._check(f"{self._name}/{file}", data[:read])
        return data.view(self.dtype).reshape(self.grid.piece)


class _Part(NamedTuple):
    """A part of an array, on the devices of this process that hold it."""

    index: Index
    shape: tuple[int, ...]
    devices: list[Any]
    memory_kind: str | None


def _read_array(
    files: _Files, like: jax.ShapeDtypeStruct, pool: ThreadPoolExecutor
) -> jax.Array:
    arrays = []
    for part in _parts(like):
        device = part.devices[0]
        usual = part.memory_kind in (None, device.default_memory().kind)
        read = _onto_devices if usual and not is_host(device) else _onto_host
        arrays += read(files, part, pool)
    return jax.make_array_from_single_device_arrays(like.shape, like.sharding, arrays)


def _parts(like: jax.ShapeDtypeStruct) -> Iterator[_Part]:
    sharding: Any = like.sharding
    devices = defaultdict(list)
    for device, index in sharding.addressable_devices_indices_map(like.shape).items():
        spans = zip(index, like.shape, strict=True)
        devices[tuple(span.indices(size)[:2] for span, size in spans)].append(device)
    for spans, same in devices.items():
        index = tuple(slice(*span) for span in spans)
        shape = sharding.shard_shape(like.shape)
        yield _Part(index, shape, same, sharding.memory_kind)


def _onto_host(files: _Files, part: _Part, pool: ThreadPoolExecutor) -> list[jax.Array]:
    """Reads a part into host memory, where it stays or is copied from."""
    size = math.prod(part.shape) * files.dtype.itemsize
    whole = _fresh(size)
    target = whole.view(files.dtype).reshape(part.shape)

    def read(cut: tuple[str, Index, Index]) -> None:
        file, inside, place = cut
        here = target[place]
        if here.shape == files.grid.piece and here.flags.c_contiguous:
            files.read(file, here.reshape(-1).view(np.uint8))
        else:
            here[...] = files.read(file, _fresh(files.piece_bytes))[inside]

    for _ in pool.map(read, files.grid.overlapping(part.index)):
        pass
    place = functools.partial(
        jax.sharding.SingleDeviceSharding, memory_kind=part.memory_kind
    )
    return [jax.device_put(target, place(device)) for device in part.devices]


def _onto_devices(
    files: _Files, part: _Part, pool: ThreadPoolExecutor
) -> list[jax.Array]:
    """Reads a part and writes it in place on each device, through a few buffers."""
    buffers: queue.SimpleQueue[np.ndarray] = queue.SimpleQueue()
    for _ in range(_THREADS):
        buffers.put(_fresh(files.piece_bytes))

    def send(file: str, inside: Index) -> list[jax.Array]:
        buffer = buffers.get()
        piece = files.read(file, buffer)[inside]
        sent = [jax.device_put(piece, device) for device in part.devices]
        jax.block_until_ready(sent)
        buffers.put(buffer)
        return sent

    coming: deque = deque()
    arrays = [jnp.zeros(part.shape, files.dtype, device=d) for d in part.devices]
    for file, inside, place in files.grid.overlapping(part.index):
        coming.append((place, pool.submit(send, file, inside)))
        if len(coming) > _AHEAD:
            arrays = _put_next(arrays, *coming.popleft())
    while coming:
        arrays = _put_next(arrays, *coming.popleft())
    return arrays


def _put_next(arrays: list[jax.Array], place: Index, sent: Any) -> list[jax.Array]:
    starts = tuple(span.start for span in place)
    return [_put(a, p, starts) for a, p in zip(arrays, sent.result(), strict=True)]


@functools.partial(jax.jit, donate_argnums=0)
def _put(array: jax.Array, piece: jax.Array, starts: tuple[int, ...]) -> jax.Array:
    return jax.lax.dynamic_update_slice(array, piece, starts)


def _fresh(size: int) -> np.ndarray:
    """uint8[size] that begins at a page, so that a CPU device may take it as it is."""
    return np.frombuffer(mmap.mmap(-1, max(1, size)), np.uint8)[:size]
