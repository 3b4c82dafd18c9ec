# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Makes a snapshot of earlier parts while segments go on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

from jax_dynemb._src.files.integrity import Part

Outcome = Callable[[], Part]  # raises what the work raised

# Rows of segments, before a snapshot is made of them. That reads and writes whole
# tables. With as many rows in segments it takes as long as to publish these.
_LEAST_BEHIND, _BEHIND_TO_ROWS = 4096, 2


class SnapshotRule:
    """Says when the segments behind the last snapshot are worth a new one."""

    def __init__(self, every: int | None):
        """Counts segments if ``every`` is given, else their rows."""
        self._every = every
        self.rows = 0  # in segments behind the last snapshot

    def is_due(self, segments: int, table_rows: int) -> bool:
        """Whether it is time, with so many segments behind, and rows in the tables."""
        if self._every is not None:
            return segments >= self._every
        return self.rows > max(_BEHIND_TO_ROWS * table_rows, _LEAST_BEHIND)


class Compaction:
    """Runs one piece of work at a time in a thread of its own."""

    def __init__(self) -> None:
        self._idle = threading.Event()
        self._idle.set()

    @property
    def is_running(self) -> bool:
        """Whether there is work that has not ``ended``."""
        return not self._idle.is_set()

    def start(self, work: Outcome, done: Callable[[Outcome], None]) -> None:
        """Runs work, and hands over how it went; ``ended`` must follow that."""
        self._idle.clear()
        threading.Thread(
            target=lambda: done(outcome_of(work)),
            name="jax_dynemb.compaction",
            daemon=True,
        ).start()

    def ended(self) -> None:
        """Lets ``wait`` return."""
        self._idle.set()

    def wait(self) -> None:
        """Waits until the work has ended, if there is any."""
        self._idle.wait()


def outcome_of(work: Outcome) -> Outcome:
    """Runs work, and keeps its error for the thread that wants the result."""
    future: Future[Part] = Future()
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001 (the other thread raises it)
        future.set_exception(error)
    return future.result
