# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Changes a log: appends rows, finishes, rewrites and commits files."""

from __future__ import annotations

import errno
from typing import Any

import numpy as np

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.files.disk import sync
from jax_dynemb._src.stores.commits import Commits, next_number
from jax_dynemb._src.stores.manifest import (
    SEGMENTS,
    Manifest,
    Segment,
    segment_path,
    write_manifest,
)

_MOVED_AT_ONCE = 1 << 24  # bytes
_SMALL = 4  # a segment below this part of the usual size is small
_MOST_SMALL = 8


class Writer:
    """Appends to the segments of a log; the caller lets one thread in at a time.

    A segment has ``segment`` bytes; ``bound`` limits all files, None does not.
    ``moved`` counts rows that were rewritten to free space.
    """

    def __init__(self, commits: Commits, core: Any, segment: int, bound: int | None):
        self.core = core
        self.moved = 0
        self._commits, self._segment, self._bound = commits, segment, bound
        manifest = commits.manifest
        self._step = 0 if manifest is None else manifest.step
        self._number = next_number(commits.folder, commits.kept)
        segments = () if manifest is None else manifest.segments
        self._finished = {each.number: each for each in segments}
        self._unsynced: set[int] = set()
        self._failed = False
        module = _ffi.cpu_module()
        self._frame = module.log_header_bytes + module.log_tail_bytes
        self._row_bytes = commits.layout.row_bytes
        self._bytes = self._row_bytes + 12 + 8  # of a record and its key in the footer

    def put(self, keys: np.ndarray, packed: np.ndarray, step: int) -> np.ndarray:
        """Appends rows; returns which ones had room."""
        self._step = max(self._step, step)
        room = self._room()
        if len(keys) <= room:
            self._append(keys, packed)
            return np.ones(len(keys), bool)
        # Of a key that comes twice the last row counts, stored or refused.
        _, last = np.unique(keys[::-1], return_index=True)
        fits = np.sort(len(keys) - 1 - last)[:room]
        self._append(keys[fits], packed[fits])
        return np.isin(keys, keys[fits])

    def commit(self, tag: str, step: int | None, keep: int) -> None:
        """Writes a commit; what is not needed any more is removed."""
        if self._failed:
            raise OSError(
                errno.EIO,
                "data could not be written through, so it may be lost; call open()",
                str(self._commits.folder),
            )
        self._compact()
        self._finish()
        self._sync()
        usage = {number: live for number, _, _, live, _ in self.core.usage()}
        segments = [s for n, s in sorted(self._finished.items()) if usage[n] > 0]
        live = [self.core.live_bits(each.number) for each in segments]
        manifest = Manifest(
            tag=tag,
            number=self._commits.next_number(),
            before=self._commits.before(),
            step=self._step if step is None else int(step),
            store=self._commits.store,
            layout=self._commits.layout,
            segments=tuple(segments),
            live_crc=0,
            rows=self.core.rows(),
            digest=self.core.digest(),
            identity=self._commits.identity,
        )
        bits = np.concatenate([np.empty(0, np.uint64), *live])
        self._commits.begin()
        write_manifest(self._commits.folder, manifest, bits)
        self._commits.add(manifest, keep)
        for number, rows in usage.items():
            if rows == 0:
                self.core.drop_segment(number)
                del self._finished[number]
        self._commits.reclaim(self._finished)

    # ---- room --------------------------------------------------------------------

    def _used(self) -> int:
        finished = sum(each.bytes for each in self._finished.values())
        return finished + self.core.current_bytes() + self._commits.idle_bytes

    def _room(self) -> int:
        """Rows that may be put: one segment's room is for moving rows."""
        if self._bound is None:
            return 2**63
        free = self._bound - self._segment - self._used()
        frames = (max(0, free) // self._segment + 2) * self._frame
        return max(0, free - frames) // self._bytes

    # ---- segments ----------------------------------------------------------------

    def _append(self, keys: np.ndarray, packed: np.ndarray) -> None:
        begin = 0
        while begin < len(keys):
            used = self.core.current_bytes()
            fits = (self._segment - (used or self._frame)) // self._bytes
            if used and fits <= 0:
                self._finish()
                continue
            if not used:
                self._start()
            end = begin + max(1, fits)
            self.core.put(keys[begin:end], packed[begin:end])
            begin = end

    def _start(self) -> None:
        number = self._number
        self._number += 1  # a file that could not be begun keeps its number
        self.core.start_segment(str(segment_path(self._commits.folder, number)), number)

    def _finish(self) -> None:
        if self.core.current_bytes():
            segment = Segment(*self.core.finish_segment())
            self._finished[segment.number] = segment
            self._unsynced.add(segment.number)

    def _sync(self) -> None:
        """Waits until all segments, and their names, are on the disk."""
        try:
            for number in sorted(self._unsynced):
                self.core.sync_segment(number)
            sync(self._commits.folder / SEGMENTS)
        except OSError:
            self._failed = True  # the system may have dropped what it could not write
            raise
        self._unsynced.clear()

    # ---- space of dead rows --------------------------------------------------------

    def _compact(self) -> None:
        """Moves the live rows out of segments that are mostly dead, or small."""
        for number, live in self._victims():
            if self._bound is not None:
                needed = live * self._bytes + 2 * self._frame
                if self._used() + needed > self._bound:
                    continue
            try:
                self._move(self.core.live_keys(number))
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                return  # every row is still where it was, or moved: nothing is lost

    def _victims(self) -> list[tuple[int, int]]:
        """Numbers and live rows of segments; those that free most come first."""
        usage = [each for each in self.core.usage() if each[4] and each[3] > 0]
        small = [each for each in usage if each[1] * _SMALL < self._segment]
        chosen = small if len(small) > _MOST_SMALL else []
        chosen += [
            each for each in usage if 2 * each[3] < each[2] and each not in chosen
        ]
        chosen.sort(key=lambda each: each[3] * self._bytes - each[1])
        return [(number, live) for number, _, _, live, _ in chosen]

    def _move(self, keys: np.ndarray) -> None:
        at_once = max(1, _MOVED_AT_ONCE // self._bytes)
        for begin in range(0, len(keys), at_once):
            some = keys[begin : begin + at_once]
            packed = np.empty((len(some), self._row_bytes), np.uint8)
            self.core.get(some, np.empty(len(some), bool), packed)
            self._append(some, packed)
            self.moved += len(some)
