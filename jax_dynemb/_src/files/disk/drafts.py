# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Drafts, which have no name yet, and locks that say whose they and directories are.

A draft is locked while it is written. The lock goes with the process that holds it,
however it ends, so a draft that can be locked was left behind and is removed.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import os
import secrets
import shutil
import socket
import threading
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None

_MARK = ".tmp-"
_TRIES = 100
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


@contextlib.contextmanager
def draft_of(path: Path, make: Callable[[Path], None]) -> Iterator[Path]:
    """Yields a new draft beside a path, locked until the block ends.

    Threads have drafts of their own; ``make`` fails where there is something.
    """
    for _ in range(_TRIES):
        draft = path.with_name(
            f"{path.name}{_MARK}{_host()}-{os.getpid()}-{secrets.token_hex(4)}"
        )
        make(draft)
        lock = _locked(draft)
        if lock is None:  # another process took it for left behind
            continue
        try:
            yield draft
        finally:
            os.close(lock)
        return
    raise OSError(errno.EAGAIN, "no draft could be locked", str(path))


def remove_left_behind(folder: Path, pattern: str) -> None:
    """Removes drafts of this machine, like ``pattern``, whose process has ended."""
    for draft in _drafts_in(folder):
        named, _, mark = draft.name.rpartition(_MARK)
        if not fnmatch.fnmatchcase(named, pattern):
            continue
        if mark.isdigit():  # of an earlier version, which named the process only
            _remove_unless_alive(draft, int(mark))
        elif mark.startswith(_host() + "-"):
            _remove_left_behind(draft, mark)


def _drafts_in(folder: Path) -> list[Path]:
    """Lists drafts; most folders have none, so that no pattern need be compiled."""
    try:
        with os.scandir(folder) as entries:
            return [folder / each.name for each in entries if _MARK in each.name]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _remove_left_behind(draft: Path, mark: str) -> None:
    if fcntl is None:
        _remove_unless_alive(draft, int(mark.split("-")[1]))
        return
    try:
        lock = _locked(draft)
    except OSError:
        return
    if lock is None:
        return
    try:
        # While it is locked: a writer that has only just made it makes another one.
        _remove(draft)
    finally:
        os.close(lock)


def _remove_unless_alive(draft: Path, process: int) -> None:
    if not _is_alive(process):
        _remove(draft)


def _remove(draft: Path) -> None:
    if draft.is_dir() and not draft.is_symlink():
        shutil.rmtree(draft, ignore_errors=True)
    else:
        draft.unlink(missing_ok=True)


def _locked(draft: Path) -> int | None:
    """A descriptor that holds the lock; None if another has it, or it is gone."""
    try:
        descriptor = os.open(draft, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.stat(draft).st_ino == os.fstat(descriptor).st_ino:
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return descriptor
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _host() -> str:
    return f"{zlib.crc32(socket.gethostname().encode()):08x}"


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None

_threads: defaultdict[Path, threading.Lock] = defaultdict(threading.Lock)


@contextlib.contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Waits for others that work on the directory; they wait for this block."""
    with _threads[folder.resolve()]:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            if fcntl is not None:
                with contextlib.suppress(OSError):  # a file system without locks
                    fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


class Presence:
    """Says to other processes that this one works on a directory, while it lives."""

    def __init__(self, folder: Path):
        self._descriptor = os.open(folder, os.O_RDONLY)

    def alone(self) -> bool:
        """Whether no other process is there; True on a file system without locks."""
        if fcntl is None:
            return True
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            result = True
        except BlockingIOError:
            result = False
        except OSError:
            return True
        fcntl.flock(self._descriptor, fcntl.LOCK_SH)
        return result
