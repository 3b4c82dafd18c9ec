# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Checksums of the files of a checkpoint: what was damaged is refused by name.

Arrays are stored without compression, so nothing else would notice a flipped bit.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jax_dynemb.checkpoint._together import share

FILE = "checksums.json"
_LEFT = "checksums.{}.json"  # of one process, until all have written
_BLOCK = 1 << 25  # bytes; zlib.crc32 of a block runs without Python's lock
_VERSION = 1
_ALTERED = "its contents do not match their checksum"


def write_checksums(directory: Path) -> None:
    """Writes the sizes and checksums of all files below, and of itself.

    Files whose entries were left here (``leave_entries``) are not read again.
    """
    entries: dict[str, Any] = {}
    for left in directory.glob(_LEFT.format("*")):
        entries |= json.loads(left.read_text(encoding="utf-8"))
        left.unlink()
    with ThreadPoolExecutor(_threads()) as pool:
        for path in sorted(directory.rglob("*")):
            name = path.relative_to(directory).as_posix()
            if path.is_file() and name not in entries and name != FILE:
                size, sums = path.stat().st_size, _checksums(path, pool)
                entries[name] = {"bytes": size, "crc32": sums}
    body = {"format_version": _VERSION, "files": dict(sorted(entries.items()))}
    write_json(directory / FILE, body | {"crc32": _of_json(body)})


def leave_entries(directory: Path, entries: Mapping[str, Any]) -> None:
    """What this process knows already about files that it wrote."""
    path = directory / _LEFT.format(jax.process_index())
    path.write_text(json.dumps(entries), encoding="utf-8")


def entry_of(data: np.ndarray) -> dict[str, Any]:
    """Size and checksums of a file that holds uint8[n]."""
    blocks = range(0, len(data), _BLOCK)
    sums = [zlib.crc32(data[start : start + _BLOCK].data) for start in blocks]
    return {"bytes": len(data), "crc32": sums}


def verify_checksums(
    directory: Path, later: Callable[[str], bool] = lambda name: False
) -> None:
    """Reads every file and compares; of several processes each reads a part.

    Args:
      directory: of the files.
      later: says of a file's name that ``checker`` will see its bytes.

    Raises:
      ValueError: a file is missing, too short or altered; the sentence names it.
    """
    entries = _read_checksums(directory / FILE)
    with ThreadPoolExecutor(_threads()) as pool:
        for name, entry in share(list(entries.items())):
            _verify(directory / name, entry, pool, not later(name))


def verify_file(directory: Path, name: str) -> None:
    """Reads one file and compares."""
    entry = _read_checksums(directory / FILE).get(name, {})
    with ThreadPoolExecutor(1) as pool:
        _verify(directory / name, entry, pool)


def _verify(
    path: Path, entry: Mapping[str, Any], pool: ThreadPoolExecutor, read: bool = True
) -> None:
    if not path.is_file():
        raise _damaged(path, "it is missing")
    size = path.stat().st_size
    if size != entry.get("bytes"):
        raise _damaged(path, f"it has {size} bytes, not {entry.get('bytes')}")
    if read and _checksums(path, pool) != entry["crc32"]:
        raise _damaged(path, _ALTERED)


def checker(directory: Path) -> Callable[[str, np.ndarray], None]:
    """A function of a file's name and bytes; it raises if they are altered."""
    entries = _read_checksums(directory / FILE)

    def check(name: str, data: np.ndarray) -> None:
        if entry_of(data) != entries.get(name):
            raise _damaged(directory / name, _ALTERED)

    return check


def write_json(path: Path, fields: Any) -> None:
    """Writes a file and waits until it is on the disk."""
    with path.open("w", encoding="utf-8") as file:
        json.dump(fields, file, indent=1)
        file.flush()
        os.fsync(file.fileno())


def _read_checksums(path: Path) -> dict[str, Any]:
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
        own = body.pop("crc32")
    except FileNotFoundError:
        raise _damaged(path, "it is missing") from None
    except (ValueError, KeyError, AttributeError):
        raise _damaged(path, "it can not be read") from None
    if own != _of_json(body):
        raise _damaged(path, _ALTERED)
    return body["files"]


def _damaged(path: Path, what: str) -> ValueError:
    return ValueError(
        f"The checkpoint is damaged at {path}: {what}. Restore another step "
        "(step=...), or copy the file again."
    )


def _checksums(path: Path, pool: ThreadPoolExecutor) -> list[int]:
    """One for each block of the file; blocks are read side by side."""

    def of_block(start: int) -> int:
        with path.open("rb") as file:
            file.seek(start)
            return zlib.crc32(file.read(_BLOCK))

    return list(pool.map(of_block, range(0, path.stat().st_size, _BLOCK)))


def _of_json(body: Any) -> int:
    return zlib.crc32(json.dumps(body, sort_keys=True).encode())


def _threads() -> int:
    return min(16, os.cpu_count() or 1)
