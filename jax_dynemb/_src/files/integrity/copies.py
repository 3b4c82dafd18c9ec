# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Directories that go with their process, however it ends."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from pathlib import Path

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None

_PREFIX = "jax_dynemb-publication-"


class OwnFolder:
    """Makes a directory that is removed when this object goes.

    It is locked while its process lives, and one that can be locked was left behind by
    a process that was killed: then another one removes it.
    """

    def __init__(self, parent: Path | None):
        place = Path(tempfile.gettempdir()) if parent is None else parent
        place.mkdir(parents=True, exist_ok=True)
        for other in place.glob(f"{_PREFIX}*"):
            lock = _locked(other)
            if lock is not None:
                shutil.rmtree(other, ignore_errors=True)
                os.close(lock)
        while True:
            path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
            lock = _locked(path)
            if lock is not None or fcntl is None:
                break  # no other process took it for left behind
        self.path = path
        self.remove = weakref.finalize(self, _remove, path, lock)


def _remove(path: Path, lock: int | None) -> None:
    shutil.rmtree(path, ignore_errors=True)
    if lock is not None:
        os.close(lock)


def _locked(path: Path) -> int | None:
    """Returns a descriptor with the lock; None if another process has it."""
    if fcntl is None:
        return None
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:  # it is gone, or of another user
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.stat(path).st_ino == os.fstat(file).st_ino:
            return file
    except OSError:
        pass
    os.close(file)
    return None
