# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A store in a RocksDB database."""

from __future__ import annotations

import importlib
import json
from os import PathLike
from typing import Any

import numpy as np

from jax_dynemb.config import TableConfig
from jax_dynemb.stores._key_values import KeyValueStore
from jax_dynemb.stores._layout import Layout
from jax_dynemb.stores._store import as_keys, as_rows, as_tag
from jax_dynemb.stores._values import keys_of, names_of, values_of


class RocksDB(KeyValueStore):
    """Keeps rows in a RocksDB database, for programs that have one already.

    A row is one value: after a crash each row is whole, and those of the last commit
    are there. Rows that were put later may be there too, and ``open`` does not bring
    older ones back. ``Log`` does, and is faster.

    Keys of one run have its epoch. A run that starts from scratch takes another
    one, and its rows never mix with those of the run before.

    Needs ``pip install 'jax-dynemb[rocksdb]'``.

    Args:
      path: of the database, which one process has open at a time.
      table: whose rows it keeps: a ``TableConfig`` or a ``Layout``. None: the one that
        wrote there.
      name: of the rows in the database; the table's name if None.
      epoch: of the run.

    Raises:
      ImportError: the package rocksdict is not installed.
      ValueError: the database keeps rows of another table under that name.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        table: TableConfig | Layout | None = None,
        *,
        name: str | None = None,
        epoch: int | str = 0,
    ):
        super().__init__(str(path), table, name, epoch)
        self._module = _module()
        self._db = self._module.Rdict(str(path), self._module.Options(raw_mode=True))
        self._closed = False
        try:
            self._expect_layout(self._db.get(self._about))
        except ValueError:
            self._db.close()
            raise
        self._db[self._about] = json.dumps(self._layout.to_json()).encode()

    def _read_values(self, names: list[bytes]) -> list[bytes | None]:
        return self._db.get(names) if names else []

    def put(self, keys: Any, packed: np.ndarray, step: int = 0) -> np.ndarray:
        """Writes rows in one batch, see ``Store.put``."""
        given = as_keys(keys)
        rows = as_rows(packed, len(given), self._layout)
        names = names_of(given, self._mark)
        batch = self._module.WriteBatch(raw_mode=True)
        for name, value in zip(
            names, values_of(names, rows, step, self._mark), strict=True
        ):
            batch.put(name, value)
        with self._lock:
            self._db.write(batch)
            self._note_put(step, len(names))
        return np.ones(len(names), bool)

    def discard(self, keys: Any) -> int:
        """Removes rows; returns how many there were."""
        names = list(set(names_of(as_keys(keys), self._mark)))
        with self._lock:
            values = self._read_values(names)
            there = [n for n, v in zip(names, values, strict=True) if v is not None]
            batch = self._module.WriteBatch(raw_mode=True)
            for name in there:
                batch.delete(name)
            self._db.write(batch)
            self._counts["discarded"] += len(there)
        return len(there)

    def commit(self, tag: str, step: int | None = None) -> None:
        """Waits until all rows are on the disk, and names them."""
        with self._lock:
            tags = self._read_tags()
            tags.pop(as_tag(tag), None)
            tags[tag] = self._step if step is None else int(step)
            self._db[self._tags] = json.dumps(tags).encode()
            self._db.flush_wal(True)

    def open(self, tag: str | None = None) -> None:
        """Checks that a commit was made. Rows stay as they are.

        Raises:
          FileNotFoundError: there is no such commit.
        """
        tags = self._read_tags()
        if tag is not None and tag not in tags:
            known = ", ".join(tags) or "none yet"
            raise FileNotFoundError(
                f"{self._where} has no commit {tag!r}; there are: {known}"
            )

    def keys(self) -> np.ndarray:
        """Lists the keys that have a row: int64[n]."""
        names = []
        for name in self._db.keys(from_key=self._mark):
            if not name.startswith(self._mark):
                break
            names.append(name)
        return keys_of(names)

    def stats(self) -> dict[str, Any]:
        """Counts the rows that this object ``put``, ``got``, ``missed``, ``discarded``.

        ``disk_bytes`` are the database's estimate.
        """
        size = self._db.property_int_value("rocksdb.total-sst-files-size")
        return self._events() | {
            "disk_bytes": size or 0,
            "tag": next(reversed(self._read_tags()), None),
        }

    def close(self) -> None:
        """Closes the database, so that another process can open it."""
        if not self._closed:
            self._db.close()
        self._closed = True

    def _read_tags(self) -> dict[str, int]:
        stored = self._db.get(self._tags)
        return {} if stored is None else json.loads(stored)


def _module() -> Any:
    try:
        return importlib.import_module("rocksdict")
    except ImportError as error:
        raise ImportError(
            "jde.stores.RocksDB needs rocksdict: pip install 'jax-dynemb[rocksdb]'"
        ) from error
