# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A store in a Redis server, which several programs share."""

from __future__ import annotations

import importlib
import json
from typing import Any

import numpy as np

from jax_dynemb.config import TableConfig
from jax_dynemb.stores._key_values import KeyValueStore
from jax_dynemb.stores._layout import Layout
from jax_dynemb.stores._store import as_keys, as_rows, as_tag
from jax_dynemb.stores._values import keys_of, names_of, values_of


class Redis(KeyValueStore):
    """Keeps rows in a Redis server: training writes, other programs read.

    A row is one value, so readers see whole rows. They see a put at once: ``commit``
    writes only a name, and ``open`` does not bring older rows back. What a crash of the
    server leaves is a matter of its configuration (appendonly, appendfsync).

    Keys of one run have its epoch. A run that starts from scratch takes another
    one, and its rows never mix with those of the run before.

    Needs ``pip install 'jax-dynemb[redis]'``.

    Args:
      client: a URL such as "redis://localhost:6379/0", or a ``redis.Redis`` that does
        not decode responses.
      table: whose rows it keeps: a ``TableConfig`` or a ``Layout``. None: the one that
        wrote there.
      name: of the rows in the server; the table's name if None.
      epoch: of the run.
      batch: keys of one command. Others wait that long.

    Raises:
      ImportError: the package redis is not installed.
      ValueError: the server keeps rows of another table under that name.
    """

    def __init__(
        self,
        client: Any,
        table: TableConfig | Layout | None = None,
        *,
        name: str | None = None,
        epoch: int | str = 0,
        batch: int = 4096,
    ):
        super().__init__("Redis", table, name, epoch)
        if batch < 1:
            raise ValueError(f"batch must be at least 1, not {batch}")
        self._client = _connect(client)
        self._batch = batch
        stored = self._client.get(self._about)
        self._expect_layout(stored)
        if stored is None:
            about = json.dumps(self._layout.to_json())
            if not self._client.set(self._about, about, nx=True):  # another was first
                other = Layout.from_json(json.loads(self._client.get(self._about)))
                self._layout.check_same_table(other, self._where)

    def _read_values(self, names: list[bytes]) -> list[bytes | None]:
        values: list[bytes | None] = []
        for begin in range(0, len(names), self._batch):
            values += self._client.mget(names[begin : begin + self._batch])
        return values

    def put(self, keys: Any, packed: np.ndarray, step: int = 0) -> np.ndarray:
        """Writes rows, see ``Store.put``. Readers see them at once."""
        given = as_keys(keys)
        rows = as_rows(packed, len(given), self._layout)
        names = names_of(given, self._mark)
        for begin in range(0, len(names), self._batch):
            part = slice(begin, begin + self._batch)
            values = values_of(names[part], rows[part], step, self._mark)
            self._client.mset(dict(zip(names[part], values, strict=True)))
        with self._lock:
            self._note_put(step, len(names))
        return np.ones(len(names), bool)

    def discard(self, keys: Any) -> int:
        """Removes rows; returns how many there were."""
        names, count = names_of(as_keys(keys), self._mark), 0
        for begin in range(0, len(names), self._batch):
            count += self._client.unlink(*names[begin : begin + self._batch])
        self._counts["discarded"] += count
        return count

    def commit(self, tag: str, step: int | None = None) -> None:
        """Names the rows as they are. Later puts change them all the same."""
        step = self._step if step is None else int(step)
        self._client.hset(self._tags, as_tag(tag), step)
        self._client.hset(self._tags, "", as_tag(tag))  # no tag is empty: the last one

    def open(self, tag: str | None = None) -> None:
        """Checks that a commit was made. Rows stay as they are.

        Raises:
          FileNotFoundError: there is no such commit.
        """
        tag = self.last_tag() if tag is None else as_tag(tag)
        if tag is not None and not self._client.hexists(self._tags, tag):
            known = sorted(name.decode() for name in self._client.hkeys(self._tags))
            raise FileNotFoundError(
                f"{self._where} has no commit {tag!r}; there are: "
                f"{', '.join(filter(None, known)) or 'none yet'}"
            )

    def last_tag(self) -> str | None:
        """Reads the name of the last commit; None before the first one."""
        found = self._client.hget(self._tags, "")
        return None if found is None else found.decode()

    def keys(self) -> np.ndarray:
        """Lists the keys that have a row: int64[n]. It scans the whole server."""
        pattern = self._mark.replace(b"%", b"[%]") + b"*"
        size = len(self._mark) + 8
        names = {n for n in self._client.scan_iter(pattern, 10_000) if len(n) == size}
        return keys_of(list(names))

    def stats(self) -> dict[str, Any]:
        """Counts the rows that this object ``put``, ``got``, ``missed``, ``discarded``.

        The server counts its memory: ``server_bytes`` of all that it keeps.
        """
        return self._events() | {
            "server_bytes": self._client.info("memory")["used_memory"],
            "tag": self.last_tag(),
        }


def _connect(client: Any) -> Any:
    if isinstance(client, str):
        try:
            redis = importlib.import_module("redis")
        except ImportError as error:
            raise ImportError(
                "jde.stores.Redis needs redis: pip install 'jax-dynemb[redis]'"
            ) from error
        return redis.Redis.from_url(client)
    if client.get_encoder().decode_responses:
        raise ValueError(
            "rows are bytes: make the client without decode_responses=True, or give "
            "its URL"
        )
    return client
