# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""How fast bytes get from a device to the disk of this machine, and back.

    python benchmarks/host_copies.py --gigabytes 8 --directory /tmp/copies

Each line is one way, printed when it is known: what touching fresh memory costs, copies
between device and host (whole arrays and pieces, pageable and pinned), files (through
the page cache and around it). What jax_dynemb.checkpoint does follows from them.
"""

from __future__ import annotations

import argparse
import contextlib
import mmap
import os
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

PIECE = 1 << 26
_COLUMNS = 128


@contextlib.contextmanager
def timed(what: str, moved: int) -> Iterator[None]:
    start = time.perf_counter()
    try:
        yield
    except Exception as error:  # another way may still work
        print(f"{what}: {type(error).__name__}: {str(error)[:160]}", flush=True)
        return
    seconds = time.perf_counter() - start
    print(f"{what}: {seconds:.2f} s, {moved / seconds / 1e9:.2f} GB/s", flush=True)


def aligned(size: int = PIECE) -> np.ndarray:
    return np.frombuffer(mmap.mmap(-1, size), np.uint8)


def in_threads(threads: int, work: Callable, items: list) -> None:
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, items))


def memory(size: int) -> None:
    for threads in (1, 8):
        buffer = aligned(size)

        def touch(start: int, buffer: np.ndarray = buffer) -> None:
            buffer[start : start + PIECE].fill(1)

        for turn in ("first", "second"):
            with timed(f"memory: {turn} touch, {threads} threads", size):
                in_threads(threads, touch, list(range(0, size, PIECE)))
        with timed(f"memory: crc32, {threads} threads", size):
            starts = list(range(0, size, PIECE))
            in_threads(threads, lambda i: zlib.crc32(buffer[i : i + PIECE]), starts)
        del buffer


@jax.jit
def cut(x: jax.Array, start: jax.Array) -> jax.Array:
    return jax.lax.dynamic_slice_in_dim(x, start, PIECE // (4 * _COLUMNS))


@jax.jit
def put(x: jax.Array, piece: jax.Array, start: jax.Array) -> jax.Array:
    return jax.lax.dynamic_update_slice_in_dim(x, piece, start, 0)


put_in_place = jax.jit(put, donate_argnums=0)


def pieces(x: jax.Array) -> list[int]:
    return list(range(0, len(x), PIECE // (4 * _COLUMNS)))


def pinned_of(x: jax.Array) -> jax.sharding.Sharding:
    return x.sharding.with_memory_kind("pinned_host")


def window(x: jax.Array, start: Callable, end: Callable, ahead: int) -> None:
    """Copies with several under way."""
    flying: deque = deque()
    for i in pieces(x):
        flying.append(start(cut(x, i)))
        if len(flying) == ahead:
            end(flying.popleft())
    while flying:
        end(flying.popleft())


def asynchronous(piece: jax.Array) -> jax.Array:
    piece.copy_to_host_async()
    return piece


def to_host(x: jax.Array) -> None:
    size = x.nbytes
    for turn in ("first", "second"):
        with timed(f"to host: np.asarray of all, {turn}", size):
            whole = np.asarray(jnp.array(x, copy=True))
        del whole
    pin = pinned_of(x)
    for turn in ("first", "second"):
        with timed(f"to host: all to pinned memory, {turn}", size):
            there = jax.block_until_ready(jax.device_put(x, pin))
        with timed("to host:   np.asarray of that", size):
            view = np.asarray(there)
        with timed("to host:   np.asarray again", size):
            view = np.asarray(there)
        print("            owns its data:", view.flags.owndata, flush=True)
        del view, there
    for ahead in (1, 4, 16):
        with timed(f"to host: pieces, np.asarray, {ahead} ahead", size):
            window(x, asynchronous, np.asarray, ahead)
        with timed(f"to host: pieces, pinned, {ahead} ahead", size):
            window(x, lambda p: jax.device_put(p, pin), jax.block_until_ready, ahead)
        with timed(f"to host: pieces, pinned, np.asarray, {ahead} ahead", size):
            window(x, lambda p: jax.device_put(p, pin), np.asarray, ahead)
    buffers = [aligned() for _ in range(8)]

    def one(number: int) -> None:
        i = pieces(x)[number]
        view = np.asarray(jax.device_put(cut(x, i), pin)).view(np.uint8).reshape(-1)
        buffers[number % 8][: view.size] = view

    for threads in (4, 8):
        with timed(
            f"to host: pieces, pinned, into own buffers, {threads} threads", size
        ):
            in_threads(threads, one, list(range(len(pieces(x)))))

    def plain(number: int) -> None:
        i = pieces(x)[number]
        view = np.asarray(cut(x, i)).view(np.uint8).reshape(-1)
        buffers[number % 8][: view.size] = view

    with timed("to host: pieces, np.asarray, into own buffers, 8 threads", size):
        in_threads(8, plain, list(range(len(pieces(x)))))


def to_device(x: jax.Array) -> None:
    size, pin, home = x.nbytes, pinned_of(x), x.sharding
    host = [np.ones((PIECE // (4 * _COLUMNS), _COLUMNS), np.float32) for _ in range(16)]
    pins = jax.block_until_ready([jax.device_put(each, pin) for each in host])
    for name, source in (("numpy", host), ("pinned", pins)):
        for ahead in (1, 4, 16):
            y = jnp.zeros_like(x)
            with timed(f"to device: pieces of {name}, {ahead} ahead", size):
                flying: deque = deque()
                for number, i in enumerate(pieces(x)):
                    piece = jax.device_put(source[number % ahead], home)
                    y = put_in_place(y, piece, i)
                    flying.append(piece)
                    if len(flying) == ahead:
                        flying.popleft().block_until_ready()
                jax.block_until_ready(y)
            del y
    whole = np.ones(x.shape, np.float32)
    with timed("to device: one numpy array", size):
        jax.block_until_ready(jax.device_put(whole, home))


def files(directory: Path, size: int) -> None:
    numbers = list(range(size // PIECE))
    source = aligned()
    source[:] = np.random.default_rng(0).integers(0, 255, PIECE, np.uint8)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC

    def write(number: int, direct: bool) -> None:
        extra = os.O_DIRECT if direct else 0
        file = os.open(directory / f"{number}", flags | extra)
        os.write(file, source)
        os.fsync(file)
        os.close(file)

    def read(number: int, direct: bool, buffers: dict[int, np.ndarray]) -> None:
        import threading

        buffer = buffers.setdefault(threading.get_ident(), aligned())
        extra = os.O_DIRECT if direct else 0
        file = os.open(directory / f"{number}", os.O_RDONLY | extra)
        os.readv(file, [buffer.data])
        os.close(file)

    def forget() -> None:
        for number in numbers:
            file = os.open(directory / f"{number}", os.O_RDONLY)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)

    for direct in (False, True):
        way = "direct" if direct else "page cache"
        for threads in (1, 4, 16):
            with timed(f"files: write, {way}, fsync, {threads} threads", size):
                in_threads(threads, lambda n: write(n, direct), numbers)
            forget()
            with timed(f"files: read, {way}, {threads} threads", size):
                in_threads(threads, lambda n: read(n, direct, {}), numbers)
            forget()


def together(x: jax.Array, directory: Path) -> None:
    """Device, pinned piece, own buffer, checksum, file around the page cache."""
    import threading

    pin, buffers = pinned_of(x), {}
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC

    def one(number: int, direct: bool) -> None:
        view = np.asarray(jax.device_put(cut(x, pieces(x)[number]), pin))
        view = view.view(np.uint8).reshape(-1)
        if direct:
            buffer = buffers.setdefault(threading.get_ident(), aligned())
            buffer[:] = view
            view = buffer
        zlib.crc32(view)
        extra = os.O_DIRECT if direct else 0
        file = os.open(directory / f"{number}", flags | extra)
        os.write(file, view)
        os.fsync(file)
        os.close(file)

    for direct in (False, True):
        for threads in (4, 16):
            way = "direct" if direct else "page cache"
            with timed(f"device to files, {way}, {threads} threads", x.nbytes):
                in_threads(
                    threads, lambda n: one(n, direct), list(range(len(pieces(x))))
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=8)
    parser.add_argument("--directory", type=Path, default=Path("/tmp/host_copies"))
    options = parser.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    size = max(1, int(options.gigabytes * 1e9) // PIECE) * PIECE
    device = jax.devices()[0]
    print(f"{device.device_kind}, jax {jax.__version__}, {os.cpu_count()} processors")
    with contextlib.suppress(ImportError):
        import orbax.checkpoint as ocp
        import tensorstore  # noqa: F401

        print("orbax", ocp.__version__)
    x = jnp.zeros((size // (4 * _COLUMNS), _COLUMNS)) + jax.random.normal(
        jax.random.key(0), (_COLUMNS,)
    )
    x = jax.block_until_ready(x)
    memory(size)
    to_host(x)
    files(options.directory, size)
    together(x, options.directory)
    to_device(x)
    for each in options.directory.iterdir():
        each.unlink()


if __name__ == "__main__":
    main()
