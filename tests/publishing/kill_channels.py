# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Both ends of each channel, for processes that know a folder and nothing else."""

import os
import secrets
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

import jax_dynemb as jde

KINDS = ("folder", "socket", "redis", "bucket")
_LEASE = 0.1  # seconds for which a publisher waits for one that was killed


class ObjectFiles(LocalFileSystem):
    """A bucket in a directory: an object is there whole or not at all.

    Files of a local file system would be half written by a process that is killed.
    """

    protocol = "objects"

    @classmethod
    def _strip_protocol(cls, path: Any) -> str:
        return super()._strip_protocol(str(path).removeprefix("objects://"))

    def pipe_file(self, path, value, mode="overwrite", **_):
        draft = self._draft()
        draft.write_bytes(value)
        self._show(draft, path, mode)

    def put_file(self, path1, path2, callback=None, mode="overwrite", **_):
        draft = self._draft()
        shutil.copyfile(path1, draft)
        self._show(draft, path2, mode)

    def _draft(self) -> Path:
        return Path(os.environ["KILL_SERVING_DRAFTS"]) / secrets.token_hex(8)

    def _show(self, draft: Path, path: Any, mode: str) -> None:
        target = self._strip_protocol(path)
        if mode == "create":
            os.link(draft, target)  # FileExistsError if it is there
            draft.unlink()
        else:
            os.replace(draft, target)


fsspec.register_implementation("objects", ObjectFiles, clobber=True)


class Server:
    """A Redis server that saves each second."""

    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir()
        self.start()

    def start(self) -> None:
        """Starts it with what it saved."""
        program = shutil.which("redis-server")
        assert program is not None
        arguments = ["--port", "0", "--unixsocket", str(self.folder / "s")]
        arguments += ["--save", "1 1", "--dir", str(self.folder)]
        self.process = subprocess.Popen(
            [program, *arguments], stdout=subprocess.DEVNULL
        )

    def kill(self) -> None:
        """Ends it at once."""
        self.process.kill()
        self.process.wait()


def prepare(folder: Path, kind: str) -> Server | None:
    """Says in a file where the channel is; starts a server for Redis."""
    where = "-"
    if kind == "redis":
        where = f"unix://{folder / 'server' / 's'}"
    elif kind == "socket":
        with socket.create_server(("127.0.0.1", 0)) as some:
            where = f"127.0.0.1:{some.getsockname()[1]}"
    elif kind == "bucket":
        drafts = folder / "drafts"
        drafts.mkdir()
        os.environ["KILL_SERVING_DRAFTS"] = str(drafts)
        where = f"objects://{folder / 'bucket'}"
    (folder / "channel").write_text(f"{kind} {where}")
    return Server(folder / "server") if kind == "redis" else None


def writer_of(folder: Path) -> Any:
    """Where a trainer publishes."""
    kind, where = (folder / "channel").read_text().split()
    if kind == "socket":
        return jde.serving.Listener(folder / "out", where)
    return _either(folder, kind, where, jde.serving)


def reader_of(folder: Path, package: Any = jde.serving) -> Any:
    """Where a reader reads, as a channel of a package."""
    kind, where = (folder / "channel").read_text().split()
    if kind == "socket":
        return package.Socket(where)
    return _either(folder, kind, where, package)


def _either(folder: Path, kind: str, where: str, package: Any) -> Any:
    if kind == "redis":
        return package.Redis(where, "p", lease=_LEASE)
    if kind == "bucket":
        return package.Bucket(where, lease=_LEASE)
    return folder / "out"


def reached(call: Any) -> Any:
    """Calls again while the channel is away."""
    while True:
        try:
            return call()
        except ConnectionError:
            time.sleep(0.01)
