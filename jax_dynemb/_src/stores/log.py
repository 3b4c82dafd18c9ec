# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Defines the log as users call it."""

from __future__ import annotations

import threading
from collections import Counter
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.rows import Identity
from jax_dynemb._src.stores.commits import Commits
from jax_dynemb._src.stores.layout import Layout
from jax_dynemb._src.stores.store import as_keys, as_rows, as_signed, as_tag
from jax_dynemb._src.stores.writer import Writer

_VERIFIED_AT_ONCE = 1 << 14


class Log:
    """Keeps rows in a directory: append-only files, checksums, atomic commits.

    A process that is killed leaves the last commit; rows that were put later are gone.
    A commit waits until its bytes are on the disk. One ``Log`` may write to a
    directory, and others may read there at the same time with ``read_only=True``.

    Every row has a checksum that each ``get`` checks. Keys and places of all rows are
    in host memory, 19 to 25 bytes a row.

    Args:
      path: the directory; made if it does not exist.
      table: whose rows it keeps: a ``TableConfig`` or a ``Layout``. None: the one that
        its last commit was made for.
      tag: the commit to begin with; the last one if None.
      read_only: reads a commit beside a writer, see ``refresh``.
      segment_megabytes: of a file. Each is open all the time, so a log of more than
        256 GB needs larger ones, or a larger ``ulimit -n``.
      disk_gigabytes: most that the segments may take. Rows that have no room are
        refused and counted. One part in eight stays free, to move rows into.
      keep: how many commits stay that ``open`` can go back to.
      threads: that read; more than processors, since they wait for the disk.

    Raises:
      DamagedFileError: a file is not what was written, or the newest commit is gone.
      FileNotFoundError: there is no such commit.
      RuntimeError: another ``Log`` writes there.
      ValueError: the log keeps rows of another table, by name or by layout, or an
        argument is out of range.

    Example:
      >>> log = jde.stores.Log("rows/cat", coll.tables["cat"])  # doctest: +SKIP
      >>> stored = log.put(chunk.keys, log.layout.pack(chunk), step=100)
      >>> log.commit("step-100")
    """

    def __init__(
        self,
        path: str | PathLike[str],
        table: TableConfig | Layout | None = None,
        *,
        tag: str | None = None,
        read_only: bool = False,
        segment_megabytes: float = 256,
        disk_gigabytes: float | None = None,
        keep: int = 2,
        threads: int = 8,
    ):
        bound = None if disk_gigabytes is None else int(disk_gigabytes * 1e9)
        segment = int(segment_megabytes * 2**20)
        _check_arguments(segment, bound, keep, threads)
        if bound is not None:
            segment = min(segment, bound // 8)
        self._counts: Counter[str] = Counter()
        self._changing = threading.RLock()
        layout = None if table is None else Layout.of(table)
        folder = Path(path).expanduser().absolute()
        self._commits = Commits(folder, layout, threads, read_only)
        self._writer: Writer | None = None
        self._core: Any = None
        self._segment, self._bound, self._keep = segment, bound, keep
        self._closed = False
        try:
            self.open(tag)
        except BaseException:
            self.close()
            raise

    @property
    def layout(self) -> Layout:
        """How rows lie in bytes."""
        return self._commits.layout

    @property
    def identity(self) -> Identity | None:
        """Says of which table and moment the rows are, see ``Identified``."""
        return self._commits.identity

    @identity.setter
    def identity(self, identity: Identity | None) -> None:
        self._commits.identity = identity

    @property
    def goes_back(self) -> bool:
        """Whether ``open`` brings the rows of a commit back: it does."""
        return True

    def get(self, keys: Any) -> tuple[np.ndarray, np.ndarray]:
        """Reads rows with several threads, see ``Store.get``.

        Raises:
          DamagedFileError: naming the file and the bytes of a row whose checksum does
            not fit.
        """
        wanted = as_keys(keys)
        found = np.empty(len(wanted), bool)
        packed = np.empty((len(wanted), self.layout.row_bytes), np.uint8)
        self._open_core().get(wanted, found, packed)
        self._counts["got"] += (hits := int(found.sum()))
        self._counts["missed"] += len(wanted) - hits
        return found, packed

    def contains(self, keys: Any) -> np.ndarray:
        """Says which keys have a row, bool[n], from memory alone."""
        wanted = as_keys(keys)
        found = np.empty(len(wanted), bool)
        self._open_core().contains(wanted, found)
        return found

    def put(self, keys: Any, packed: np.ndarray, step: int = 0) -> np.ndarray:
        """Appends rows, see ``Store.put``; they last with the next ``commit``.

        Rows that ``disk_gigabytes`` has no room for are refused: False in the result,
        and counted as ``refused``. A commit frees the room of discarded and replaced
        rows, once no kept commit has them.
        """
        given = as_keys(keys)
        rows = as_rows(packed, len(given), self.layout)
        with self._changing:
            stored = self._writable().put(given, rows, int(step))
        self._counts["put"] += (count := int(stored.sum()))
        self._counts["refused"] += len(given) - count
        return stored

    def discard(self, keys: Any) -> int:
        """Removes rows; returns how many there were."""
        given = as_keys(keys)
        with self._changing:
            count = self._writable().core.discard(given)
        self._counts["discarded"] += count
        return count

    def commit(self, tag: str, step: int | None = None) -> None:
        """Writes everything to the disk, and a manifest that names it.

        Files of which less than half is live are rewritten first. Files that no kept
        commit names are removed.

        Args:
          tag: letters, digits, ".", "_" and "-"; a commit of that name is replaced.
          step: of the training; that of the last put if None.

        Raises:
          OSError: the disk is full or fails; the commit before remains. If data could
            not be written through, call ``open`` before you go on.
        """
        tag = as_tag(tag)
        with self._changing:
            self._writable().commit(tag, step, self._keep)

    def open(self, tag: str | None = None) -> None:
        """Goes back to a commit, exactly; what came later is forgotten.

        Commits that came after it stay until the next ``commit``.

        Args:
          tag: of the commit; the last one if None.

        Raises:
          DamagedFileError: a file is not what was written.
          FileNotFoundError: there is no such commit.
        """
        with self._changing:
            self._check_open()
            core = self._commits.load(tag)
            if not self._commits.read_only:
                self._writer = Writer(self._commits, core, self._segment, self._bound)
            self._core = core

    def refresh(self) -> bool:
        """Reads the last commit of the writer, if it is newer; for ``read_only``.

        Returns:
          Whether it was newer. The index is then read again: four seconds for ten
          million rows.
        """
        with self._changing:
            self._check_open()
            if not self._commits.read_only or not self._commits.has_newer():
                return False
            self._core = self._commits.load(None)
            return True

    def verify(self) -> int:
        """Reads every row and compares its checksum; returns how many there are.

        Raises:
          DamagedFileError: naming the file and the bytes.
        """
        core, count = self._open_core(), 0
        for number, *_ in core.usage():
            keys = core.live_keys(number)
            for begin in range(0, len(keys), _VERIFIED_AT_ONCE):
                some = keys[begin : begin + _VERIFIED_AT_ONCE]
                packed = np.empty((len(some), self.layout.row_bytes), np.uint8)
                core.get(some, np.empty(len(some), bool), packed)
            count += len(keys)
        return count

    def keys(self) -> np.ndarray:
        """Lists the keys that have a row: int64[n], in any order."""
        return as_signed(self._open_core().keys())

    def identity_at(self, tag: str) -> Identity | None:
        """Says of which table and moment the rows of a commit are, if it is known."""
        kept = self._commits.kept
        return next((each.identity for each in kept if each.tag == tag), None)

    def tags(self) -> list[str]:
        """Lists the commits that ``open`` can go back to, the first one first."""
        return self._commits.tags()

    def stats(self) -> dict[str, Any]:
        """Counts rows, bytes and events.

        Now: ``rows``, ``segments``, ``live_bytes`` of records, ``disk_bytes`` of files,
        ``index_bytes`` of memory, ``commits``, and ``tag`` and ``step`` of the last
        one. Since the log was opened: rows ``put``, ``got``, ``missed``, ``discarded``,
        ``refused`` for want of room, and ``moved`` to free space.
        """
        core = self._open_core()
        usage = core.usage()
        record = self.layout.row_bytes + 12
        events = ("put", "got", "missed", "discarded", "refused")
        writer = self._writer
        manifest = self._commits.manifest
        return {
            "rows": core.rows(),
            "segments": len(usage),
            "live_bytes": core.rows() * record,
            "disk_bytes": sum(each[1] for each in usage) + self._commits.idle_bytes,
            "index_bytes": core.index_bytes(),
            "commits": len(self._commits.kept),
            "tag": None if manifest is None else manifest.tag,
            "step": 0 if manifest is None else manifest.step,
            **{event: self._counts[event] for event in events},
            "moved": 0 if writer is None else writer.moved,
        }

    def close(self) -> None:
        """Lets another writer in. Rows since the last commit are gone."""
        with self._changing:
            self._closed = True
            self._writer = self._core = None
            self._commits.close()

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError("this Log is closed; make another one")

    def _open_core(self) -> Any:
        self._check_open()
        return self._core

    def _writable(self) -> Writer:
        self._check_open()
        if self._writer is None:
            raise ValueError("this Log is read_only; make one without read_only=True")
        return self._writer


def _check_arguments(segment: int, bound: int | None, keep: int, threads: int) -> None:
    if not 2**13 <= segment <= 2**34:
        raise ValueError("segment_megabytes must be between 1/128 and 16384")
    if bound is not None and bound < 2**16:
        raise ValueError("disk_gigabytes must be at least 0.0001, which is 100 KB")
    if keep < 1:
        raise ValueError(f"keep must be at least 1, not {keep}: open needs a commit")
    if not 1 <= threads <= 256:
        raise ValueError(f"threads must be between 1 and 256, not {threads}")
