# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A table with a store below it equals one that has room for every row."""

import dataclasses
import threading

import jax
import numpy as np
import pytest

import jax_dynemb as jde
from meshes import mesh_of
from stores.conftest import make_store, redis_url  # noqa: F401 (fixtures)
from walks import BELOW, IDS, PLAIN, TIER, Walk, cold_batches, rows_in, rows_of


@pytest.fixture
def store(make_store):  # noqa: F811
    """A store of each kind."""
    return make_store(table=PLAIN)


def test_same_rows_in_every_store(store):
    batches = cold_batches(1, 300)
    walk = Walk(store)
    with walk.prefetcher(batches) as prefetcher:
        walk.run(prefetcher, batches)
        with pytest.raises(StopIteration):
            prefetcher.next(walk.state)
        walk.check(prefetcher)
    assert len(rows_of(walk.plain, walk.whole)) > 8 * walk.coll.tables["cat"].num_slots


@pytest.mark.parametrize("depth", [1, 3])
def test_same_rows_at_every_depth(depth):
    batches = cold_batches(depth, 100)
    walk = Walk(jde.stores.Memory(PLAIN))
    with walk.prefetcher(batches, depth=depth) as prefetcher:
        walk.run(prefetcher, batches)
        walk.check(prefetcher)


@pytest.mark.parametrize("strategy", ["lfu", "timestamp", "customized"])
def test_same_rows_with_other_scores(strategy):
    """With LFU, new rows are the first to leave."""
    fields = {"score_strategy": strategy}
    plain = dataclasses.replace(PLAIN, **fields)
    walk = Walk(jde.stores.Memory(plain), dataclasses.replace(BELOW, **fields), plain)
    batches = cold_batches(7, 80)
    with walk.prefetcher(batches) as prefetcher:
        walk.run(prefetcher, batches)
        walk.state = prefetcher.drain(walk.state)
    above, below = rows_of(walk.coll, walk.state), rows_in(walk.stores["cat"])
    found, whole = above | below, rows_of(walk.plain, walk.whole)
    assert not above.keys() & below.keys() and found.keys() == whole.keys()
    if strategy == "timestamp":  # the time is another one
        found, whole = ({k: v[8:] for k, v in r.items()} for r in (found, whole))
    assert found == whole


def test_batches_grow():
    small, large = cold_batches(2, 40, 8), cold_batches(3, 40, 56)
    batches = [ids for pair in zip(small, large, strict=True) for ids in pair]
    walk = Walk(jde.stores.Memory(PLAIN))
    with walk.prefetcher(batches) as prefetcher:
        walk.run(prefetcher, batches)
        walk.check(prefetcher)


@pytest.mark.slow
@pytest.mark.parametrize(("devices", "buckets"), [(4, 4), (8, 8), (3, 4), (3, 5)])
def test_same_rows_on_a_mesh(devices, buckets):
    tier = dataclasses.replace(TIER, host_rows=128 * buckets)
    batches = cold_batches(4, 60)
    walk = Walk(
        jde.stores.Memory(PLAIN),
        dataclasses.replace(BELOW, tier=tier),
        mesh=mesh_of(devices),
        axis="data",
    )
    with walk.prefetcher(batches) as prefetcher:
        walk.run(prefetcher, batches)
        walk.check(prefetcher)


def test_two_tables_and_what_is_beside_the_ids():
    """One table has two features, the other has no store."""
    two = dataclasses.replace(
        PLAIN, name="two", feature_names=("a", "b"), pooling="sum"
    )
    plain = jde.Tables([two, PLAIN])
    coll = jde.Tables([dataclasses.replace(two, tier=TIER), PLAIN])
    rng = np.random.default_rng(5)

    def bags():
        return jde.Jagged(rng.integers(0, IDS, 24), rng.integers(0, 5, 4))

    given = [
        ({"b": bags(), "a": rng.integers(0, IDS, 9), "cat": rng.integers(0, 9, 3)}, i)
        for i in range(60)
    ]
    states = plain.init(1), coll.init(1)
    stores = {"two": jde.stores.Memory(two)}

    def step(coll, state, ids):
        rows, residual, state = coll.lookup(state, ids)
        d_rows = jax.tree.map(lambda x: x + 1, dict(rows))
        return dict(rows), coll.apply_gradients(state, residual, d_rows)

    step = jax.jit(step, static_argnums=0, donate_argnums=1)
    whole, state = states
    with jde.tiers.prefetch_rows(coll, given, stores=stores) as prefetcher:
        for number in range(60):
            (ids, beside), state = prefetcher.next(state)
            assert beside == number
            rows, state = step(coll, state, ids)
            expected, whole = step(plain, whole, ids)
            jax.tree.map(np.testing.assert_array_equal, rows, expected)
        state = prefetcher.drain(state)
    found = rows_of(coll, state, "two") | rows_in(stores["two"])
    assert found == rows_of(plain, whole, "two")
    assert rows_of(coll, state) == rows_of(plain, whole)


def test_nothing_is_compiled_after_the_first_steps():
    batches = cold_batches(6, 60)
    walk = Walk(jde.stores.Memory(PLAIN))
    with walk.prefetcher(batches) as prefetcher:
        # Rows return after 20 batches and more.
        calls = [(prefetcher, batches[i:j]) for i, j in ((0, 40), (40, 50), (50, 60))]
        jde.testing.assert_no_recompilation(walk.run, calls)


def test_errors_of_the_iterator_come_in_their_place():
    batches, before = cold_batches(8, 6), threading.enumerate()

    def broken():
        yield from batches
        raise OSError("the disk of the batches")

    walk = Walk(jde.stores.Memory(PLAIN))
    prefetcher = walk.prefetcher(broken())
    walk.run(prefetcher, batches)
    with pytest.raises(OSError, match="disk of the batches"):
        prefetcher.next(walk.state)
    prefetcher.close()
    with pytest.raises(RuntimeError, match="this prefetcher is closed"):
        prefetcher.next(walk.state)
    threads = [t.name for t in threading.enumerate() if t not in before]
    assert not [name for name in threads if "jax_dynemb" in name]


def test_a_second_prefetcher_goes_on():
    """Rows in the ring at the end of a prefetcher stay in the state."""
    batches = cold_batches(9, 90)
    walk = Walk(jde.stores.Memory(PLAIN))
    for begin in range(0, 90, 30):
        some = batches[begin : begin + 30]
        with walk.prefetcher(some) as prefetcher:
            walk.run(prefetcher, some)
    with walk.prefetcher([]) as prefetcher:
        walk.state = prefetcher.drain(walk.state)
    below = rows_in(walk.stores["cat"])
    above = rows_of(walk.coll, walk.state)
    assert not above.keys() & below.keys()
    assert above | below == rows_of(walk.plain, walk.whole)
