# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""CRC-32 of ranges of files, block by block and side by side."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

BLOCK = 1 << 25  # bytes with one checksum
_PIECE = 1 << 20  # bytes in memory at a time; zlib runs without Python's lock

Advance = Callable[[int], object]
Range = tuple[Path, int, int]  # file, first byte, last byte and one


def pool() -> ThreadPoolExecutor:
    """Threads that read; a few are enough for a disk, and more for a cache."""
    return ThreadPoolExecutor(min(16, os.cpu_count() or 1), "jax_dynemb_sums")


def blocks(begin: int, end: int) -> list[tuple[int, int]]:
    """The blocks of a range of bytes."""
    return [(at, min(end, at + BLOCK)) for at in range(begin, end, BLOCK)]


def sums_of(
    ranges: Iterable[Range], threads: ThreadPoolExecutor, advance: Advance | None = None
) -> Iterator[int]:
    """Yields a checksum for each range in order; a short file's is of what there is."""
    for (_, begin, end), found in zip(
        given := list(ranges), threads.map(_sum_of, given), strict=True
    ):
        if advance is not None:
            advance(end - begin)
        yield found


def _sum_of(given: Range) -> int:
    path, at, end = given
    result, buffer = 0, memoryview(bytearray(min(_PIECE, max(0, end - at))))
    with path.open("rb", buffering=0) as file:
        file.seek(at)
        while at < end:
            count = file.readinto(buffer[: end - at])
            if not count:
                break
            result = zlib.crc32(buffer[:count], result)
            at += count
    return result
