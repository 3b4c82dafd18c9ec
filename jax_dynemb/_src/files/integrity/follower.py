# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Follows a publication: a snapshot first, then each segment behind it, in order."""

from __future__ import annotations

import abc
import threading
import time
from pathlib import Path
from typing import Any

from .channel import as_channel, chain_of
from .errors import DamagedFileError
from .publication import Part


class Follower(abc.ABC):
    """Does what subscribers of all frameworks do alike, in a thread of its own.

    Subclasses take a snapshot or a segment over, whole or not at all, and set
    ``_version``, which has number, step and ``age()``. FileNotFoundError of theirs
    means that the publisher has removed a part as an old one.
    """

    _version: Any
    _parts: list[Part]  # by channel, the newest that was taken
    _bases: list[Part]  # the snapshots before them

    def __init__(self, source: Any, interval: float, wait: float):
        """Takes the newest snapshot and the segments behind it.

        Args:
          source: the folder of the publisher, or a channel; a list of those of all
            processes of a job.
          interval: seconds between two looks; 0: no thread.
          wait: seconds to wait for the first snapshot.

        Raises:
          ConnectionError: the channel is away for all of that time.
          FileNotFoundError: there is no snapshot after that time.
        """
        several = isinstance(source, list | tuple)
        self._channels = [
            as_channel(each) for each in (source if several else [source])
        ]
        self._updating = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._segments = self._snapshots = self._outages = 0
        self._listed: int | None = None  # the newest segment when an update began
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

        What is published meanwhile is left for the next call, so this one ends however
        fast that comes.

        Raises:
          ConnectionError: the channel is away; what is served stays.
        """
        with self._updating:
            before, self._listed = self._segments, None
            while self._next():
                if self._listed is not None and self._parts[0].number >= self._listed:
                    break
            return self._segments - before

    def close(self) -> None:
        """Ends the thread; lookups go on with the last version."""
        if self._thread is not None:
            self._stop.set()
            self._thread.join()
            self._thread = None
        for channel in self._channels:
            channel.close()

    def __enter__(self) -> Any:
        """Returns itself."""
        return self

    def __exit__(self, *_: Any) -> None:
        """Closes it."""
        self.close()

    # ---- of subclasses -----------------------------------------------------------

    @abc.abstractmethod
    def _take_snapshot(self, bases: list[Part], segments: list[list[Part]]) -> None:
        """Serves snapshots, one of each channel, with the segments behind each."""

    @abc.abstractmethod
    def _take_segments(self, segments: list[list[Part]]) -> None:
        """Serves what follows: of each channel one segment or more, in order."""

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
            found = self._following(self._parts)
            if found is None:
                return self._load_newer([each.number for each in self._parts])
            if not _continues(self._parts, found):  # of another history, or a gap
                return self._load_other()
            self._take_segments(found)
        except (FileNotFoundError, DamagedFileError) as error:
            _check_removed(error)
            return self._load_newer([each.number for each in self._parts])
        self._parts = [each[-1] for each in found]
        self._segments += 1
        self._discard()
        if self._wants_snapshot():
            self._load_newer(
                [each.number for each in self._bases], self._parts[0].number
            )
        return True

    def _following(self, behind: list[Part]) -> list[list[Part]] | None:
        """Fetches the segments of each channel up to the next moment that all have.

        A process that could not write a moment has it in its next segment, so its
        numbers may have gaps; its tokens have none.
        """
        numbers = [
            [n for n in channel.numbers("segment") if n > part.number]
            for channel, part in zip(self._channels, behind, strict=True)
        ]
        common = set.intersection(*map(set, numbers))
        if self._listed is None:
            self._listed = max(common, default=None)
        if not common:
            return None
        return [
            [channel.fetch("segment", n) for n in own if n <= min(common)]
            for channel, own in zip(self._channels, numbers, strict=True)
        ]

    def _load_newer(self, than: list[int], until: int = 0) -> bool:
        """Takes snapshots behind some numbers, or of a publication that went back.

        With ``until``, also segments up to there, so what is served never goes back.
        """
        snapshots = [channel.numbers("snapshot") for channel in self._channels]
        if not all(snapshots):
            return False
        if all(each[-1] > own for each, own in zip(snapshots, than, strict=True)):
            return self._load_now(until)
        for channel, part in zip(self._channels, self._parts, strict=True):
            kinds = ("snapshot", "segment")
            last = max(0, *(n for kind in kinds for n in channel.numbers(kind)), 0)
            if last < part.number:
                return self._load_other()
        return False

    def _load_other(self) -> bool:
        """Takes the newest snapshots, unless they lead to what is served."""
        try:
            chains = [chain_of(channel) for channel in self._channels]
        except FileNotFoundError:  # a part was removed: look again
            return False
        tokens = [[(each.number, each.token) for each in chain] for chain in chains]
        own = [(each.number, each.token) for each in self._parts]
        if not all(chains) or all(
            one in chain for one, chain in zip(own, tokens, strict=True)
        ):
            return False
        return self._load_now()

    def _load_now(self, until: int = 0) -> bool:
        """Takes the newest snapshots; False if one goes while it is read."""
        try:
            self._load(0.0, until)
        except FileNotFoundError:
            return False
        return True

    def _load(self, wait: float, until: int = 0) -> None:
        end = time.monotonic() + wait
        while True:
            try:
                if self._load_newest(until):
                    return
            except (FileNotFoundError, DamagedFileError) as error:
                _check_removed(error)
            except ConnectionError:
                if time.monotonic() >= end:
                    raise
            if time.monotonic() >= end:
                where = ", ".join(map(str, self._channels))
                raise FileNotFoundError(
                    f"{where} has no snapshot: start the publisher, which writes one "
                    "with its first step, or wait= longer for it."
                )
            time.sleep(0.05)

    def _load_newest(self, until: int) -> bool:
        """Takes the newest snapshot of each channel, up to a moment that all have."""
        numbers = [channel.numbers("snapshot") for channel in self._channels]
        if not all(numbers):
            return False
        bases = [
            channel.fetch("snapshot", own[-1])
            for channel, own in zip(self._channels, numbers, strict=True)
        ]
        if bases[0].processes != len(bases):
            raise ValueError(
                f"{bases[0].processes} processes publish, and the subscriber was given "
                f"{len(bases)}: give it a list of all their folders or channels."
            )
        segments: list[list[Part]] | None = [[] for _ in bases]
        newest = max(until, *(base.number for base in bases))
        if any(base.number < newest for base in bases):
            segments = self._caught_up(bases, newest)
            if segments is None:
                return False
        self._take_snapshot(bases, segments)
        pairs = zip(bases, segments, strict=True)
        self._bases, self._parts = bases, [[base, *own][-1] for base, own in pairs]
        self._snapshots += 1
        self._discard()
        return True

    def _caught_up(self, bases: list[Part], newest: int) -> list[list[Part]] | None:
        """Fetches what leads from snapshots to one moment."""
        segments: list[list[Part]] = []
        for channel, base in zip(self._channels, bases, strict=True):
            numbers = [n for n in channel.numbers("segment") if n > base.number]
            if base.number != newest and newest not in numbers:
                return None  # not yet
            segments.append(
                [channel.fetch("segment", n) for n in numbers if n <= newest]
            )
        return segments if _continues(bases, segments) else None

    def _discard(self) -> None:
        for channel in self._channels:
            channel.discard()


def _continues(before: list[Part], segments: list[list[Part]]) -> bool:
    """Whether segments of each channel follow one another."""
    for last, own in zip(before, segments, strict=True):
        for part in own:
            if part.previous != last.token:
                return False
            last = part
    return True


def _check_removed(error: Exception) -> None:
    """Raises damage again, unless the part went while it was read."""
    if isinstance(error, DamagedFileError) and Path(error.path).parent.exists():
        raise error
