# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Stores of every kind, and the Redis server of the tests."""

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import jax_dynemb as jde

DIM = 5


def table_config(**changes) -> jde.TableConfig:
    """A table with two optimizer states, one of them of one column."""
    fields = {
        "name": "cat",
        "dim": DIM,
        "capacity": 1000,
        "optimizer": jde.optim.partial_rowwise_adam(0.1),
    }
    return jde.TableConfig(**(fields | changes))


def random_rows(rng: np.random.Generator, count: int, store) -> np.ndarray:
    """Bytes of any kind: a store does not look into rows."""
    return rng.integers(0, 256, (count, store.layout.row_bytes), dtype=np.uint8)


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of its own, on a socket in the file system."""
    pytest.importorskip("redis", reason="needs pip install 'jax-dynemb[redis]'")
    server = shutil.which("redis-server")
    if server is None:
        pytest.skip("no redis-server is installed on this machine")
    folder = tmp_path_factory.mktemp("redis")
    socket = folder / "s"
    arguments = ["--port", "0", "--unixsocket", str(socket), "--save", ""]
    with subprocess.Popen(
        [server, *arguments, "--dir", str(folder)], stdout=subprocess.DEVNULL
    ) as process:
        end = time.monotonic() + 60
        while not socket.exists() and time.monotonic() < end:
            time.sleep(0.05)
        yield f"unix://{socket}"
        process.terminate()


@pytest.fixture(params=["Memory", "Log", "RocksDB", "Redis"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable]:
    """Makes stores of one kind; the same name is the same place."""
    opened = []

    def make(name: str = "a", **options):
        config = options.pop("table", table_config())
        if request.param == "Memory":
            return jde.stores.Memory(config)
        if request.param == "Log":
            place = tmp_path / name
            store = jde.stores.Log(place, config, segment_megabytes=1 / 64, **options)
        elif request.param == "RocksDB":
            pytest.importorskip("rocksdict", reason="needs rocksdict")
            store = jde.stores.RocksDB(tmp_path / name, config, **options)
        else:
            url = request.getfixturevalue("redis_url")
            store = jde.stores.Redis(
                url, config, name=f"{tmp_path}/{name}", batch=50, **options
            )
        opened.append(store)
        return store

    yield make
    for store in opened:
        close = getattr(store, "close", lambda: None)
        close()
