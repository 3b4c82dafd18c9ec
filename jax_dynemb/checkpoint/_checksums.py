# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Checksums of the files of a checkpoint: what was damaged is refused by name.

Arrays are stored without compression, so nothing else would notice a flipped bit.
"""

from __future__ import annotations

import json
import os
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from jax_dynemb.checkpoint._together import share

FILE = "checksums.json"
_BLOCK = 1 << 25  # bytes; zlib.crc32 of a block runs without Python's lock
_VERSION = 1


def write_checksums(directory: Path) -> None:
    """Writes the sizes and checksums of all files below, and of itself."""
    files = {
        path.relative_to(directory).as_posix(): path
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != FILE
    }
    with ThreadPoolExecutor(_threads()) as pool:
        entries = {
            name: {"bytes": path.stat().st_size, "crc32": _checksums(path, pool)}
            for name, path in files.items()
        }
    body = {"format_version": _VERSION, "files": entries}
    write_json(directory / FILE, body | {"crc32": _of_json(body)})


def verify_checksums(directory: Path) -> None:
    """Reads every file and compares; of several processes each reads a part.

    Raises:
      ValueError: a file is missing, too short or altered; the sentence names it.
    """
    entries = _read_checksums(directory / FILE)
    with ThreadPoolExecutor(_threads()) as pool:
        for name, entry in share(list(entries.items())):
            path = directory / name
            if not path.is_file():
                raise _damaged(path, "it is missing")
            size = path.stat().st_size
            if size != entry["bytes"]:
                raise _damaged(path, f"it has {size} bytes, not {entry['bytes']}")
            if _checksums(path, pool) != entry["crc32"]:
                raise _damaged(path, "its contents do not match their checksum")


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
        raise _damaged(path, "its contents do not match their checksum")
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
