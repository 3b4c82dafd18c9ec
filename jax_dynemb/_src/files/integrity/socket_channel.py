# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Carries a publication over TCP: its publisher serves a folder to subscribers.

A subscriber sends requests, and each connection has a thread that answers as fast as
that subscriber reads, so a slow one delays no other. It requests the next segment by
its number. Where that was removed as an old one, it begins from a snapshot.

A request is a JSON object behind four bytes with its length. So is an answer, which may
name files with their sizes; their bytes follow.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import threading
import weakref
from pathlib import Path
from typing import Any, BinaryIO

from .channel import FolderChannel, RemoteChannel, files_of, new_file
from .errors import DamagedFileError
from .json import parse_json
from .publication import PUBLICATION, Part, part_of, part_path, read_part

_MOST_BYTES = 1 << 26  # of a JSON object
_PIECE = 1 << 20


_ONLY_READS = "Socket is for subscribers: give the publisher a Listener."


class Listener(FolderChannel):
    """Serves a publication in a folder of the publisher over TCP.

    Segments behind the oldest snapshot wait in the folder, so what waits for a slow
    subscriber is bounded by ``keep`` of the publisher. A new process that is given the
    folder continues the publication.

    Anyone who reaches the port reads the tables: keep it inside of a trusted network.

    Args:
      folder: on a local disk; made if it is not there.
      address: "host:port" to listen on; ":7000" is port 7000 of all interfaces.
      timeout: seconds until a subscriber that reads nothing is hung up on.

    Example:
      >>> to = jde.serving.Listener("/data/published", ":7000")  # doctest: +SKIP
      >>> publisher = jde.serving.Publisher(coll, to=to)  # doctest: +SKIP
    """

    def __init__(
        self, folder: str | os.PathLike[str], address: str, *, timeout: float = 60.0
    ):
        """Makes the object; the publisher makes it listen."""
        super().__init__(Path(folder))
        self._address, self._timeout = host_and_port(address), timeout
        self._socket: socket.socket | None = None
        self._served: set[socket.socket] = set()
        self._changing = threading.Lock()

    def take(self) -> None:
        """Takes the lease of the folder, and listens."""
        super().take()
        host, port = self._address
        try:
            self._socket = socket.create_server((host, port), backlog=128)
        except OSError as error:
            super().close()
            raise RuntimeError(
                f"Nothing can listen on {host or 'all interfaces'}, port {port} "
                f"({error}): end the program that does, or choose another port."
            ) from error
        self._address = host, self._socket.getsockname()[1]
        threading.Thread(
            target=self._accept,
            args=(self._socket,),
            name="publisher.listener",
            daemon=True,
        ).start()

    @property
    def port(self) -> int:
        """Returns the port, also where 0 let the system choose one."""
        return self._address[1]

    @property
    def subscribers(self) -> int:
        """Returns how many are connected."""
        return len(self._served)

    def close(self) -> None:
        """Hangs up and lets go of the folder; may be called twice."""
        if self._socket is not None:
            with contextlib.suppress(OSError):  # it ends accept, which close does not
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()
            self._socket = None
        with self._changing:
            for each in self._served:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
        super().close()

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:  # closed
                return
            threading.Thread(
                target=self._serve,
                args=(connection,),
                name="publisher.connection",
                daemon=True,
            ).start()

    def _serve(self, connection: socket.socket) -> None:
        with self._changing:
            self._served.add(connection)
        try:
            with connection:
                connection.settimeout(self._timeout)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while (request := _received(connection, patient=True)) is not None:
                    self._answer(connection, request)
        except (OSError, ValueError, KeyError, TypeError):
            pass  # the subscriber went, or is none: it may connect again
        finally:
            with self._changing:
                self._served.discard(connection)

    def _answer(self, connection: socket.socket, request: dict[str, Any]) -> None:
        """Answers one request."""
        kind = {"snapshot": "snapshot", "segment": "segment"}[request["kind"]]
        if request["want"] == "numbers":
            _send(connection, {"numbers": self.numbers(kind)})
            return
        path = part_path(self.folder, kind, int(request["number"]))
        if request["want"] == "look":
            try:
                said = (path / PUBLICATION).read_text()
            except FileNotFoundError:
                _send(connection, {"missing": True})
                return
            _send(connection, {"said": said})
            return
        with contextlib.ExitStack() as opened:
            try:
                # All open before one is sent: then it no longer matters if they go.
                files = _opened(opened, read_part(path))
            except (FileNotFoundError, DamagedFileError):
                _send(connection, {"missing": True})
                return
            sizes = {n: os.fstat(file.fileno()).st_size for n, file in files.items()}
            _send(connection, {"files": sizes})
            for file in files.values():
                connection.sendfile(file)


class Socket(RemoteChannel):
    """Reads a publication from the ``Listener`` of its publisher.

    Args:
      address: "host:port" of the listener.
      timeout: seconds without a byte after which the publisher is away.
      folder: where copies of parts lie on this machine; None: in a temporary one.

    Example:
      >>> source = jde.serving.Socket("trainer:7000")  # doctest: +SKIP
      >>> served = jde.serving.Subscriber(source, coll)  # doctest: +SKIP
    """

    def __init__(
        self,
        address: str,
        *,
        timeout: float = 30.0,
        folder: str | os.PathLike[str] | None = None,
    ):
        """Makes the object; the first request connects."""
        super().__init__(folder)
        self._address, self._timeout = host_and_port(address), timeout
        self._connection: socket.socket | None = None

    def __str__(self) -> str:
        """Names it in messages."""
        host, port = self._address
        return f"the publisher at {host}:{port}"

    def numbers(self, kind: str) -> list[int]:
        """Lists the numbers of the parts that are there, ascending."""
        return list(self._ask({"want": "numbers", "kind": kind})["numbers"])

    def look(self, kind: str, number: int) -> Part:
        """Returns what a part says of itself, without its files."""
        answer = self._ask({"want": "look", "kind": kind, "number": number})
        path = part_path(self.folder, kind, number)
        return part_of(path, parse_json(path / PUBLICATION, answer["said"]))

    def take(self) -> None:
        """Raises TypeError: a publisher takes a ``Listener``."""
        raise TypeError(_ONLY_READS)

    def close(self) -> None:
        """Hangs up; may be called twice."""
        self._hang_up()
        super().close()

    def _upload(self, part: Part, before: str | None) -> None:
        raise TypeError(_ONLY_READS)

    def _download(self, kind: str, number: int, draft: Path) -> None:
        answer = self._ask({"want": "files", "kind": kind, "number": number})
        assert self._connection is not None
        with self._reached():
            for name, size in answer["files"].items():
                with new_file(draft, name, self).open("wb") as file:
                    _receive_file(self._connection, file, size)

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._reached():
            try:
                answer = self._answer(request)
            except OSError:
                if self._connection is None:  # it is away
                    raise
                self._hang_up()  # it may have come back since
                answer = self._answer(request)
        if "missing" in answer:
            raise FileNotFoundError(
                f"{self} has no {request['kind']} {request['number']}."
            )
        return answer

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if self._connection is None:
            connection = socket.create_connection(self._address, self._timeout)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            weakref.finalize(self, connection.close)
            self._connection = connection
        _send(self._connection, request)
        answer = _received(self._connection)
        if answer is None:
            raise ConnectionError("it hung up")
        return answer

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @contextlib.contextmanager
    def _reached(self) -> Any:
        """Raises ConnectionError where the publisher is away, and hangs up."""
        try:
            yield
        except (OSError, ValueError) as error:
            self._hang_up()
            raise ConnectionError(f"{self} is away: {error}") from error


def host_and_port(address: str) -> tuple[str, int]:
    """Returns host and port of "host:port"; ValueError if it is none."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{address!r} is no address: write 'host:port'.")
    return host.strip("[]"), int(port)


def _opened(opened: contextlib.ExitStack, part: Part) -> dict[str, BinaryIO]:
    return {
        name: opened.enter_context(path.open("rb"))
        for name, path in files_of(part).items()
    }


def _send(connection: socket.socket, said: dict[str, Any]) -> None:
    text = json.dumps(said).encode()
    connection.sendall(struct.pack("!I", len(text)) + text)


def _received(
    connection: socket.socket, patient: bool = False
) -> dict[str, Any] | None:
    """Returns an object; None if the other side has hung up between two."""
    begin = b""
    while len(begin) < 4:
        try:
            some = connection.recv(4 - len(begin))
        except TimeoutError:
            if patient and not begin:  # a subscriber may ask when it wants
                continue
            raise
        if not some:
            if begin:
                raise ConnectionError("it hung up within an object")
            return None
        begin += some
    (size,) = struct.unpack("!I", begin)
    if size > _MOST_BYTES:
        raise ValueError(f"an object of {size} bytes")
    said = json.loads(_exactly(connection, size))
    if not isinstance(said, dict):
        raise ValueError("its JSON is no object")
    return said


def _exactly(connection: socket.socket, size: int) -> bytes:
    text = bytearray()
    while len(text) < size:
        some = connection.recv(min(_PIECE, size - len(text)))
        if not some:
            raise ConnectionError("it hung up within an object")
        text += some
    return bytes(text)


def _receive_file(connection: socket.socket, file: BinaryIO, size: int) -> None:
    buffer = memoryview(bytearray(min(_PIECE, size)))
    while size > 0:
        count = connection.recv_into(buffer[: min(len(buffer), size)])
        if not count:
            raise ConnectionError("it hung up within a file")
        file.write(buffer[:count])
        size -= count
