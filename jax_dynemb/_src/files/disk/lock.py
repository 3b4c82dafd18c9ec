# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Work on a directory that threads and processes may only do one after the other."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

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
