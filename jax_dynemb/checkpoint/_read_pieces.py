# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""From files to devices, piece by piece; the host holds a few pieces at a time."""

from __future__ import annotations

import functools
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb.checkpoint._pieces import Grid, Index, read_grid

_THREADS = 8
_AHEAD = 16  # pieces read before they are needed, on the host and on the device

Check = Callable[[str, np.ndarray], None]


def read_pieces(
    item: Path, wanted: Mapping[str, jax.ShapeDtypeStruct], check: Check | None
) -> dict[str, jax.Array]:
    """Reads arrays; of those on several devices each reads what it needs.

    Args:
      item: the directory of the arrays.
      wanted: what they are and their sharding, by the name of their directories.
      check: called with each file's name and bytes, and raises if they are altered.
    """
    with ThreadPoolExecutor(_THREADS, "jax_dynemb_restore") as pool:
        return {
            name: _read_array(item, name, like, check, pool)
            for name, like in wanted.items()
        }


def _read_array(
    item: Path,
    name: str,
    like: jax.ShapeDtypeStruct,
    check: Check | None,
    pool: ThreadPoolExecutor,
) -> jax.Array:
    grid, parts = read_grid(item / name), []
    for index, devices in _parts(like).items():
        of_file = functools.partial(_read_file, item, name, like.dtype, grid, check)
        reads = (
            (place, functools.partial(of_file, file, inside))
            for file, inside, place in grid.overlapping(_slices(index))
        )
        shape = like.sharding.shard_shape(like.shape)  # pyright: ignore
        kind = like.sharding.memory_kind  # pyright: ignore
        if kind in (None, devices[0].default_memory().kind):
            parts += _onto_devices(shape, like.dtype, devices, reads, pool)
        else:
            parts += _onto_host(shape, like, devices, reads, pool)
    return jax.make_array_from_single_device_arrays(like.shape, like.sharding, parts)


def _parts(like: jax.ShapeDtypeStruct) -> dict[Any, list[jax.Device]]:
    """The devices of this process by the part of the array that they hold."""
    parts = defaultdict(list)
    mapping = like.sharding.addressable_devices_indices_map(like.shape)  # pyright: ignore
    for device, index in mapping.items():
        spans = zip(index, like.shape, strict=True)
        parts[tuple(span.indices(size)[:2] for span, size in spans)].append(device)
    return parts


def _slices(index: Any) -> Index:
    return tuple(slice(*span) for span in index)


def _read_file(
    item: Path,
    name: str,
    dtype: Any,
    grid: Grid,
    check: Check | None,
    file: str,
    inside: Index,
) -> np.ndarray:
    """What is wanted of one file."""
    piece = np.empty(grid.piece, dtype)
    data = piece.reshape(-1).view(np.uint8)
    with (item / name / file).open("rb", buffering=0) as source:
        read = 0
        while read < len(data) and (more := source.readinto(data[read:].data)):
            read += more
    if check is not None:
        check(f"{name}/{file}", data[:read])
    return piece[inside]


def _in_order(
    reads: Iterator[tuple[Index, Callable]], pool: ThreadPoolExecutor
) -> Iterator[tuple[Index, Any]]:
    """What reads give, a few of them ahead."""
    coming: deque[tuple[Index, Future]] = deque()
    for place, read in reads:
        coming.append((place, pool.submit(read)))
        if len(coming) > _AHEAD:
            place, future = coming.popleft()
            yield place, future.result()
    for place, future in coming:
        yield place, future.result()


def _onto_devices(
    shape: tuple[int, ...],
    dtype: Any,
    devices: list[jax.Device],
    reads: Iterator[tuple[Index, Callable]],
    pool: ThreadPoolExecutor,
) -> list[jax.Array]:
    """The same part on some devices, each written in place."""

    def read_and_send(read: Callable) -> list[jax.Array]:
        piece = read()
        return [jax.device_put(piece, device) for device in devices]

    sent = ((place, functools.partial(read_and_send, read)) for place, read in reads)
    arrays = [jnp.zeros(shape, dtype, device=device) for device in devices]
    for place, pieces in _in_order(sent, pool):
        starts = tuple(span.start for span in place)
        arrays = [_put(a, p, starts) for a, p in zip(arrays, pieces, strict=True)]
        jax.block_until_ready(pieces)
    return arrays


def _onto_host(
    shape: tuple[int, ...],
    like: jax.ShapeDtypeStruct,
    devices: list[jax.Device],
    reads: Iterator[tuple[Index, Callable]],
    pool: ThreadPoolExecutor,
) -> list[jax.Array]:
    """The same part in another memory of some devices: put together here."""
    whole = np.empty(shape, like.dtype)
    for place, piece in _in_order(reads, pool):
        whole[place] = piece
    kind = like.sharding.memory_kind  # pyright: ignore
    return [
        jax.device_put(whole, jax.sharding.SingleDeviceSharding(d, memory_kind=kind))
        for d in devices
    ]


@functools.partial(jax.jit, donate_argnums=0)
def _put(array: jax.Array, piece: jax.Array, starts: tuple[int, ...]) -> jax.Array:
    return jax.lax.dynamic_update_slice(array, piece, starts)
