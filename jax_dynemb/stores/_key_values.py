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

from jax_dynemb.config import TableConfig
from jax_dynemb.stores._layout import Layout
from jax_dynemb.stores._store import as_keys
from jax_dynemb.stores._values import expect_layout, mark_of, names_of, rows_of


class KeyValueStore(ABC):
    """Names rows by run and key, agrees on their layout, reads and counts them.

    A subclass connects, calls ``_expect_layout``, and reads and writes values.
    """

    _layout: Layout

    def __init__(
        self,
        place: str,
        table: TableConfig | Layout | None,
        name: str | None,
        epoch: int | str,
    ):
        self._given = None if table is None else Layout.of(table)
        if name is None:
            if self._given is None:
                raise ValueError("give name=..., or the table that it is of")
            name = self._given.schema.name
        self._where = f"{place}, {name!r} of epoch {epoch}"
        self._mark = mark_of("jde", str(name), str(epoch), "row")
        self._about = mark_of("jde", str(name), str(epoch), "about")
        self._tags = mark_of("jde", str(name), str(epoch), "commits")
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()  # of the step
        self._step = 0

    @property
    def layout(self) -> Layout:
        """How rows lie in bytes."""
        return self._layout

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

    @abstractmethod
    def _read_values(self, names: list[bytes]) -> Sequence[bytes | None]:
        """Reads the value of each name; None where there is none."""

    def _expect_layout(self, stored: bytes | None) -> None:
        """Takes the stored layout, or the given one; refuses two that differ."""
        there = None if stored is None else Layout.from_json(json.loads(stored))
        self._layout = expect_layout(there, self._given, self._where)

    def _note_put(self, step: int, rows: int) -> None:
        """Counts rows that were written; the lock is held."""
        self._step = max(self._step, int(step))
        self._counts["put"] += rows

    def _events(self) -> dict[str, Any]:
        """Counts what this object did; no row is ever refused."""
        events = ("put", "got", "missed", "discarded")
        return {event: self._counts[event] for event in events} | {"refused": 0}
