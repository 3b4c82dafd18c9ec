# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The commits of a log: chosen, loaded, replaced and removed; its directory."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.files.disk import disk_errors, remove_left_behind, sync
from jax_dynemb._src.files.integrity import DamagedFileError
from jax_dynemb._src.rows import Identity
from jax_dynemb._src.stores.layout import Layout
from jax_dynemb._src.stores.manifest import (
    COMMITS,
    NEWEST,
    SEGMENTS,
    Manifest,
    Newest,
    live_path,
    manifest_path,
    manifests,
    read_live,
    read_newest,
    segment_path,
    write_newest,
)

_TRIES = 100  # of a reader whose commit the writer removes meanwhile


class Commits:
    """Knows the commits of a directory, and loads one of them.

    ``layout`` is what the caller expects, None that of the commit. ``read_only``:
    another process may write meanwhile.
    """

    def __init__(
        self, folder: Path, layout: Layout | None, threads: int, read_only: bool
    ):
        self.folder, self.read_only = folder, read_only
        self.manifest: Manifest | None = None  # of the commit that was loaded last
        self.kept: list[Manifest] = []  # on the disk, the first commit first
        self.unreadable = False  # whether there are others, so that nothing may go
        self.idle_bytes = 0  # of segments that only other commits need
        self.identity: Identity | None = None  # of the rows, if it is known
        self.store = secrets.randbits(63)
        self._layout, self._threads = layout, threads
        self._lock: WriterLock | None = None
        if not read_only:
            make_folders(folder)
            self._lock = WriterLock(folder)

    @property
    def layout(self) -> Layout:
        """How rows lie in bytes."""
        assert self._layout is not None  # load has set or refused it
        return self._layout

    def load(self, tag: str | None) -> Any:
        """Loads a commit: the object of C++ with its index.

        FileNotFoundError without such a commit; ValueError if it keeps another table's
        rows.
        """
        for _ in range(_TRIES):
            newest = read_newest(self.folder) if tag is None else None
            self.kept, bad = manifests(self.folder)
            self.unreadable = bool(bad)
            chosen = self._choose(tag, bad)
            if tag is None:
                self._check_newest(newest, chosen)
            try:
                core = self._load(chosen)
            except (FileNotFoundError, DamagedFileError) as error:
                if self.read_only and not _is_there(self.folder, chosen):
                    continue  # the writer has just removed it
                if isinstance(error, FileNotFoundError):
                    name = error.filename
                    raise DamagedFileError(name, "it is missing") from None
                raise
            self.manifest = chosen
            self.identity = None if chosen is None else chosen.identity
            if not self.read_only:
                self.reclaim([number for number, *_ in core.usage()])
            return core
        raise OSError(f"{self.folder}: commits come faster than they can be read")

    def has_newer(self) -> bool:
        """Whether another process has committed since."""
        kept, bad = manifests(self.folder)
        mine = -1 if self.manifest is None else self.manifest.number
        return bool(bad) or (bool(kept) and kept[-1].number > mine)

    def next_number(self) -> int:
        """Numbers the next commit."""
        return max((each.number for each in self.kept), default=0) + 1

    def before(self) -> tuple[int, ...]:
        """Lists the numbers of the commits that the next one comes from."""
        manifest = self.manifest
        return () if manifest is None else (manifest.number, *manifest.before)

    def begin(self) -> None:
        """Makes sure that a file names the newest commit, before there is another."""
        if not (self.folder / NEWEST).exists():
            last = self.kept[-1] if self.kept else None
            newest = Newest("", 0) if last is None else Newest(last.tag, last.number)
            write_newest(self.folder, newest)

    def add(self, manifest: Manifest, keep: int) -> None:
        """Takes a new commit; of those that it came from ``keep`` stay, with itself."""
        others = [each for each in self.kept if each.tag != manifest.tag]
        line = {manifest.number, *manifest.before}
        stay = [each for each in (*others, manifest) if each.number in line][-keep:]
        self.manifest, self.kept = manifest, [*others, manifest]
        write_newest(self.folder, Newest(manifest.tag, manifest.number))
        if not self.unreadable:
            remove_commits(self.folder, [each for each in others if each not in stay])
            self.kept = stay

    def reclaim(self, in_use: Iterable[int]) -> None:
        """Removes files that neither a commit nor the log needs."""
        if not self.unreadable:
            self.idle_bytes = reclaim(self.folder, self.kept, in_use)

    def tags(self) -> list[str]:
        """Lists the commits, the first one first."""
        kept = manifests(self.folder)[0] if self.read_only else self.kept
        return [each.tag for each in kept]

    def close(self) -> None:
        """Lets another writer in."""
        if self._lock is not None:
            self._lock.release()

    def _choose(self, tag: str | None, bad: list[DamagedFileError]) -> Manifest | None:
        for each in self.kept:
            if each.tag == tag:
                return each
        for error in bad:  # without a tag, it may have been the last one
            if tag is None or error.path == str(manifest_path(self.folder, tag)):
                raise error
        known = ", ".join(each.tag for each in self.kept) or "none yet"
        if tag is not None or (self.read_only and not self.kept):
            raise FileNotFoundError(
                f"{self.folder / COMMITS} has no commit"
                f"{'' if tag is None else f' {tag!r}'}; there are: {known}"
            )
        return self.kept[-1] if self.kept else None

    def _check_newest(self, newest: Newest | None, chosen: Manifest | None) -> None:
        """Refuses an older commit where the newest one's manifest is gone."""
        found = 0 if chosen is None else chosen.number
        if newest is None and any(each.is_named for each in self.kept):
            newest = read_newest(self.folder)  # a writer may just have made it
            if newest is None:
                path = self.folder / NEWEST
                raise DamagedFileError(path, "it is missing, so a commit may be too")
        if newest is None or found >= newest.number:
            return
        fix = "Copy the log again with all of its files."
        if chosen is not None:
            fix += (
                " Or go on from an older commit: jde.stores.Log("
                f"{str(self.folder)!r}, tag={chosen.tag!r}).commit('back')."
            )
        path = manifest_path(self.folder, newest.tag)
        raise DamagedFileError(path, "it is missing, the newest commit", fix)

    def _load(self, chosen: Manifest | None) -> Any:
        if chosen is None:
            if self._layout is None:
                raise ValueError(
                    f"{self.folder} has no commit yet, so its rows are not known: give "
                    "the table, jde.stores.Log(path, coll.tables[name])"
                )
            return self._core(self._layout)
        if self._layout is not None:
            self._layout.check_same_table(chosen.layout, str(self.folder))
        else:
            self._layout = chosen.layout
        self.store = chosen.store
        core = self._core(chosen.layout)
        live = read_live(self.folder, chosen)
        for segment, bits in zip(chosen.segments, live, strict=True):
            path = segment_path(self.folder, segment.number)
            core.open_segment(str(path), tuple(segment), bits)
        if (core.rows(), core.digest()) != (chosen.rows, chosen.digest):
            path = manifest_path(self.folder, chosen.tag)
            raise DamagedFileError(path, "its segments hold other keys than it says")
        return core

    def _core(self, layout: Layout) -> Any:
        text = json.dumps(layout.to_json())
        seed = secrets.randbits(64)
        log = _ffi.cpu_module().Log
        return log(self.store, layout.row_bytes, text, seed, self._threads)


def _is_there(folder: Path, manifest: Manifest | None) -> bool:
    kept, _ = manifests(folder)
    return manifest is not None and any(m.number == manifest.number for m in kept)


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
    """Removes segments that no commit and no log needs; returns the others' bytes."""
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
