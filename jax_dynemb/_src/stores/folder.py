# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Looks after the directory of a log: one writer, no files that nothing needs."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from jax_dynemb._src.files.disk import disk_errors, remove_left_behind, sync
from jax_dynemb._src.stores.manifest import (
    COMMITS,
    SEGMENTS,
    Manifest,
    live_path,
    manifest_path,
    segment_path,
)

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None


_REMOVED_AT_ONCE = 8  # manifests, before the disk has forgotten them


class WriterLock:
    """Keeps other writers out of a directory, or raises RuntimeError."""

    def __init__(self, folder: Path):
        self._descriptor = os.open(folder / "LOCK", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if fcntl is not None:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
            raise RuntimeError(
                f"{folder} has a writer already, in this process or another. Close it, "
                "or read beside it: jde.stores.Log(path, read_only=True)."
            ) from None
        except OSError:  # a file system without locks
            pass

    def release(self) -> None:
        """Lets another writer in."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def make_folders(folder: Path) -> None:
    """Makes the directories of a log, to stay after a power failure."""
    with disk_errors(folder):
        for each in (folder, folder / SEGMENTS, folder / COMMITS):
            each.mkdir(parents=True, exist_ok=True)
            sync(each.parent)


def next_number(folder: Path, kept: Iterable[Manifest]) -> int:
    """A number that no segment of the log has had, as far as one can see."""
    on_disk = [int(path.stem) for path in _segment_files(folder)]
    named = [each.number for manifest in kept for each in manifest.segments]
    return max([0, *on_disk, *named]) + 1


def remove_commits(folder: Path, gone: Iterable[Manifest]) -> None:
    """Removes manifests, and makes sure that they do not come back.

    A few at a time: where the power fails again and again, each writer gets on.
    """
    paths = [manifest_path(folder, each.tag) for each in gone]
    for begin in range(0, len(paths), _REMOVED_AT_ONCE):
        for path in paths[begin : begin + _REMOVED_AT_ONCE]:
            path.unlink(missing_ok=True)
        sync(folder / COMMITS)


def reclaim(folder: Path, kept: Iterable[Manifest], in_use: Iterable[int]) -> int:
    """Removes the segments that neither a kept commit nor the log itself needs.

    ``in_use`` has numbers of the log's segments. Returns the bytes of the others that
    stay.
    """
    kept, used = list(kept), set(in_use)
    needed = used | {each.number for manifest in kept for each in manifest.segments}
    idle = 0
    for path in _segment_files(folder):
        if int(path.stem) not in needed:
            path.unlink(missing_ok=True)
        elif int(path.stem) not in used:
            idle += path.stat().st_size
    live = {live_path(folder, manifest.number) for manifest in kept}
    for path in (folder / COMMITS).glob("*.live"):
        if path not in live:
            path.unlink(missing_ok=True)
    remove_left_behind(folder / COMMITS, "*")
    return idle


def _segment_files(folder: Path) -> list[Path]:
    found = (folder / SEGMENTS).glob("*.segment")
    return [path for path in found if path == _path_like(folder, path)]


def _path_like(folder: Path, path: Path) -> Path | None:
    """The path that a segment of that number has; foreign files have another."""
    number = path.stem
    return segment_path(folder, int(number)) if number.isdecimal() else None
