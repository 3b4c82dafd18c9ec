# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A store in a RocksDB database."""

from __future__ import annotations

import importlib
import itertools
import json
from os import PathLike
from typing import Any

import numpy as np

from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.stores.history import History
from jax_dynemb._src.stores.key_values import KeyValueStore
from jax_dynemb._src.stores.layout import Layout
from jax_dynemb._src.stores.values import keys_of, values_of

_AT_ONCE = 1 << 14


class RocksDB(KeyValueStore):
    """Keeps rows in a RocksDB database, for programs that have one already.

    A row is one value. Beside the rows the database keeps those of the last ``keep``
    commits that have changed since, so that ``open`` goes back exactly. After a crash
    each row is whole, and those of the last commit are there. ``Log`` is faster.

    Keys of one run have its epoch. A run that starts from scratch takes another
    one, and its rows never mix with those of the run before.

    Needs ``pip install 'jax-dynemb[rocksdb]'``.

    Args:
      path: of the database, which one process has open at a time.
      table: whose rows it keeps: a ``TableConfig`` or a ``Layout``. None: the one that
        wrote there.
      name: of the rows in the database; the table's name if None.
      epoch: of the run.
      keep: how many commits stay that ``open`` can go back to. 0 keeps no older rows:
        for rows that are only published.

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
        keep: int = 4,
    ):
        super().__init__(str(path), table, name, epoch, keep)
        self._module = _module()
        self._db = self._module.Rdict(str(path), self._module.Options(raw_mode=True))
        self._closed = False
        self._number: int | None = None  # of the last commit, once it is known
        try:
            self._expect_layout(self._db.get(self._about))
        except BaseException:
            self._db.close()
            raise
        self._db[self._about] = json.dumps(self._layout.to_json()).encode()

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
        return self._events() | {"disk_bytes": size or 0}

    def close(self) -> None:
        """Closes the database, so that another process can open it."""
        if not self._closed:
            self._db.close()
        self._closed = True

    def _read_values(self, names: list[bytes]) -> list[bytes | None]:
        return self._db.get(names) if names else []

    def _put_rows(self, names: list[bytes], rows: np.ndarray, step: int) -> None:
        """Writes rows and older values in one batch, so both are there or none."""
        batch = self._module.WriteBatch(raw_mode=True)
        self._keep_older(batch, list(set(names)))
        values = values_of(names, rows, step, self._mark)
        for name, value in zip(names, values, strict=True):
            batch.put(name, value)
        batch.put(self._now, self._said)
        self._db.write(batch)

    def _discard_rows(self, names: list[bytes]) -> int:
        values = self._read_values(names)
        there = [n for n, v in zip(names, values, strict=True) if v is not None]
        batch = self._module.WriteBatch(raw_mode=True)
        self._keep_older(batch, there)
        for name in there:
            batch.delete(name)
        batch.put(self._now, self._said)
        self._db.write(batch)
        return len(there)

    def _keep_older(self, batch: Any, names: list[bytes]) -> None:
        """Adds the values that the last commit has, unless its epoch has them."""
        if not self._number or not names:
            return
        mark = self._epoch(self._number)
        older = [mark + name[-8:] for name in names]
        kept = self._read_values(older)
        lacks = [i for i, value in enumerate(kept) if value is None]
        values = self._read_values([names[i] for i in lacks])
        for i, value in zip(lacks, values, strict=True):
            batch.put(older[i], value or b"")

    def _write_history(self, history: History) -> None:
        """Waits until all of it is on the disk."""
        batch = self._module.WriteBatch(raw_mode=True)
        batch.put(self._commits, history.to_bytes())
        batch.put(self._now, self._said)
        self._db.write(batch)
        self._db.flush_wal(True)
        self._number = history.number

    def _get_ready(self) -> None:
        super()._get_ready()
        if self._number is None:  # no other process writes there
            self._number = self._read_history().number

    def _check_place(self) -> None:
        """Does nothing: a database removes no row by itself."""

    def _restore_epoch(self, number: int) -> None:
        mark = self._epoch(number)
        found = self._db.items(from_key=mark)
        inside = itertools.takewhile(lambda item: item[0].startswith(mark), found)
        while some := list(itertools.islice(inside, _AT_ONCE)):
            batch = self._module.WriteBatch(raw_mode=True)
            for older, value in some:
                name = self._mark + older[-8:]
                if value:
                    batch.put(name, value)
                else:
                    batch.delete(name)
            self._db.write(batch)

    def _drop_epoch(self, number: int) -> None:
        self._db.delete_range(self._epoch(number), self._epoch(number + 1))

    def _epoch(self, number: int) -> bytes:
        return self._older + number.to_bytes(8, "big")


def _module() -> Any:
    try:
        return importlib.import_module("rocksdict")
    except ImportError as error:
        raise ImportError(
            "jde.stores.RocksDB needs rocksdict: pip install 'jax-dynemb[rocksdb]'"
        ) from error
