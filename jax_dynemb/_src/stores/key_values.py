# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Shares what stores have in common that keep each row as a value of a database."""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.files.integrity import DamagedFileError
from jax_dynemb._src.is_whole import is_whole
from jax_dynemb._src.rows import Identity
from jax_dynemb._src.stores.history import History
from jax_dynemb._src.stores.layout import Layout
from jax_dynemb._src.stores.store import as_keys, as_rows, as_tag
from jax_dynemb._src.stores.values import expect_layout, mark_of, names_of, rows_of


class KeyValueStore(ABC):
    """Names rows by run and key, agrees on their layout, reads, writes, commits.

    A subclass connects, calls ``_expect_layout``, and reads and writes values. The
    values that commits need lie in epochs, see ``History``. The identity of the rows
    is a value, which each change of rows writes again with them.

    Attributes:
      identity: of which table and moment the rows are, see ``Identified``.
    """

    identity: Identity | None

    _layout: Layout

    def __init__(
        self,
        place: str,
        table: TableConfig | Layout | None,
        name: str | None,
        epoch: int | str,
        keep: int,
    ):
        if not is_whole(keep) or keep < 0:
            raise ValueError(
                f"keep must be a whole number from 0 on, not {keep!r}: so many commits "
                "can be opened again. 0 keeps no older rows."
            )
        self._given = None if table is None else Layout.of(table)
        if name is None:
            if self._given is None:
                raise ValueError("give name=..., or the table that it is of")
            name = self._given.schema.name
        self._where = f"{place}, {name!r} of epoch {epoch}"
        self._keep = keep
        kinds = ("row", "about", "commits", "now", "older")
        self._mark, self._about, self._commits, self._now, self._older = (
            mark_of("jde", str(name), str(epoch), kind) for kind in kinds
        )
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()  # of what writes
        self._is_ready = False  # to write
        self._step = 0
        self.identity = None

    @property
    def layout(self) -> Layout:
        """How rows lie in bytes."""
        return self._layout

    @property
    def goes_back(self) -> bool:
        """Whether ``open`` brings the rows of a commit back."""
        return self._keep > 0

    def get(self, keys: Any) -> tuple[np.ndarray, np.ndarray]:
        """Reads rows, see ``Store.get``.

        Raises:
          DamagedFileError: a value is no row of this table.
        """
        names = names_of(as_keys(keys), self._mark)
        values = self._read_values(names)
        found, packed = rows_of(names, values, self._layout, self._mark, self._where)
        self._counts["got"] += (hits := int(found.sum()))
        self._counts["missed"] += len(names) - hits
        return found, packed

    def put(self, keys: Any, packed: np.ndarray, step: int = 0) -> np.ndarray:
        """Writes rows, see ``Store.put``. Readers see them at once.

        Raises:
          RuntimeError: the server may remove rows by itself.
        """
        given = as_keys(keys)
        rows = as_rows(packed, len(given), self._layout)
        names = names_of(given, self._mark)
        with self._lock:
            self._get_ready()
            self._put_rows(names, rows, step)
            self._step = max(self._step, int(step))
            self._counts["put"] += len(names)
        return np.ones(len(names), bool)

    def discard(self, keys: Any) -> int:
        """Removes rows; returns how many there were."""
        names = list(set(names_of(as_keys(keys), self._mark)))
        with self._lock:
            self._get_ready()
            count = self._discard_rows(names)
            self._counts["discarded"] += count
        return count

    def commit(self, tag: str, step: int | None = None) -> None:
        """Names the rows as they are, so that ``open`` finds them again.

        From now on the store keeps the value of each row before its first change.

        Args:
          tag: letters, digits, ".", "_" and "-"; a commit of that name is replaced.
          step: of the training; that of the last put if None.
        """
        tag = as_tag(tag)
        with self._lock:
            self._get_ready()
            before = self._read_history()
            step = self._step if step is None else int(step)
            after = before.with_commit(tag, step, self._keep, self.identity)
            self._is_ready = False  # until what follows is complete
            self._write_history(after)
            self._drop_unneeded(before, after.first)
            self._is_ready = True

    def open(self, tag: str | None = None) -> None:
        """Goes back to a commit, exactly; what came later is forgotten.

        It is the call of the one program that writes: later commits are gone. With
        ``keep=0`` it checks that the commit was made, and rows stay as they are.

        Args:
          tag: of the commit; the last one if None.

        Raises:
          DamagedFileError: a value is not what was written.
          FileNotFoundError: there is no such commit.
        """
        with self._lock:
            before = self._read_history()
            after = before.back_to(tag, self._keep, self._where)
            identity = after.identity if after.commits else self.identity
            self._is_ready = False
            if self._keep:
                self._write_history(after)
                self._go_back(after, identity)
            else:
                self.identity = identity
                self._write_history(before)

    def identity_at(self, tag: str) -> Identity | None:
        """Reads of which table and moment the rows of a commit are, if it is known."""
        commits = self._read_history().commits
        return next((each.identity for each in commits if each.tag == tag), None)

    def last_tag(self) -> str | None:
        """Reads the name of the last commit; None before the first one."""
        return self._read_history().tag

    @abstractmethod
    def _read_values(self, names: list[bytes]) -> Sequence[bytes | None]:
        """Reads the value of each name; None where there is none."""

    @abstractmethod
    def _put_rows(self, names: list[bytes], rows: np.ndarray, step: int) -> None:
        """Writes rows and ``_said``; what the last commit needs goes into its epoch."""

    @abstractmethod
    def _discard_rows(self, names: list[bytes]) -> int:
        """Removes rows, likewise; returns how many there were."""

    @abstractmethod
    def _write_history(self, history: History) -> None:
        """Replaces the history and ``_said``; what follows is of its last commit."""

    @abstractmethod
    def _restore_epoch(self, number: int) -> None:
        """Puts all values of an epoch back; they stay in the epoch."""

    @abstractmethod
    def _drop_epoch(self, number: int) -> None:
        """Removes an epoch, if it is there."""

    @abstractmethod
    def _check_place(self) -> None:
        """Raises where rows would not stay, before the first write."""

    def _read_history(self) -> History:
        (stored,) = self._read_values([self._commits])
        return History.from_bytes(stored, self._where)

    def _get_ready(self) -> None:
        """Ends what an earlier writer has begun, before the first write."""
        if self._is_ready:
            return
        self._check_place()
        history = self._read_history()
        if history.highest != history.number:
            self._go_back(history, self.identity)
        first = history.first
        if history.number and not self._keep:
            # What follows keeps no older values, so nothing can go back any more.
            first = history.number + 1
            self._write_history(History())
        self._drop_unneeded(history, first)
        self._is_ready = True

    def _go_back(self, history: History, identity: Identity | None) -> None:
        """Undoes what came after the last commit of a history.

        The values of older epochs are older ones, so they count. A process may die at
        any moment: the next one does the same once more.
        """
        epochs = range(history.highest, max(history.number, 1) - 1, -1)
        for number in epochs:
            self._restore_epoch(number)
        for number in epochs:
            self._drop_epoch(number)
        last = History(history.commits, history.lowest, history.number)
        self.identity = identity  # not before the rows are of it
        self._write_history(last)

    def _drop_unneeded(self, history: History, first: int) -> None:
        for number in range(history.lowest, first):
            self._drop_epoch(number)

    @property
    def _said(self) -> bytes:
        """The identity of the rows, as the value that is written with them."""
        known = self.identity
        return json.dumps(None if known is None else known.to_json()).encode()

    def _read_identity(self) -> Identity | None:
        """Reads of what rows are: while a store goes back, of its last commit."""
        history = self._read_history()
        if history.highest != history.number:
            return history.identity
        (stored,) = self._read_values([self._now])
        try:
            known = None if stored is None else json.loads(stored)
            return None if known is None else Identity.from_json(known)
        except ValueError as error:
            raise DamagedFileError(self._where, str(error)) from error

    def _expect_layout(self, stored: bytes | None) -> None:
        """Takes the stored layout, or the given one; refuses two that differ."""
        there = None if stored is None else Layout.from_json(json.loads(stored))
        self._layout = expect_layout(there, self._given, self._where)
        self.identity = self._read_identity()

    def _events(self) -> dict[str, Any]:
        """Counts what this object did, and commits; no row is ever refused."""
        events = ("put", "got", "missed", "discarded")
        history = self._read_history()
        return {event: self._counts[event] for event in events} | {
            "refused": 0,
            "commits": len(history.commits),
            "tag": history.tag,
        }
