# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A Redis server that ends at any time, below a table that trains on."""

import contextlib
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde
from processes import NIGHTLY
from walks import BELOW, PLAIN, Walk, rows_in, rows_of

SAVED_EVERY, MOST_STEPS, IDS = 5, 15, 2000
OUTAGES = 100 if NIGHTLY else 5


@contextlib.contextmanager
def served(folder: Path) -> Iterator[subprocess.Popen]:
    """Runs a server that writes what it has answered to a file."""
    socket = folder / "s"
    arguments = ["--port", "0", "--unixsocket", str(socket), "--save", ""]
    files = ["--appendonly", "yes", "--dir", str(folder)]
    socket.unlink(missing_ok=True)
    with subprocess.Popen(
        ["redis-server", *arguments, *files], stdout=subprocess.DEVNULL
    ) as process:
        try:
            end = time.monotonic() + 60
            while not _answers(socket) and time.monotonic() < end:
                time.sleep(0.02)
            yield process
        finally:
            process.kill()


def _answers(socket: Path) -> bool:
    redis = pytest.importorskip("redis")
    try:
        return redis.Redis(unix_socket_path=str(socket)).ping()
    except redis.RedisError:  # it is not there yet, or reads its file
        return False


def batch(step: int) -> np.ndarray:
    """The ids of a step, however often it is trained."""
    return np.random.default_rng(step).integers(0, IDS, 40)


class Outages(Walk):
    """A walk that goes back to a checkpoint, with the table beside it."""

    def __init__(self, folder: Path):
        super().__init__(jde.stores.Memory(PLAIN), BELOW)
        self.folder = folder
        self.pace = 0.0  # seconds of the latest steps up to a save, with it
        self.kept = {0: jax.tree.map(jnp.copy, self.whole)}

    def resume(self) -> None:
        """Compares all rows of the latest checkpoint with the table beside it."""
        place = f"unix://{self.folder / 's'}"
        self.stores = {"cat": jde.stores.Redis(place, PLAIN, batch=7)}
        path, fresh = self.folder / "checkpoints", self.coll.init(3)
        if jde.checkpoint.latest(path) is None:
            self.stores["cat"].discard(self.stores["cat"].keys())
            self.state, self.steps = fresh, 0
        else:
            back = jde.checkpoint.restore(
                path, fresh, tables=self.coll, stores=self.stores
            )
            self.state, self.steps = back.tree, back.step
        self.whole = jax.tree.map(jnp.copy, self.kept[self.steps])
        above, below = rows_of(self.coll, self.state), rows_in(self.stores["cat"])
        assert not above.keys() & below.keys()
        assert above | below == rows_of(self.plain, self.whole)

    def train(self, steps: int, away: Callable[[], None] | None = None) -> None:
        """Trains and saves; the server goes away soon after so many steps."""
        begin, end = self.steps, self.steps + steps + 2 * SAVED_EVERY
        with self.prefetcher(map(batch, range(begin, end))) as prefetcher:
            since = time.monotonic()
            while self.steps < end:
                if away is not None and self.steps - begin == steps:
                    away()
                self.run(prefetcher, [batch(self.steps)])
                if self.steps % SAVED_EVERY == 0:
                    self.save(prefetcher)
                    self.pace, since = time.monotonic() - since, time.monotonic()
            jde.checkpoint.wait()

    def save(self, prefetcher: jde.tiers.RowPrefetcher) -> None:
        """Saves the small table, and keeps the other one."""
        self.kept[self.steps] = jax.tree.map(jnp.copy, self.whole)
        path, tables = self.folder / "checkpoints", self.coll
        jde.checkpoint.save(
            path, self.steps, self.state, tables=tables, prefetcher=prefetcher
        )


@pytest.mark.slow
def test_a_server_that_ends_at_any_time(tmp_path, capsys):
    """The latest checkpoint has all rows of its step, in the table or below."""
    redis = pytest.importorskip("redis")
    if shutil.which("redis-server") is None:
        pytest.skip("no redis-server is installed on this machine")
    rng = np.random.default_rng(int(os.environ.get("SEED", 0)))
    walk, ended = Outages(tmp_path), 0
    with served(tmp_path):
        walk.resume()
        walk.train(MOST_STEPS)  # compiles, and says how long a step takes
    for _ in range(OUTAGES):
        with served(tmp_path) as server:
            walk.resume()
            end = server.terminate if rng.random() < 0.5 else server.kill
            timer = threading.Timer(rng.uniform(0, 1.5 * walk.pace), end)
            try:
                walk.train(int(rng.integers(MOST_STEPS)), timer.start)
            except redis.ConnectionError:
                ended += 1
            finally:
                timer.cancel()
            jde.checkpoint.wait()
            latest = jde.checkpoint.latest(tmp_path / "checkpoints") or 0
            walk.kept = {latest: walk.kept[latest]}
    with served(tmp_path):
        walk.resume()
    with capsys.disabled():
        print(f"\noutages: {ended}, step {walk.steps}")
    assert ended > OUTAGES // 2 and walk.steps > OUTAGES * SAVED_EVERY // 2
