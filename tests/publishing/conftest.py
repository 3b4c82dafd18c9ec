# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Channels of each kind, and a Redis server that can be ended and started again."""

import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import jax_dynemb as jde
from publishing.training import tables


class RedisServer:
    """A server of its own, on a socket in the file system; it saves when told."""

    def __init__(self, folder: Path):
        self.program = shutil.which("redis-server")
        self.folder, self.socket = folder, folder / "s"
        self.process: subprocess.Popen | None = None

    @property
    def url(self) -> str:
        """Where it is."""
        return f"unix://{self.socket}"

    def start(self) -> None:
        """Starts it, with what was saved last."""
        assert self.program is not None
        arguments = ["--port", "0", "--unixsocket", str(self.socket), "--save", ""]
        self.process = subprocess.Popen(
            [self.program, *arguments, "--dir", str(self.folder)],
            stdout=subprocess.DEVNULL,
        )
        end = time.monotonic() + 60
        while not self._answers() and time.monotonic() < end:
            time.sleep(0.02)

    def kill(self) -> None:
        """Ends it at once; what was not saved is gone."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.socket.unlink(missing_ok=True)

    def save(self) -> None:
        """Saves what it has."""
        self._client().save()

    def _answers(self) -> bool:
        import redis

        try:
            return self._client().ping()
        except redis.exceptions.ConnectionError:
            return False

    def _client(self):
        import redis

        return redis.Redis.from_url(self.url)


@pytest.fixture
def redis_server(tmp_path_factory) -> Iterator[RedisServer]:
    pytest.importorskip("redis", reason="needs pip install 'jax-dynemb[redis]'")
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    if server.program is None:
        pytest.skip("no redis-server is installed on this machine")
    server.start()
    yield server
    server.kill()


class Channels:
    """Makes both ends of one channel."""

    def __init__(self, writer: Callable, reader: Callable):
        self.writer, self.reader = writer, reader

    def publisher(self, coll, **options):
        """A publisher of its own object."""
        return jde.serving.Publisher(coll, self.writer(), **options)

    def subscriber(self, **options):
        """A subscriber that follows when told."""
        return jde.serving.Subscriber(
            self.reader(), tables(), **{"interval": 0, **options}
        )


@pytest.fixture(params=["Redis", "Listener", "Bucket"])
def channels(request, tmp_path) -> Iterator[Channels]:
    """Both ends of a channel of each kind."""
    if request.param == "Redis":
        url = request.getfixturevalue("redis_server").url

        def make():
            return jde.serving.Redis(url, "p", lease=0.3)

        yield Channels(make, make)
    elif request.param == "Listener":
        folder, opened = tmp_path / "published", []

        def listen():
            port = opened[-1].port if opened else 0
            opened.append(jde.serving.Listener(folder, f"127.0.0.1:{port}"))
            return opened[-1]

        yield Channels(
            listen, lambda: jde.serving.Socket(f"127.0.0.1:{opened[-1].port}")
        )
    else:
        fsspec = pytest.importorskip(
            "fsspec", reason="needs pip install 'jax-dynemb[bucket]'"
        )
        url = f"memory://{tmp_path}"

        def make():
            return jde.serving.Bucket(url, lease=0.3)

        yield Channels(make, make)
        fsspec.filesystem("memory").rm(str(tmp_path), recursive=True)
