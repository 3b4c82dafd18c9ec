# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Carries a publication through a Redis server: a stream of parts, and their files."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .channel import (
    Heartbeat,
    HistoryLostError,
    RemoteChannel,
    files_of,
    new_file,
    owner_text,
    refused,
    taken,
)
from .json import parse_json
from .publication import PUBLICATION, Part, part_of, part_path

_CHUNK = 1 << 22  # bytes of one value
_PIPELINE = 8  # chunks on their way at a time
_DRAFT_SECONDS = 600  # how long a draft stays whose publisher was killed
_KINDS = {"segment": 1, "snapshot": 2}  # what an entry's id has behind the number

# A script is one step of the server: a part is there with its lease and its order
# checked, or not at all.
_COMMIT = """
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] then return 'taken' end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
local last = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)[1]
local token = ''
if last then
  for i = 1, #last[2], 2 do
    if last[2][i] == 'token' then token = last[2][i + 1] end
  end
  if last[1] == ARGV[3] and token == ARGV[4] then return 'ok' end
end
if ARGV[5] ~= 'any' and token ~= ARGV[5] then return 'lost' end
if redis.call('EXISTS', KEYS[3]) == 0 then return 'draft' end
local named = redis.pcall('XADD', KEYS[2], ARGV[3], 'token', ARGV[4], 'said', ARGV[6],
                          'files', ARGV[7], 'data', KEYS[4])
if type(named) == 'table' and named.err then return 'lost' end
redis.call('RENAME', KEYS[3], KEYS[4])
redis.call('PERSIST', KEYS[4])
return 'ok'
"""
_IDS = """
local found = {}
for _, entry in ipairs(redis.call('XRANGE', KEYS[1], '-', '+')) do
  found[#found + 1] = entry[1]
end
return found
"""
_BEAT = """
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""
_RELEASE = """
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
"""


class Redis(RemoteChannel):
    """Carries a publication through a Redis server, for publishers and subscribers.

    A stream names the parts in order, and a hash holds the files of each. A part
    appears in one step of the server, with the lease compared. Where the server lost
    parts, or all of them, the publisher begins again with a snapshot.

    Needs the package redis: ``pip install 'jax-dynemb[redis]'``. The server needs
    memory for ``keep`` snapshots and the segments behind them, and the policy
    ``noeviction``.

    Args:
      client: a URL such as "redis://localhost:6379/0", or a ``redis.Redis`` that does
        not decode responses.
      name: of the publication in the server.
      lease: seconds until another publisher may follow one that was killed.
      folder: where copies of parts lie on this machine; None: in a temporary one.

    Raises:
      ImportError: the package redis is not installed.
    """

    def __init__(
        self,
        client: Any,
        name: str,
        *,
        lease: float = 10.0,
        folder: str | os.PathLike[str] | None = None,
    ):
        """Makes the object; nothing is sent before a publisher or subscriber has it."""
        super().__init__(folder)
        if lease <= 0:
            raise ValueError(f"Redis: lease={lease!r} must be above 0 seconds.")
        self._client, self._errors = _connected(client)
        self._name, self._lease = name, lease
        # In one slot of a cluster, as scripts need it.
        self._stream, self._owner = f"{{{name}}}:parts", f"{{{name}}}:lease"
        self._said = owner_text(secrets.token_hex(16))
        self._draft = f"{{{name}}}:draft:{secrets.token_hex(16)}"
        self._beat: Heartbeat | None = None
        scripts = (_COMMIT, _IDS, _BEAT, _RELEASE)
        found = [self._client.register_script(script) for script in scripts]
        self._commit, self._ids, self._renew, self._release = found

    def __str__(self) -> str:
        """Names it in messages."""
        return f"Redis {self._name!r}"

    def numbers(self, kind: str) -> list[int]:
        """Lists the numbers of the parts that are there, ascending."""
        with self._reached():
            ids = [each.decode() for each in self._ids(keys=[self._stream])]
        parts = (each.split("-") for each in ids)
        return [int(number) for number, own in parts if int(own) == _KINDS[kind]]

    def look(self, kind: str, number: int) -> Part:
        """Returns what a part says of itself, without its files."""
        path = part_path(self.folder, kind, number)
        entry = self._entry(kind, number)
        return part_of(path, parse_json(path / PUBLICATION, entry[b"said"]))

    def take(self) -> None:
        """Waits for the lease of a publisher that was killed, but not for another."""
        until = time.monotonic() + 1.5 * self._lease
        milliseconds = max(1, int(1e3 * self._lease))
        while True:
            with self._reached():
                said = self._said
                if self._client.set(self._owner, said, nx=True, px=milliseconds):
                    break
                owner = self._client.get(self._owner) or b""
            if time.monotonic() > until:
                raise refused(self, owner.decode())
            time.sleep(min(0.1, self._lease / 10))
        self._owns = True
        self._beat = Heartbeat(self._lease / 3, self._renewed)

    def remove(self, kind: str, number: int) -> None:
        """Removes a part, if it is there."""
        super().remove(kind, number)
        with contextlib.suppress(FileNotFoundError):
            data = self._entry(kind, number)[b"data"]
            with self._reached(), self._client.pipeline(transaction=True) as both:
                both.xdel(self._stream, _id(kind, number))
                both.unlink(data)
                both.execute()

    def close(self) -> None:
        """Lets go of the lease; may be called twice."""
        if self._beat is not None:
            self._beat.stop()
            self._beat, self._owns = None, False
            with contextlib.suppress(ConnectionError), self._reached():
                self._release(keys=[self._owner], args=[self._said])
        super().close()

    # ---- parts -------------------------------------------------------------------

    def _entry(self, kind: str, number: int) -> dict[bytes, bytes]:
        own = _id(kind, number)
        with self._reached():
            found = self._client.xrange(self._stream, own, own)
        if not found:
            raise FileNotFoundError(f"{self} has no {kind} {number}.")
        return found[0][1]

    def _download(self, kind: str, number: int, draft: Path) -> None:
        entry = self._entry(kind, number)
        for name, count in json.loads(entry[b"files"]).items():
            with new_file(draft, name, self).open("wb") as file:
                for chunk in self._chunks(entry[b"data"], name, count):
                    file.write(chunk)

    def _chunks(self, data: bytes, name: str, count: int) -> Iterator[bytes]:
        for begin in range(0, count, _PIPELINE):
            some = range(begin, min(count, begin + _PIPELINE))
            with self._reached():
                chunks = self._client.hmget(data, [f"{name}:{n}" for n in some])
            if None in chunks:
                raise FileNotFoundError(f"{self}: {data.decode()} was removed.")
            yield from chunks

    def _upload(self, part: Part, before: str | None) -> None:
        kind = "snapshot" if part.is_snapshot else "segment"
        with self._reached():
            counts = self._send(part)
            data = f"{{{self._name}}}:data:{kind}:{part.number}:{part.token}"
            answer = self._commit(
                keys=[self._owner, self._stream, self._draft, data],
                args=[
                    self._said,
                    max(1, int(1e3 * self._lease)),
                    _id(kind, part.number),
                    part.token,
                    "any" if before is None else before,
                    (part.path / PUBLICATION).read_bytes(),
                    json.dumps(counts),
                ],
            )
        if answer == b"taken":
            raise taken(self)
        if answer == b"draft":
            raise ConnectionError(f"{self} lost a part while it was sent.")
        if answer != b"ok":
            raise HistoryLostError(f"{self} does not end where it was left.")

    def _send(self, part: Part) -> dict[str, int]:
        """Sends a draft; returns by file how many chunks it has."""
        counts = {}
        self._client.unlink(self._draft)
        with self._client.pipeline(transaction=False) as commands:
            for name, path in files_of(part).items():
                counts[name] = 0
                with path.open("rb") as file:
                    while chunk := file.read(_CHUNK):
                        commands.hset(self._draft, f"{name}:{counts[name]}", chunk)
                        counts[name] += 1
                        if len(commands) >= _PIPELINE:
                            commands.expire(self._draft, _DRAFT_SECONDS)
                            commands.execute()
            commands.expire(self._draft, _DRAFT_SECONDS)
            commands.execute()
        return counts

    def _renewed(self) -> bool:
        milliseconds = max(1, int(1e3 * self._lease))
        with self._reached():
            return bool(
                self._renew(keys=[self._owner], args=[self._said, milliseconds])
            )

    @contextlib.contextmanager
    def _reached(self) -> Iterator[None]:
        """Raises ConnectionError where the server is away."""
        try:
            yield
        except self._errors as error:
            raise ConnectionError(f"{self} is away: {error}") from error


def _id(kind: str, number: int) -> str:
    return f"{number}-{_KINDS[kind]}"


def _connected(client: Any) -> tuple[Any, tuple[type[Exception], ...]]:
    """Returns a client, and the errors of a server that is away or not ready."""
    try:
        redis = importlib.import_module("redis")
    except ImportError as error:
        raise ImportError(
            "A publication in Redis needs redis: pip install 'jax-dynemb[redis]'"
        ) from error
    errors = redis.exceptions
    away = (errors.ConnectionError, errors.TimeoutError, errors.ReadOnlyError, OSError)
    if not isinstance(client, str):
        if client.connection_pool.connection_kwargs.get("decode_responses"):
            raise ValueError(
                "The client decodes responses, but files are bytes: make the "
                "redis.Redis without decode_responses."
            )
        return client, away
    return redis.Redis.from_url(client, socket_timeout=30), away
