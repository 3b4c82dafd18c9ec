# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A store in the memory of the process."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.rows import Identity
from jax_dynemb._src.stores.layout import Layout
from jax_dynemb._src.stores.store import as_keys, as_rows, as_signed, as_tag


class Memory:
    """Keeps rows in a dict, for tests and small tables. It ends with the process.

    A commit copies the dict, without the rows, and ``open`` goes back to it exactly.

    Args:
      table: whose rows it keeps: a ``TableConfig`` or a ``Layout``.

    Attributes:
      identity: of which table and moment the rows are, see ``Identified``.
    """

    def __init__(self, table: TableConfig | Layout):
        self._layout = Layout.of(table)
        self._lock = threading.Lock()
        self._rows: dict[int, np.ndarray] = {}
        self.identity: Identity | None = None
        self._commits: dict[str, tuple[Identity | None, dict[int, np.ndarray]]] = {}

    @property
    def layout(self) -> Layout:
        """How rows lie in bytes."""
        return self._layout

    @property
    def goes_back(self) -> bool:
        """Whether ``open`` brings the rows of a commit back: it does."""
        return True

    def get(self, keys: Any) -> tuple[np.ndarray, np.ndarray]:
        """Reads rows, see ``Store.get``."""
        wanted = as_keys(keys)
        found = np.zeros(len(wanted), bool)
        packed = np.zeros((len(wanted), self._layout.row_bytes), np.uint8)
        with self._lock:
            for i, key in enumerate(wanted.tolist()):
                row = self._rows.get(key)
                if row is not None:
                    found[i], packed[i] = True, row
        return found, packed

    def put(self, keys: Any, packed: np.ndarray, step: int = 0) -> np.ndarray:
        """Writes rows, see ``Store.put``."""
        given = as_keys(keys)
        rows = as_rows(packed, len(given), self._layout).copy()
        with self._lock:
            self._rows.update(zip(given.tolist(), rows, strict=True))
        return np.ones(len(given), bool)

    def discard(self, keys: Any) -> int:
        """Removes rows; returns how many there were."""
        with self._lock:
            before = len(self._rows)
            for key in as_keys(keys).tolist():
                self._rows.pop(key, None)
            return before - len(self._rows)

    def commit(self, tag: str, step: int | None = None) -> None:
        """Remembers the rows as they are now, under a name."""
        with self._lock:
            self._commits.pop(as_tag(tag), None)
            self._commits[tag] = self.identity, dict(self._rows)

    def open(self, tag: str | None = None) -> None:
        """Goes back to a commit; to the last one if ``tag`` is None.

        Raises:
          FileNotFoundError: there is no such commit.
        """
        with self._lock:
            wanted = next(reversed(self._commits), None) if tag is None else tag
            if wanted not in self._commits:
                known = ", ".join(self._commits) or "none yet"
                raise FileNotFoundError(f"no commit {tag!r}; there are: {known}")
            self.identity, rows = self._commits[wanted]
            self._rows = dict(rows)

    def identity_at(self, tag: str) -> Identity | None:
        """Says of which table and moment the rows of a commit are, if it is known."""
        with self._lock:
            return self._commits[tag][0] if tag in self._commits else None

    def keys(self) -> np.ndarray:
        """Lists the keys that have a row: int64[n]."""
        with self._lock:
            return as_signed(np.fromiter(self._rows, np.uint64, len(self._rows)))

    def stats(self) -> dict[str, Any]:
        """Counts rows, their bytes and commits."""
        with self._lock:
            size = len(self._rows) * self._layout.row_bytes
            return {
                "rows": len(self._rows),
                "bytes": size,
                "commits": len(self._commits),
                "refused": 0,
            }
