# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Checksums of the files of a checkpoint: what was damaged is refused by name.

Arrays are stored without compression, so nothing else would notice a flipped bit.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jax_dynemb._src.files.checkpoint.together import share
from jax_dynemb._src.files.disk import disk_errors, entry_of, write_side_file
from jax_dynemb._src.files.integrity import (
    DEFAULT_FIX,
    FIX,
    NAME,
    Advance,
    DamagedFileError,
    Entry,
    altered,
    read_entries,
    read_json,
    verify_files,
)

FILE = NAME
_LEFT = "checksums.{}.json"  # of one process, until all have written
# Orbax adds files without data once the rest is complete.
_UNNAMED = (FILE, "commit_success.txt", "_CHECKPOINT_METADATA")
_FIX = "Restore another step (step=...), or copy the file again."


def write_checksums(directory: Path) -> None:
    """Writes sizes and checksums of all files; ``leave_entries`` has read some."""
    entries: dict[str, Any] = {}
    for left in directory.glob(_LEFT.format("*")):
        entries |= read_json(left)
        left.unlink()
    write_side_file(directory, entries)


def leave_entries(directory: Path, entries: Mapping[str, Any]) -> None:
    """Writes the entries that this process knows already, of files that it wrote."""
    path = directory / _LEFT.format(jax.process_index())
    with disk_errors(path):
        path.write_text(json.dumps(entries), encoding="utf-8")


def verify_checksums(
    directory: Path,
    later: Callable[[str], bool] = lambda name: False,
    advance: Advance | None = None,
) -> None:
    """Reads every file and compares; of several processes each reads a part.

    ``later`` says of a name that ``checker`` will see its bytes; ``advance`` counts
    bytes.
    """
    with of_checkpoint():
        entries = _entries(directory)
        _check_all_named(directory, entries)
        mine = share(list(entries.items()))
        verify_files(directory, mine, sizes_only=later, advance=advance)


def verify_file(directory: Path, name: str) -> None:
    """Reads one file and compares."""
    with of_checkpoint():
        entries = _entries(directory)
        if name not in entries:
            raise DamagedFileError(directory / name, f"{FILE} does not name it")
        verify_files(directory, [(name, entries[name])])


def checker(directory: Path) -> Callable[[str, np.ndarray], None]:
    """A function of a file's name and bytes; it raises if they are altered."""
    with of_checkpoint():
        entries = _entries(directory)

    def check(name: str, data: np.ndarray) -> None:
        found = entry_of(data)
        with of_checkpoint():
            if entries.get(name) != Entry(found["bytes"], found["crc32"]):
                raise altered(directory / name)

    return check


def bytes_of(directory: Path) -> int:
    """Returns the size in bytes of all files that have checksums."""
    with of_checkpoint():
        return sum(entry.size for entry in _entries(directory).values())


@contextlib.contextmanager
def of_checkpoint() -> Iterator[None]:
    """Says in errors about damage what one can do where there are more steps."""
    try:
        yield
    except DamagedFileError as error:
        common = error.fix in (DEFAULT_FIX, FIX)
        fix = _FIX if common else error.fix
        raise DamagedFileError(error.path, error.problem, fix) from None


def check_links(directory: Path) -> None:
    """Refuses links below a directory that lead to where other programs write."""
    inside = directory.resolve()
    for folder, folders, files in os.walk(directory):
        for path in (Path(folder, name) for name in (*folders, *files)):
            if path.is_symlink() and not path.resolve().is_relative_to(inside):
                with of_checkpoint():
                    problem = f"it is a link to outside of {directory}"
                    raise DamagedFileError(path, problem)


def _check_all_named(directory: Path, entries: Mapping[str, Entry]) -> None:
    """Refuses a list that lacks files: what is not compared could be anything."""
    for folder, _, files in os.walk(directory):
        for path in (Path(folder, name) for name in files):
            of_system = path.name.startswith(".") and not path.name.startswith(".z")
            name = path.relative_to(directory).as_posix()
            if name not in entries and name not in _UNNAMED and not of_system:
                raise DamagedFileError(path, f"{FILE} does not name it")


def _entries(directory: Path) -> dict[str, Entry]:
    entries = read_entries(directory)
    if entries is None:
        raise DamagedFileError(directory / FILE, "it is missing")
    return entries
