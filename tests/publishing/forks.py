# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Forks that run a function until they are killed."""

import faulthandler
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import ClassVar

_SECONDS = 120


class Fork:
    """A fork that runs a function and says in lines what it does."""

    alive: ClassVar[set[int]] = set()

    def __init__(self, run: Callable[[Path, int], None], folder: Path):
        self._read, write = os.pipe()
        os.set_blocking(self._read, False)
        self.lines: list[str] = []
        self._rest = b""
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._read)
            faulthandler.register(signal.SIGUSR1)
            try:
                run(folder, write)
            except BaseException as error:  # it must not run the parent's code
                os.write(write, f"failed: {error!r}\n".encode())
            finally:
                os._exit(1)
        os.close(write)
        self.alive.add(self.pid)

    def read(self) -> list[str]:
        """What it has said until now; RuntimeError if it has failed."""
        try:
            while data := os.read(self._read, 1 << 16):
                self._rest += data
        except BlockingIOError:
            pass
        *lines, self._rest = self._rest.split(b"\n")
        self.lines += [line.decode() for line in lines]
        if bad := [line for line in self.lines if line.startswith("failed")]:
            raise RuntimeError(bad[0])
        return self.lines

    def wait_for_lines(self, count: int, others: Iterable["Fork"] = ()) -> None:
        """Waits until it has said so many; reads others too, whose pipes would fill."""
        until = time.monotonic() + _SECONDS
        while len(self.read()) < count:
            for other in others:
                other.read()
            if time.monotonic() > until:
                self.say_where()
                raise RuntimeError(f"it has said {self.lines} after {_SECONDS} s")
            time.sleep(0.002)

    @classmethod
    def say_where(cls) -> None:
        """Lets all forks print where they are."""
        for pid in cls.alive:
            os.kill(pid, signal.SIGUSR1)
        time.sleep(1)

    def kill(self) -> list[str]:
        """Ends it at once, and returns all that it said."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.alive.discard(self.pid)
        said = self.read()
        os.close(self._read)
        return said
