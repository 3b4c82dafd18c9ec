# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Files that appear complete or not at all, written beside the reading of rows."""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from jax_dynemb._src.files.disk.drafts import draft_of, remove_left_behind
from jax_dynemb._src.files.integrity import DamagedFileError

_TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR)


@contextlib.contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """Yields a directory that gets its name when the block has ended.

    Drafts of killed processes go. FileExistsError if there is something.
    """
    path = path.expanduser().absolute()
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise _exists(path)
    with disk_errors(path, drafts_of=path):
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_left_behind(path.parent, glob.escape(path.name))
        with draft_of(path, Path.mkdir) as draft:
            try:
                yield draft
                for each in (*draft.rglob("*"), draft):
                    sync(each)
                _take_name(draft, path)
                sync(path.parent)
            finally:
                shutil.rmtree(draft, ignore_errors=True)


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Yields a file to write, which gets its name when the block has ended."""
    with disk_errors(path, drafts_of=path), draft_of(path, _make_file) as draft:
        try:
            yield draft
            sync(draft)
            draft.replace(path)
            sync(path.parent)
        finally:
            draft.unlink(missing_ok=True)


@contextlib.contextmanager
def disk_errors(path: Path, drafts_of: Path | None = None) -> Iterator[None]:
    """Lets OSErrors name a path; one that names a draft of ``drafts_of`` names that."""
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        named = error.filename
        draft = f"{drafts_of}.tmp-" if drafts_of is not None else "\0"
        if named is not None and not os.fsdecode(named).startswith(draft):
            raise
        if error.errno is None:
            raise OSError(f"{path}: {error}") from error
        text = error.strerror or os.strerror(error.errno)
        raise OSError(error.errno, text, str(path)) from error


@contextlib.contextmanager
def library_errors(path: Path, *more: type[Exception]) -> Iterator[None]:
    """Raises what a library says of a file as its damage; ``more`` kinds of errors."""
    try:
        with disk_errors(path):
            yield
    except (ValueError, IndexError, KeyError, MemoryError, *more) as error:
        if isinstance(error, DamagedFileError):
            raise
        if isinstance(error, OSError) and error.errno is not None:
            raise
        text = str(error).splitlines()[0][:200] if str(error) else "no reason given"
        raise DamagedFileError(path, f"it can not be read: {text}") from None


def sync(path: Path) -> None:
    """Waits until a file or the entries of a directory are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with disk_errors(path):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _make_file(path: Path) -> None:
    path.open("xb").close()


def _take_name(draft: Path, path: Path) -> None:
    try:
        draft.rename(path)
    except OSError as error:
        if error.errno in _TAKEN:  # another thread or process was first
            raise _exists(path) from None
        raise


def _exists(path: Path) -> FileExistsError:
    return FileExistsError(f"{path} exists. Give a directory that does not.")


class Background:
    """Runs calls one after the other in a thread, at most two ahead."""

    _AHEAD = 2

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._running: deque[Future[Any]] = deque()

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Starts a call; waits if too many are under way, and raises their errors."""
        while len(self._running) >= self._AHEAD:
            self._running.popleft().result()
        self._running.append(self._pool.submit(function, *arguments))

    def __enter__(self) -> Background:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        self._pool.shutdown(wait=True)
        if kind is None:
            while self._running:
                self._running.popleft().result()
