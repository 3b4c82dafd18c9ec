# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Carries the parts of a publication to subscribers: by a folder, or a network.

A channel shows a part when all of it is there, so a publisher or a subscriber may be
killed at any moment. It has one publisher at a time, which holds its lease.
"""

from __future__ import annotations

import abc
import contextlib
import json
import os
import secrets
import shutil
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .copies import OwnFolder
from .json import file_inside
from .publication import Part, numbers_in, part_path, read_part

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None


class HistoryLostError(Exception):
    """Says that a channel no longer ends where its publisher left it."""


class Channel(abc.ABC):
    """Carries parts; ConnectionError of any method means that it is away for now.

    ``kind`` is "snapshot" or "segment". A part that is not there, or was removed as an
    old one, is a FileNotFoundError.
    """

    # Whether a snapshot may appear when segments behind its moment are there.
    takes_late_snapshots = False

    # ---- of both sides -----------------------------------------------------------

    @abc.abstractmethod
    def numbers(self, kind: str) -> list[int]:
        """Lists the numbers of the parts that are there, ascending."""

    @abc.abstractmethod
    def look(self, kind: str, number: int) -> Part:
        """Returns what a part says of itself, without its files."""

    @abc.abstractmethod
    def fetch(self, kind: str, number: int) -> Part:
        """Returns a part whose files lie on this machine, until ``discard``."""

    @abc.abstractmethod
    def discard(self) -> None:
        """Removes copies that a subscriber fetched."""

    @abc.abstractmethod
    def close(self) -> None:
        """Lets go of the lease and of all connections; may be called twice."""

    # ---- of the publisher --------------------------------------------------------

    @abc.abstractmethod
    def take(self) -> None:
        """Takes the lease; RuntimeError if another publisher has it."""

    @property
    @abc.abstractmethod
    def folder(self) -> Path:
        """Returns where the publisher writes parts, and finds those it has written."""

    @abc.abstractmethod
    def check(self) -> None:
        """Raises RuntimeError if another publisher has taken the lease since."""

    @abc.abstractmethod
    def put(self, part: Part, before: str | None) -> None:
        """Shows a part that lies in ``folder``; to do it twice changes nothing.

        Args:
          part: to be shown.
          before: token of the newest part there; None where a history begins.

        Raises:
          HistoryLostError: the newest part is another one.
          RuntimeError: another publisher has taken the lease.
        """

    @abc.abstractmethod
    def remove(self, kind: str, number: int) -> None:
        """Removes a part, if it is there."""


def as_channel(to: Any) -> Channel:
    """Returns a channel, of a path that of the folder; TypeError for anything else."""
    if isinstance(to, Channel):
        return to
    if not isinstance(to, str | os.PathLike):
        raise TypeError(
            f"A publication lies in a folder or a channel of serving, not in a "
            f"{type(to).__name__}."
        )
    if "://" in str(to):
        raise TypeError(f"{to} is no folder: write Bucket({to!r}) or Redis({to!r}).")
    return FolderChannel(Path(to))


def newest(channel: Channel) -> tuple[Part | None, Part | None]:
    """Finds the newest snapshot, and the newest part: that, or a segment behind it."""
    chain = chain_of(channel)
    return (chain[0], chain[-1]) if chain else (None, None)


def chain_of(channel: Channel) -> list[Part]:
    """Lists the newest snapshot and the segments that continue it."""
    snapshots = channel.numbers("snapshot")
    if not snapshots:
        return []
    chain = [channel.look("snapshot", snapshots[-1])]
    for number in channel.numbers("segment"):
        if number > chain[-1].number:
            following = channel.look("segment", number)
            if following.previous != chain[-1].token:
                break
            chain.append(following)
    return chain


# ---- a folder ------------------------------------------------------------------------

_REMOVED = "removed-"  # of names that no subscriber looks for


class FolderChannel(Channel):
    """Is a folder on a disk that subscribers see; a part is a directory in it.

    The lease is a lock, which goes with its process, and a token that each write
    compares. The token protects where a file system has no locks, or where a process
    that was stopped for long comes back.
    """

    takes_late_snapshots = True

    def __init__(self, folder: Path):
        self._folder, self._file = folder, -1
        self._token = secrets.token_hex(16)

    def __str__(self) -> str:
        return str(self._folder)

    @property
    def folder(self) -> Path:
        return self._folder

    def numbers(self, kind: str) -> list[int]:
        return numbers_in(self._folder, kind) if self._folder.is_dir() else []

    def look(self, kind: str, number: int) -> Part:
        return read_part(part_path(self._folder, kind, number))

    def fetch(self, kind: str, number: int) -> Part:
        return read_part(part_path(self._folder, kind, number))

    def discard(self) -> None:
        """Does nothing: subscribers read parts where they lie."""

    def take(self) -> None:
        folder = self._folder
        folder.mkdir(parents=True, exist_ok=True)
        file = os.open(self._owner, os.O_RDWR | os.O_CREAT, 0o644)
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                owner = self._owner.read_text() or "another process"
                os.close(file)
                raise RuntimeError(
                    f"{folder} has a publisher already ({owner}): end that process, or "
                    "publish into another folder."
                ) from None
            except OSError:
                pass  # a file system without locks
        os.ftruncate(file, 0)
        os.pwrite(file, owner_text(self._token).encode(), 0)
        os.fsync(file)
        self._file = file
        for left in folder.glob(f"{_REMOVED}*"):  # by a process that was killed
            shutil.rmtree(left, ignore_errors=True)

    def check(self) -> None:
        if self._token not in self._owner.read_text():
            raise taken(self._folder)

    def put(self, part: Part, before: str | None) -> None:
        """Does nothing: a part has its name when it is complete."""

    def remove(self, kind: str, number: int) -> None:
        path = part_path(self._folder, kind, number)
        with contextlib.suppress(FileNotFoundError):
            # All of it at once, since a subscriber may be there.
            removed = path.rename(path.with_name(_REMOVED + path.name))
            shutil.rmtree(removed, ignore_errors=True)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    @property
    def _owner(self) -> Path:
        return self._folder / "publisher.json"


# ---- over a network ------------------------------------------------------------------


class RemoteChannel(Channel):
    """Keeps copies of parts on this machine, for channels that have no files.

    A publisher keeps what the next snapshot is made of.

    Args:
      folder: for the copies; None: a new one, which goes with this object.
    """

    _owns = False  # the lease

    def __init__(self, folder: str | os.PathLike[str] | None):
        self._given = None if folder is None else Path(folder)
        self._own: OwnFolder | None = None

    @property
    def folder(self) -> Path:
        if self._own is None:
            self._own = OwnFolder(self._given)
        return self._own.path

    def fetch(self, kind: str, number: int) -> Part:
        target = part_path(self.folder, kind, number)
        if self._owns and target.exists():
            return read_part(target)
        draft = self.folder / f"draft-{kind}"
        shutil.rmtree(draft, ignore_errors=True)
        self._download(kind, number, draft)
        shutil.rmtree(target, ignore_errors=True)
        draft.rename(target)
        return read_part(target)

    def discard(self) -> None:
        if not self._owns:
            self._drop_copies()

    def put(self, part: Part, before: str | None) -> None:
        self._upload(part, before)
        if part.is_snapshot:
            self._drop_copies(part.path)

    def remove(self, kind: str, number: int) -> None:
        shutil.rmtree(part_path(self.folder, kind, number), ignore_errors=True)

    def check(self) -> None:
        """Does nothing: ``put`` compares."""

    def close(self) -> None:
        if self._own is not None:
            self._own.remove()
            self._own = None

    def _drop_copies(self, but: Path | None = None) -> None:
        for path in self.folder.iterdir():
            if path != but and path.name.startswith(("segment-", "snapshot-")):
                shutil.rmtree(path, ignore_errors=True)

    @abc.abstractmethod
    def _download(self, kind: str, number: int, draft: Path) -> None:
        """Makes a directory with the files of a part."""

    @abc.abstractmethod
    def _upload(self, part: Part, before: str | None) -> None:
        """Does what ``put`` says."""


class Heartbeat:
    """Calls a function from time to time, until it returns False or is stopped."""

    def __init__(self, seconds: float, beat: Callable[[], bool]):
        self._seconds, self._beat = seconds, beat
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="publisher.lease", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Waits for the thread."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._seconds):
            with contextlib.suppress(ConnectionError):  # the next beat may come through
                if not self._beat():
                    return


def files_of(part: Part) -> dict[str, Path]:
    """Lists the files of a part by their names in it."""
    found = (path for path in sorted(part.path.rglob("*")) if path.is_file())
    return {path.relative_to(part.path).as_posix(): path for path in found}


def new_file(draft: Path, name: str, source: Any) -> Path:
    """Returns where a file of a draft lies, in a directory that is there."""
    path = file_inside(draft, name, Path(str(source)))
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def owner_text(token: str) -> str:
    """Returns what a lease says of its owner."""
    owner: Mapping[str, Any] = {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "token": token,
    }
    return json.dumps(owner)


def taken(where: Any) -> RuntimeError:
    """Returns the error of a publisher that lost its lease."""
    return RuntimeError(
        f"Another publisher has taken {where}: this one writes nothing more. It holds "
        "what that one publishes."
    )


def refused(where: Any, owner: Any) -> RuntimeError:
    """Returns the error of a publisher that comes second."""
    return RuntimeError(
        f"{where} has a publisher already ({owner}): end that process, or publish "
        "under another name."
    )
