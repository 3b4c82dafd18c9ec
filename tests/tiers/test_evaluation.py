# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Evaluation between training steps, above a store: it changes nothing, reads all."""

import dataclasses
import functools
import os

import jax
import numpy as np
import pytest
from flax import nnx

import jax_dynemb as jde
from meshes import mesh_of
from processes import NIGHTLY
from walks import (
    BELOW,
    PLAIN,
    TIER,
    Walk,
    cold_batches,
    rows_in,
    rows_of,
    stepper,
)


@functools.cache
def evaluation(coll: jde.Tables):
    """A lookup that changes nothing; returns rows and the state."""

    def run(state, ids):
        rows, _, state = coll.lookup(state, ids, touch=False, insert=False)
        return rows["cat"], state

    return jax.jit(run, donate_argnums=0)


class Interleaved(Walk):
    """Trains and evaluates both tables in one order."""

    def evaluate(self, given, ids: np.ndarray) -> None:
        """Compares the rows of ids that are all in the table, or nowhere."""
        rows, self.state = evaluation(self.coll)(self.state, given)
        expected, self.whole = evaluation(self.plain)(self.whole, {"cat": jde.ids(ids)})
        np.testing.assert_array_equal(rows, expected)

    def alone(self, prefetcher, batches) -> None:
        """Reads the table alone, which answers what it has."""
        for ids in batches:
            given = {"cat": jde.ids(ids)}
            rows, found, self.state = self.coll.find(self.state, given)
            expected, _, self.whole = self.plain.find(self.whole, given)
            found = np.asarray(found["cat"])
            np.testing.assert_array_equal(rows["cat"][found], expected["cat"][found])
            _, self.state = evaluation(self.coll)(self.state, given)
            _, self.whole = evaluation(self.plain)(self.whole, given)

    def fetched(self, prefetcher, batches) -> None:
        """Brings rows up first."""
        for ids in batches:
            self.state, absent = prefetcher.fetch(self.state, {"cat": ids})
            assert absent == {"cat": 0}
            self.evaluate({"cat": jde.ids(ids)}, ids)

    def beside(self, prefetcher, batches) -> None:
        """A second prefetcher over the same stores; it may end early."""
        given = [{"cat": ids} for ids in batches]
        with jde.tiers.prefetch_rows(
            self.coll, given, stores=prefetcher.stores
        ) as second:
            for ids in batches[: len(batches) - len(batches) // 4]:
                on_device, self.state = second.next(self.state)
                self.evaluate(on_device, ids)

    def trained_beside(self, prefetcher, batches) -> None:
        """A second prefetcher whose batches are trained."""
        given = [{"cat": ids} for ids in batches]
        with jde.tiers.prefetch_rows(
            self.coll, given, stores=prefetcher.stores
        ) as second:
            self.run(second, batches)

    def inserted(self, prefetcher, batches) -> None:
        """Writes rows of any ids, those below too."""
        for ids in batches[:1]:
            some = np.unique(ids)
            some = some[some != -1]
            rows = np.full((len(some), 3), 0.5, np.float32)
            self.state = prefetcher.insert(self.state, {"cat": some}, {"cat": rows})
            given = {"cat": jde.ids(some)}
            self.whole = self.plain.insert(self.whole, given, {"cat": rows})


def interleave(seed: int, rounds: int, config=BELOW, **placement) -> None:
    """Training steps, and calls beside them, in random order."""
    rng = np.random.default_rng(seed)
    walk = Interleaved(jde.stores.Memory(PLAIN), config, **placement)
    batches = cold_batches(seed, 10 * rounds)
    calls = [walk.alone, walk.fetched, walk.beside, walk.trained_beside, walk.inserted]
    with walk.prefetcher(batches, depth=int(rng.integers(1, 4))) as prefetcher:
        at = 0
        for _ in range(rounds):
            steps = int(rng.integers(1, 11))
            walk.run(prefetcher, batches[at : at + steps])
            at += steps
            for _ in range(int(rng.integers(1, 4))):
                call = calls[rng.integers(len(calls))]
                ids = cold_batches(int(rng.integers(1 << 20)), int(rng.integers(1, 7)))
                call(prefetcher, ids)
        walk.check_rows(prefetcher)


@pytest.mark.slow
def test_random_interleavings_equal_the_untiered_run():
    begin = 1000 * int(os.environ.get("SEED", 0))
    for seed in range(begin, begin + (1000 if NIGHTLY else 24)):
        interleave(seed, 8 if NIGHTLY else 3)


@pytest.mark.parametrize("devices", [4])
def test_on_a_mesh(devices):
    config = dataclasses.replace(BELOW, tier=dataclasses.replace(TIER, host_rows=512))
    interleave(1, 4, config, mesh=mesh_of(devices), axis="data")


@pytest.mark.parametrize("devices", [None, 4])
def test_an_evaluation_uses_up_no_hold(devices):
    """Rows stay for the lookups that may evict some."""
    mesh = {} if devices is None else {"mesh": mesh_of(devices), "axis": "data"}
    coll = jde.Tables([BELOW], **mesh)
    state, held = coll.init(0), {"cat": jde.ids(np.arange(40))}
    _, state = stepper(coll)(state, held)
    state = coll.hold(state, held, lookups=2)
    for others in (cold_batches(1, 20, 400), cold_batches(2, 20, 400)):
        for ids in others:  # more than the table holds
            given = {"cat": jde.ids(ids)}
            _, state = evaluation(coll)(state, given)
            _, _, state = coll.find(state, given, touch=True)
        _, state = stepper(coll)(state, {"cat": jde.ids(others[0])})
        state, _ = coll.take_departed(state)
        assert np.asarray(coll.find(state, held)[1]["cat"]).all()
    for ids in cold_batches(3, 6, 400):
        _, state = stepper(coll)(state, {"cat": jde.ids(ids)})
        state, _ = coll.take_departed(state)
    assert not np.asarray(coll.find(state, held)[1]["cat"]).all()


def test_a_prefetcher_that_only_evaluates():
    """Its rows are held for no batch, so any number of batches has room."""
    batches = cold_batches(5, 60)
    walk = Interleaved(jde.stores.Memory(PLAIN))
    with walk.prefetcher(batches) as prefetcher:
        walk.run(prefetcher, batches)
    for _ in range(2):
        with walk.prefetcher(batches, evaluate=True) as prefetcher:
            for ids in batches:
                given, walk.state = prefetcher.next(walk.state)
                walk.evaluate(given, ids)
            assert prefetcher.stats()["cat/no_room"] == 0
    more = cold_batches(6, 20)
    with walk.prefetcher(more) as prefetcher:
        walk.run(prefetcher, more)
        walk.check(prefetcher)


def test_what_finds_no_room_is_counted_and_said():
    """Ids of one bucket, more of them than it has room for."""
    walk = Interleaved(jde.stores.Memory(PLAIN))
    many = np.arange(4000)
    batches = list(many.reshape(80, 50))
    with walk.prefetcher(batches) as prefetcher:
        walk.run(prefetcher, batches)
        walk.state, absent = prefetcher.fetch(walk.state, {"cat": many})
        found = np.asarray(walk.coll.find(walk.state, {"cat": jde.ids(many)})[1]["cat"])
        assert absent["cat"] == (~found).sum() > 3000
        walk.state = prefetcher.drain(walk.state)
        assert prefetcher.stats()["cat/no_room"] == absent["cat"]
    above, below = rows_of(walk.coll, walk.state), rows_in(walk.stores["cat"])
    assert not above.keys() & below.keys()
    assert above | below == rows_of(walk.plain, walk.whole)


def test_prefetchers_over_some_of_the_stores_are_refused():
    two = dataclasses.replace(BELOW, name="two", feature_names=("two",))
    both, one = jde.Tables([BELOW, two]), jde.Tables([BELOW])
    stores = {table.name: jde.stores.Memory(table) for table in (BELOW, two)}
    some = {"cat": stores["cat"]}
    with (
        jde.tiers.prefetch_rows(both, [], stores=stores),
        pytest.raises(ValueError, match="Give both prefetchers the same stores"),
    ):
        jde.tiers.prefetch_rows(one, [], stores=some)
    jde.tiers.prefetch_rows(one, [], stores=some).close()


def test_a_module_fetches():
    model = jde.nnx.EmbeddingCollection([BELOW], rngs=nnx.Rngs(0))
    stores = {"cat": jde.stores.Memory(PLAIN)}
    batches = [{"cat": np.arange(at, at + 50)} for at in range(0, 1500, 50)]
    with jde.nnx.prefetch_rows(model, batches, stores=stores) as prefetcher:
        for ids in prefetcher:
            model(ids)
        assert prefetcher.fetch({"cat": np.arange(100)}) == {"cat": 0}
        found = model.coll.find(model.get_state(), {"cat": jde.ids(np.arange(100))})[1]
        assert np.asarray(found["cat"]).all()
