# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""checksums.json: sizes and checksums of the files beside it.

For formats that have no room for checksums of their own: checkpoints, DynamicEmb dumps
and parquet files.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from .errors import DamagedFileError
from .json import Fields, check_version, file_bytes, file_inside, read_json
from .sums import Advance, blocks, pool, sums_of

NAME = "checksums.json"
FIX = (
    f"Copy it again from where it is whole. If another program wrote it, and meant to, "
    f"delete the {NAME} beside it."
)


class Entry(NamedTuple):
    """Holds what is known about a file."""

    size: int  # in bytes
    sums: list[int]


def read_entries(folder: Path) -> dict[str, Entry] | None:
    """Reads a directory's side file, by the names of files; None without it."""
    path = folder / NAME
    if not path.exists():
        return None
    body = read_json(path)
    own = body.whole("crc32")
    if own != sum_of_json({name: body[name] for name in body if name != "crc32"}):
        raise DamagedFileError(path, "its contents do not match their checksum")
    check_version(body)
    files = body.fields("files")
    return {name: _entry(folder, files, name) for name in files}


def check_file(folder: Path, name: str, entry: Entry) -> Path:
    """Returns the path of a file; DamagedFileError unless it has the right size."""
    path = folder / name
    size = file_bytes(path)
    if size != entry.size:
        problem = f"it has {size} bytes, not {entry.size}"
        raise DamagedFileError(path, problem, FIX)
    return path


def verify_files(
    folder: Path,
    entries: Iterable[tuple[str, Entry]],
    *,
    sizes_only: Callable[[str], bool] = lambda name: False,
    advance: Advance | None = None,
) -> None:
    """Compares files with what is known; of ``sizes_only`` names no contents."""
    with pool() as threads:
        for name, entry in entries:
            path = check_file(folder, name, entry)
            if sizes_only(name):
                continue
            ranges = [(path, *block) for block in blocks(0, entry.size)]
            if list(sums_of(ranges, threads, advance)) != entry.sums:
                raise altered(path)


def altered(path: Path) -> DamagedFileError:
    """The error for contents that are not those that were written."""
    return DamagedFileError(path, "its contents do not match their checksum", FIX)


def sum_of_json(body: Any) -> int:
    """The checksum that a JSON object has of itself."""
    return zlib.crc32(json.dumps(body, sort_keys=True).encode())


def _entry(folder: Path, files: Fields, name: str) -> Entry:
    file_inside(folder, name, files.path)
    fields = files.fields(name)
    size, sums = fields.whole("bytes"), fields.wholes("crc32")
    if len(sums) != len(blocks(0, size)):
        raise DamagedFileError(files.path, f"{name!r} has {len(sums)} checksums")
    return Entry(size, sums)
