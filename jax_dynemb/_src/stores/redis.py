# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A store in a Redis server, which several programs share."""

from __future__ import annotations

import importlib
import itertools
import json
from typing import Any

import numpy as np

from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.stores.history import History
from jax_dynemb._src.stores.key_values import KeyValueStore
from jax_dynemb._src.stores.layout import Layout
from jax_dynemb._src.stores.values import keys_of, values_of

# Values that the last commit needs go into its epoch, a hash of the server. A script is
# one step of the server, so nothing of a row can be lost between two commands.
_EPOCH = """
local number = redis.call('GET', KEYS[1])
local older = number and ARGV[1] .. number
redis.call('SET', KEYS[2], ARGV[2])
"""
_PUT = (
    _EPOCH
    + """
for i = 3, #KEYS do
  if older then
    local key = string.sub(KEYS[i], -8)
    if redis.call('HEXISTS', older, key) == 0 then
      redis.call('HSET', older, key, redis.call('GET', KEYS[i]) or '')
    end
  end
  redis.call('SET', KEYS[i], ARGV[i])
end
"""
)
_DISCARD = (
    _EPOCH
    + """
local count = 0
for i = 3, #KEYS do
  local value = redis.call('GET', KEYS[i])
  if value then
    if older then redis.call('HSETNX', older, string.sub(KEYS[i], -8), value) end
    redis.call('UNLINK', KEYS[i])
    count = count + 1
  end
end
return count
"""
)


class Redis(KeyValueStore):
    """Keeps rows in a Redis server: training writes, other programs read.

    A row is one value, so readers see whole rows, and they see a put at once. Beside
    them the server keeps the rows of the last ``keep`` commits that have changed since,
    so that ``open`` goes back exactly. What a crash of the server leaves is a matter of
    its configuration (appendonly, appendfsync). It may be an earlier commit, never a
    mixture of two.

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
      keep: how many commits stay that ``open`` can go back to. 0 keeps no older rows:
        for rows that are only published.

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
        keep: int = 4,
    ):
        super().__init__("Redis", table, name, epoch, keep)
        if batch < 1:
            raise ValueError(f"batch must be at least 1, not {batch}")
        self._client = _connect(client)
        self._batch = batch
        self._put_script = self._client.register_script(_PUT)
        self._discard_script = self._client.register_script(_DISCARD)
        stored = self._client.get(self._about)
        self._expect_layout(stored)
        if stored is None:
            about = json.dumps(self._layout.to_json())
            if not self._client.set(self._about, about, nx=True):  # another was first
                other = Layout.from_json(json.loads(self._client.get(self._about)))
                self._layout.check_same_table(other, self._where)

    @property
    def place(self) -> tuple[Any, ...]:
        """Says where the rows lie: the same for every object of these rows."""
        options = self._client.connection_pool.connection_kwargs
        where = (options.get(name) for name in ("host", "port", "path", "db"))
        return (*where, self._mark)

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
        memory = self._client.info("memory")["used_memory"]
        return self._events() | {"server_bytes": memory}

    def _read_values(self, names: list[bytes]) -> list[bytes | None]:
        values: list[bytes | None] = []
        for begin in range(0, len(names), self._batch):
            values += self._client.mget(names[begin : begin + self._batch])
        return values

    def _put_rows(self, names: list[bytes], rows: np.ndarray, step: int) -> None:
        for begin in range(0, len(names), self._batch):
            part = slice(begin, begin + self._batch)
            values = values_of(names[part], rows[part], step, self._mark)
            if self._keep:
                where = [self._number, self._now, *names[part]]
                said = [self._older, self._said]
                self._put_script(keys=where, args=[*said, *values])
            else:
                there = dict(zip(names[part], values, strict=True))
                self._client.mset({self._now: self._said} | there)

    def _discard_rows(self, names: list[bytes]) -> int:
        count = 0
        for begin in range(0, len(names), self._batch):
            some = names[begin : begin + self._batch]
            where = [self._number, self._now, *some]
            said = [self._older, self._said]
            count += self._discard_script(keys=where, args=said)
        return count

    def _write_history(self, history: History) -> None:
        with self._client.pipeline(transaction=True) as both:
            both.set(self._commits, history.to_bytes())
            both.set(self._now, self._said)
            if history.number:
                both.set(self._number, history.number)
            else:
                both.unlink(self._number)
            both.execute()

    def _restore_epoch(self, number: int) -> None:
        found = self._client.hscan_iter(self._epoch(number), count=self._batch)
        while some := dict(itertools.islice(found, self._batch)):
            whole = {self._mark + key: value for key, value in some.items() if value}
            gone = [self._mark + key for key, value in some.items() if not value]
            with self._client.pipeline(transaction=False) as commands:
                if whole:
                    commands.mset(whole)
                if gone:
                    commands.unlink(*gone)
                commands.execute()

    def _drop_epoch(self, number: int) -> None:
        self._client.unlink(self._epoch(number))

    def _epoch(self, number: int) -> bytes:
        return self._older + str(number).encode()

    @property
    def _number(self) -> bytes:
        """Names the number of the last commit."""
        return self._older + b"number"

    def _check_place(self) -> None:
        """Refuses a server that removes rows once its memory is full."""
        try:
            memory = self._client.info("memory")
        except self._client_error:  # it may be forbidden
            return
        policy = memory.get("maxmemory_policy", "")
        if memory.get("maxmemory") and policy.startswith("allkeys"):
            raise RuntimeError(
                f"{self._where}: the server removes rows once its memory is full "
                f"(maxmemory-policy {policy}), and nothing would say so. Set "
                "maxmemory-policy noeviction in it."
            )

    @property
    def _client_error(self) -> type[Exception]:
        return importlib.import_module("redis").ResponseError


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
