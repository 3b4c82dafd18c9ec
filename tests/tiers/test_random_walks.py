# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Random calls, growth and checkpoints leave the rows of a table without a tier."""

import dataclasses
import functools
import itertools
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde
from growth import grow
from meshes import mesh_of
from processes import NIGHTLY
from support import Twins
from walks import rows_in, rows_of, unopened

EXACT = {"rtol": 0.0, "atol": 0.0}
# Sums of whole gradients, times a power of two, are exact in any order.
PLAIN = jde.TableConfig("t", 5, 256, optimizer=jde.optim.sgd(0.125))


def draw(seed: int, size: int) -> np.ndarray:
    """Half of the ids are few, and some are padding."""
    rng = np.random.default_rng(seed)
    few, many = rng.zipf(1.5, size) % 97, rng.integers(0, 40 * size, size)
    ids = np.where(rng.random(size) < 0.5, few, many)
    return np.where(rng.random(size) < 0.05, -1, ids)


@functools.cache
def jitted(coll: jde.Tables) -> Any:
    @functools.partial(jax.jit, donate_argnums=0)
    def step(state, ids, d_rows):
        rows, residual, state = coll.lookup(state, {"t": ids})
        return rows["t"], coll.apply_gradients(state, residual, {"t": d_rows})

    return step


class RandomWalk:
    """A tiered table beside one without a tier, which Twins compares with NumPy's.

    Args:
      frames: of a bucket.
      below: whether a log lies below the tiered table. Then the other one has room for
        every row.
      folder: of the log and of checkpoints.
      placement: of both, ``mesh`` and ``axis``.
    """

    def __init__(self, frames: int, below: bool, folder: Path, **placement: Any):
        self.below, self.folder, self.placement = below, folder, placement
        self.host_rows, self.size = (1024, 160) if placement else (256, 40)
        self.all_rows = 48 * self.host_rows
        capacity = self.all_rows if below else self.host_rows
        plain = dataclasses.replace(PLAIN, capacity=capacity)
        self.twins = Twins(plain, **placement)
        self.coll = self.tables(frames)
        self.state: Any = self.coll.init(0)
        self.step = 0
        self.log: Any = None
        self.open()

    def tables(self, frames: int) -> jde.Tables:
        """Tables with another cache."""
        sizes = {"hbm_fraction": frames / 128, "spill_rows": 50}
        if not self.below:
            tier = jde.tiers.host(**sizes)
            capacity = self.host_rows
        else:
            tier = jde.tiers.external(
                unopened, host_rows=self.host_rows, ring_rows=512, **sizes
            )
            capacity = self.all_rows
        config = dataclasses.replace(PLAIN, capacity=capacity, tier=tier)
        return jde.Tables([config], **self.placement)

    def open(self) -> None:
        """Begins to prefetch rows from the present step on."""
        if not self.below:
            return
        if self.log is None:
            self.log = jde.stores.Log(
                self.folder / "log", self.coll.tables["t"], segment_megabytes=1 / 64
            )
        batches = ({"t": self.ids_of(n)} for n in itertools.count(self.step))
        self.prefetcher = jde.tiers.prefetch_rows(
            self.coll, batches, stores={"t": self.log}
        )

    def ids_of(self, number: int) -> np.ndarray:
        return draw(number, self.size)

    def train(self) -> None:
        ids = self.ids_of(self.step)
        d_rows = np.random.default_rng(self.step).integers(-8, 8, (self.size, 5))
        d_rows = d_rows.astype(np.float32)
        rows, residuals = self.twins.lookup({"t": ids})
        self.twins.apply(residuals, {"t": d_rows})
        given = {"t": jde.ids(ids)}
        if self.below:
            given, self.state = self.prefetcher.next(self.state)
        got, self.state = jitted(self.coll)(self.state, given["t"], jnp.asarray(d_rows))
        np.testing.assert_array_equal(got, rows["t"])
        self.step += 1

    def prefetch(self) -> None:
        ids = jde.ids(self.ids_of(self.step))
        self.state = self.coll.prefetch(self.state, {"t": ids})

    def find(self) -> None:
        ids = self.ids_of(self.step + 10_000)
        rows, found = self.twins.find({"t": ids})
        got, have, self.state = self.coll.find(self.state, {"t": jde.ids(ids)})
        have = np.asarray(have["t"])
        assert self.below or (have == found["t"]).all()
        np.testing.assert_array_equal(np.asarray(got["t"])[have], rows["t"][have])

    def insert(self) -> None:
        ids = self.ids_of(self.step + 20_000)
        rows = np.random.default_rng(self.step).integers(-99, 99, (self.size, 5)) / 4
        rows = rows.astype(np.float32)
        self.twins.insert({"t": ids}, {"t": rows})
        if self.below:
            self.state = self.prefetcher.insert(self.state, {"t": ids}, {"t": rows})
        else:
            given = {"t": jde.ids(ids)}
            self.state = self.coll.insert(self.state, given, {"t": jnp.asarray(rows)})

    def erase(self) -> None:
        ids = self.ids_of(self.step + 30_000)[:20]
        self.twins.erase({"t": ids})
        if self.below:
            self.state = self.prefetcher.erase(self.state, {"t": ids})
        else:
            self.state = self.coll.erase(self.state, {"t": jde.ids(ids)})

    def grow(self) -> None:
        self.host_rows = 2 * self.coll.tables["t"].num_slots
        self.coll, self.state = self.coll.grow(self.state, {"t": self.host_rows})
        if self.below:
            self.prefetcher.use(self.coll)
        else:
            grow(self.twins, t=self.host_rows)
        assert self.coll.tables["t"].num_slots == self.host_rows

    def save_and_load(self, frames: int) -> None:
        """Another step is taken back; the cache gets another size."""
        path, prefetcher = self.folder / "checkpoints", {}
        if self.below:
            prefetcher = {"prefetcher": self.prefetcher}
        jde.checkpoint.save(path, self.step, self.state, tables=self.coll, **prefetcher)
        stores = {}
        if self.below:
            _, self.state = self.prefetcher.next(self.state)
            self.prefetcher.close()
            stores = {"stores": {"t": self.log}}
        self.coll = self.tables(frames)
        self.state = jde.checkpoint.restore(
            path, self.coll.init(7), tables=self.coll, **stores
        ).tree
        self.open()

    def check(self) -> None:
        """All rows, with their scores, are those of the table without a tier."""
        self.twins.check(EXACT)
        below = {}
        if self.below:
            self.state = self.prefetcher.drain(self.state)
            below = rows_in(self.log)
            assert self.coll.stats(self.state)["t/refused"] == 0
        above = rows_of(self.coll, self.state, "t")
        assert not above.keys() & below.keys()
        assert above | below == rows_of(self.twins.coll, self.twins.state, "t")


def walk(frames: int, below: bool, devices: int | None, seed: int, rounds: int) -> None:
    """Calls in random order, with growth and a checkpoint in each round."""
    mesh = {} if devices is None else {"mesh": mesh_of(devices), "axis": "data"}
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        one = RandomWalk(frames, below, Path(folder), **mesh)
        calls = [one.prefetch, one.find, one.insert, one.erase]
        for turn in range(rounds):
            for _ in range(14):
                one.train()
                calls[rng.integers(4)]()
            one.check()
            if turn < 2:
                one.grow()
                one.train()
            one.save_and_load(frames if devices else int(rng.choice([4, 8, 64])))
            one.train()
            one.check()
        if below:
            assert len(one.log.keys()) > 50
            one.prefetcher.close()
            one.log.close()
        jde.checkpoint.wait()


if NIGHTLY:
    CASES = list(itertools.product([4, 8, 64], [False, True], [None, 8]))
else:
    CASES = [(4, False, None), (8, True, None), (64, True, 8)]


@pytest.mark.slow
@pytest.mark.parametrize("frames, below, devices", CASES)
def test_a_random_walk(frames, below, devices):
    walk(frames, below, devices, seed=0, rounds=4 if NIGHTLY else 1)
