# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Files that appear complete or not at all, written beside the reading of rows."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """A directory to write into, which gets its name when the block has ended.

    Raises:
      FileExistsError: there is something at the path already.
    """
    path = path.expanduser().absolute()
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise FileExistsError(f"{path} exists. Give a directory that does not.")
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    try:
        yield draft
        _to_disk(draft)
        draft.rename(path)
        sync(path.parent)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """A file to write, which gets its name when the block has ended."""
    draft = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    try:
        yield draft
        sync(draft)
        draft.replace(path)
        sync(path.parent)
    finally:
        draft.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Waits until a file or the entries of a directory are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _to_disk(directory: Path) -> None:
    for path in directory.rglob("*"):
        sync(path)
    sync(directory)


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
