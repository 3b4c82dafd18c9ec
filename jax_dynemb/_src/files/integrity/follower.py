# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Follows a publication: a snapshot first, then each segment behind it, in order."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from .channel import as_channel, chain_of
from .errors import DamagedFileError
from .publication import Part


class Follower:
    """Does what subscribers of all frameworks do alike, in a thread of its own.

    Subclasses take a snapshot or a segment over, whole or not at all, and set
    ``_version``, which has number, step and ``age()``. FileNotFoundError of theirs
    means that the publisher has removed a part as an old one.
    """

    _version: Any
    _part: Part  # the newest that was taken
    _base: Part  # the snapshot before it

    def __init__(self, source: Any, interval: float, wait: float):
        """Takes the newest snapshot and the segments behind it.

        Args:
          source: the folder of the publisher, or a channel.
          interval: seconds between two looks; 0: no thread.
          wait: seconds to wait for the first snapshot.

        Raises:
          ConnectionError: the channel is away for all of that time.
          FileNotFoundError: there is no snapshot after that time.
        """
        self._channel = as_channel(source)
        self._updating = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._segments = self._snapshots = self._outages = 0
        self._load(wait)
        self._try_update()
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
        """Counts segments and snapshots that were taken; number, step and age.

        ``outages`` counts how often the channel was found away.
        """
        served = self._version
        return {
            "segments": self._segments,
            "snapshots": self._snapshots,
            "outages": self._outages,
            "number": served.number,
            "step": served.step,
            "age": served.age(),
        }

    def update(self) -> int:
        """Takes what is there now, and returns how many segments that were.

        Raises:
          ConnectionError: the channel is away; what is served stays.
        """
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
        self._channel.close()

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
                self._try_update()
            except BaseException as error:  # noqa: BLE001 (the next call raises it)
                self._error = error
                return

    def _try_update(self) -> None:
        """Takes what is there; nothing from a channel that is away for now."""
        try:
            self.update()
        except ConnectionError:
            self._outages += 1

    def _next(self) -> bool:
        """Takes a segment, or a snapshot where none follows; False if all is known."""
        try:
            part = self._channel.fetch("segment", self._part.number + 1)
            if part.previous != self._part.token:  # of another history
                return self._load_other()
            self._take_segment(part)
        except (FileNotFoundError, DamagedFileError) as error:
            _check_removed(error)
            return self._load_newer()
        self._part = part
        self._segments += 1
        if self._wants_snapshot():
            self._load_newer(self._base.number)
        return True

    def _load_newer(self, than: int | None = None) -> bool:
        """Takes a snapshot behind a number, or of a publication that went back."""
        than = self._part.number if than is None else than
        snapshots = self._channel.numbers("snapshot")
        if not snapshots:
            return False
        if snapshots[-1] <= than:
            last = max(snapshots[-1], *self._channel.numbers("segment"), 0)
            return last < self._part.number and self._load_other()
        return self._load_now()

    def _load_other(self) -> bool:
        """Takes the newest snapshot, unless what it begins leads to what is served."""
        try:
            chain = chain_of(self._channel)
        except FileNotFoundError:  # a part was removed: look again
            return False
        own = (self._part.number, self._part.token)
        if not chain or own in [(each.number, each.token) for each in chain]:
            return False
        return self._load_now()

    def _load_now(self) -> bool:
        """Takes the newest snapshot; False if it goes while it is read."""
        try:
            self._load(0.0)
        except FileNotFoundError:
            return False
        return True

    def _load(self, wait: float) -> None:
        until = time.monotonic() + wait
        while True:
            try:
                snapshots = self._channel.numbers("snapshot")
                if snapshots:
                    base = self._channel.fetch("snapshot", snapshots[-1])
                    self._take_snapshot(base)
                    break
            except (FileNotFoundError, DamagedFileError) as error:
                _check_removed(error)
            except ConnectionError:
                if time.monotonic() >= until:
                    raise
            if time.monotonic() >= until:
                raise FileNotFoundError(
                    f"{self._channel} has no snapshot: start the publisher, which "
                    "writes one with its first step, or wait= longer for it."
                )
            time.sleep(0.05)
        self._part = self._base = base
        self._snapshots += 1


def _check_removed(error: Exception) -> None:
    """Raises damage again, unless the part went while it was read."""
    if isinstance(error, DamagedFileError) and Path(error.path).parent.exists():
        raise error
