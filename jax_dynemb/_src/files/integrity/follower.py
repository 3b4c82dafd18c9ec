# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Follows a publication: a snapshot first, then each segment behind it, in order."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from .errors import DamagedFileError
from .publication import Part, newest, numbers_in, read_part, segment_path


class Follower:
    """Does what subscribers of all frameworks do alike, in a thread of its own.

    Subclasses take a snapshot or a segment over, whole or not at all, and set
    ``_version``, which has number, step and ``age()``. FileNotFoundError of theirs
    means that the publisher has removed a part as an old one.
    """

    _version: Any
    _part: Part  # the newest that was taken
    _base: Part  # the snapshot before it

    def __init__(self, folder: Any, interval: float, wait: float):
        """Takes the newest snapshot and the segments behind it.

        Args:
          folder: of the publisher.
          interval: seconds between two looks; 0: no thread.
          wait: seconds to wait for the first snapshot.

        Raises:
          FileNotFoundError: there is no snapshot after that time.
        """
        self._folder = Path(folder)
        self._updating = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._segments = self._snapshots = 0
        self._load(wait)
        self.update()
        if interval > 0:
            name = f"{type(self).__module__.partition('.')[0]}.subscriber"
            self._thread = threading.Thread(
                target=self._follow, args=(interval,), name=name, daemon=True
            )
            self._thread.start()

    def version(self) -> Any:
        """Returns which moment is served."""
        if self._error is not None:
            raise self._error
        return self._version

    def stats(self) -> dict[str, float]:
        """Counts segments and snapshots that were taken; number, step and age."""
        served = self._version
        return {
            "segments": self._segments,
            "snapshots": self._snapshots,
            "number": served.number,
            "step": served.step,
            "age": served.age(),
        }

    def update(self) -> int:
        """Takes what is there now, and returns how many segments that were."""
        with self._updating:
            before = self._segments
            while self._next():
                pass
            return self._segments - before

    def close(self) -> None:
        """Ends the thread; lookups go on with the last version."""
        if self._thread is not None:
            self._stop.set()
            self._thread.join()
            self._thread = None

    def __enter__(self) -> Any:
        """Returns itself."""
        return self

    def __exit__(self, *_: Any) -> None:
        """Closes it."""
        self.close()

    # ---- of subclasses -----------------------------------------------------------

    def _take_snapshot(self, part: Part) -> None:
        raise NotImplementedError

    def _take_segment(self, part: Part) -> None:
        raise NotImplementedError

    def _wants_snapshot(self) -> bool:
        return False

    # ---- in the thread -----------------------------------------------------------

    def _follow(self, interval: float) -> None:
        while not self._stop.wait(interval):
            try:
                self.update()
            except BaseException as error:  # noqa: BLE001 (the next call raises it)
                self._error = error
                return

    def _next(self) -> bool:
        """Takes a segment, or a snapshot where none follows; False if all is known."""
        try:
            part = read_part(segment_path(self._folder, self._part.number + 1))
            if part.previous != self._part.token:  # of another history
                return self._load_newer(self._part.number)
            self._take_segment(part)
        except (FileNotFoundError, DamagedFileError) as error:
            _check_removed(error)
            return self._load_newer(self._part.number)
        self._part = part
        self._segments += 1
        if self._wants_snapshot():
            self._load_newer(self._base.number)
        return True

    def _load_newer(self, than: int) -> bool:
        """Takes a snapshot behind a number, if there is one."""
        snapshots = numbers_in(self._folder, "snapshot")
        if not snapshots or snapshots[-1] <= than:
            return False
        self._load(0.0)
        return True

    def _load(self, wait: float) -> None:
        until = time.monotonic() + wait
        while True:
            try:
                base = newest(self._folder)[0] if self._folder.is_dir() else None
                if base is not None:
                    self._take_snapshot(base)
                    break
            except (FileNotFoundError, DamagedFileError) as error:
                _check_removed(error)
                continue
            if time.monotonic() >= until:
                raise FileNotFoundError(
                    f"{self._folder} has no snapshot: start the publisher, which "
                    "writes one with its first step, or wait= longer for it."
                )
            time.sleep(0.05)
        self._part = self._base = base
        self._snapshots += 1


def _check_removed(error: Exception) -> None:
    """Raises damage again, unless the part went while it was read."""
    if isinstance(error, DamagedFileError) and Path(error.path).parent.exists():
        raise error
