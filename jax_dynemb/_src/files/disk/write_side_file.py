# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Writes checksums.json, the side file that ``integrity`` reads."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jax_dynemb._src.files.disk.files import disk_errors
from jax_dynemb._src.files.integrity import (
    BLOCK,
    FORMAT_VERSION,
    NAME,
    blocks,
    pool,
    sum_of_json,
    sums_of,
)


def write_side_file(folder: Path, known: Mapping[str, Any] | None = None) -> None:
    """Writes sizes and checksums of files below a directory; ``known`` are not read."""
    entries = dict(known or {})
    with pool() as threads:
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder).as_posix()
            if path.is_file() and name not in entries and name != NAME:
                size = path.stat().st_size
                ranges = [(path, *block) for block in blocks(0, size)]
                sums = list(sums_of(ranges, threads))
                entries[name] = {"bytes": size, "crc32": sums}
    body = {"format_version": FORMAT_VERSION, "files": dict(sorted(entries.items()))}
    write_json(folder / NAME, body | {"crc32": sum_of_json(body)})


def entry_of(data: np.ndarray) -> dict[str, Any]:
    """Size and checksums of a file that holds uint8[n]."""
    sums = [zlib.crc32(data[begin:end].data) for begin, end in blocks(0, len(data))]
    return {"bytes": len(data), "crc32": sums}


class RunningSums:
    """Checksums of the blocks of bytes that come piece by piece."""

    def __init__(self) -> None:
        self.size = 0
        self._sums: list[int] = []

    def add(self, data: memoryview) -> None:
        """Goes on with some bytes."""
        done = 0
        while done < len(data):
            if self.size % BLOCK == 0:
                self._sums.append(0)
            some = data[done : done + BLOCK - self.size % BLOCK]
            self._sums[-1] = zlib.crc32(some, self._sums[-1])
            self.size += len(some)
            done += len(some)

    @property
    def sums(self) -> list[int]:
        """One for each block."""
        return list(self._sums)

    @property
    def entry(self) -> dict[str, Any]:
        """As the side file has it."""
        return {"bytes": self.size, "crc32": self.sums}


def write_json(path: Path, fields: Any) -> None:
    """Writes a file and waits until it is on the disk."""
    with disk_errors(path), path.open("w", encoding="utf-8") as file:
        json.dump(fields, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
