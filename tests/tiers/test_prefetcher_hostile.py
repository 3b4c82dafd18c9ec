# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Stores that are slow, full or broken, and batches that leave no room."""

import dataclasses
import time
import warnings
from types import SimpleNamespace
from typing import NamedTuple

import jax
import numpy as np
import pytest

import jax_dynemb as jde
from jax_dynemb._src.tiers.together import _own_shards
from walks import BELOW, PLAIN, TIER, Walk, cold_batches, rows_in, rows_of, stepper


class Device(NamedTuple):
    """Stands for a device of a process."""

    number: int
    process_index: int


class Slow(jde.stores.Memory):
    """Takes long to read."""

    def get(self, keys):
        """Reads rows."""
        time.sleep(0.02)
        return super().get(keys)


class Breaks(jde.stores.Memory):
    """Raises in the middle of the n-th put."""

    left = 12

    def put(self, keys, packed, step=0):
        """Writes rows, or half of them."""
        self.left -= 1
        if self.left:
            return super().put(keys, packed, step)
        super().put(keys[::2], packed[::2], step)
        raise OSError(28, "no space left in the test")


class Holds(jde.stores.Memory):
    """Has room for so many rows, and counts how often a key is read."""

    room = 300
    read = 0

    def put(self, keys, packed, step=0):
        """Writes what it has room for."""
        have = set(self.keys().tolist())
        fits = np.array(
            [k in have or len(have | {k}) <= self.room for k in keys.tolist()]
        )
        super().put(keys[fits], packed[fits], step)
        return fits

    def get(self, keys):
        """Reads rows."""
        self.read += len(keys)
        return super().get(keys)


def test_a_slow_store_is_waited_for():
    batches = cold_batches(1, 50)
    walk = Walk(Slow(PLAIN))
    with walk.prefetcher(batches) as prefetcher:
        walk.run(prefetcher, batches)
        assert prefetcher.stats()["seconds_waited"] > 0.1
        walk.check(prefetcher)


def test_rows_that_a_full_store_refuses_wait_in_memory(tmp_path):
    batches = cold_batches(2, 80)
    store = Holds(PLAIN)
    walk = Walk(store)
    with walk.prefetcher(batches) as prefetcher:
        walk.run(prefetcher, batches)  # rows that wait come back, too
        walk.state = prefetcher.drain(walk.state)
        assert (
            prefetcher.stats()["cat/waiting"] > 100
            and prefetcher.stats()["cat/refused"] > 100
        )
        with pytest.raises(RuntimeError, match="A commit would lose them"):
            prefetcher.commit(walk.state, "one")
        assert not prefetcher.stats()["queue"]  # and the prefetcher lives on


def test_rows_that_wait_are_put_once_there_is_room():
    batches = cold_batches(2, 80)
    store = Holds(PLAIN)
    walk = Walk(store)
    with walk.prefetcher(batches) as prefetcher:
        walk.run(prefetcher, batches)
        store.room = 100_000
        prefetcher.commit(walk.state, "one")
        walk.check(prefetcher)


def test_refused_rows_have_a_bound():
    batches = cold_batches(2, 80)
    walk = Walk(Holds(PLAIN))
    with (
        pytest.raises(RuntimeError, match="They fill waiting_megabytes"),
        walk.prefetcher(batches, waiting_megabytes=0.005) as prefetcher,
    ):
        walk.run(prefetcher, batches)


def test_a_full_log_refuses_and_counts(tmp_path):
    """Rows that it refuses wait in memory: none is lost, and none is an older one."""
    batches = cold_batches(3, 150)
    log = jde.stores.Log(tmp_path, PLAIN, disk_gigabytes=7e-5)
    walk = Walk(log)
    with walk.prefetcher(batches) as prefetcher:
        walk.run(prefetcher, batches)
        walk.state = prefetcher.drain(walk.state)
        assert log.stats()["refused"] == prefetcher.stats()["cat/refused"] > 0
        waiting = prefetcher._shared.mover.traffic["cat"].waiting
        kept = {key: row.tobytes() for key, row in waiting.items()}
        assert len(kept) == prefetcher.stats()["cat/waiting"] > 0
        above, below = rows_of(walk.coll, walk.state), rows_in(log)
        assert above | below | kept == rows_of(walk.plain, walk.whole)


def test_an_error_of_the_store_surfaces_and_the_commit_holds(tmp_path):
    batches, store = cold_batches(4, 60), Breaks(PLAIN)
    walk = Walk(store)
    prefetcher = walk.prefetcher(batches)
    walk.run(prefetcher, batches[:8])
    jde.checkpoint.save(
        tmp_path, 8, walk.state, tables=walk.coll, prefetcher=prefetcher, wait=True
    )
    expected = rows_of(walk.plain, walk.whole)
    with pytest.raises(OSError, match="no space left in the test"):
        walk.run(prefetcher, batches[8:])
    with pytest.raises(OSError, match="no space left in the test"):
        prefetcher.drain(walk.state)
    prefetcher.close()  # it has been raised
    restored = jde.checkpoint.restore(
        tmp_path, walk.coll.init(0), tables=walk.coll, stores=walk.stores
    )
    above, below = rows_of(walk.coll, restored.tree), rows_in(store)
    assert above | below == expected and not above.keys() & below.keys()


def test_one_cold_id_fills_the_batch():
    """It is read once, though three batches on their way have it."""
    batches = cold_batches(5, 30)
    store = Holds(PLAIN)
    store.room = 100_000
    walk = Walk(store)
    with walk.prefetcher(batches) as prefetcher:
        walk.run(prefetcher, batches)
        walk.state = prefetcher.drain(walk.state)
    only, before = [np.full(40, store.keys()[0])] * 4, store.read
    with walk.prefetcher(only) as prefetcher:
        walk.run(prefetcher, only)
        assert prefetcher.stats()["cat/returned"] == 1
        assert store.read == before + 1
        walk.check_rows(prefetcher)


def counted(config: jde.TableConfig) -> jde.TableConfig:
    """Rows that count their updates."""
    return dataclasses.replace(
        config,
        initializer=jde.initializers.constant(0.0),
        optimizer=jde.optim.sgd(1.0),
    )


@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("ring_rows, host_rows", [(256, 128), (8, 256)])
def test_without_room_ids_are_refused_and_no_row_is_made_twice(
    depth, ring_rows, host_rows
):
    """Batches hold more rows than the table has, or more depart than a ring holds.

    A row that is in the table after a step has the count of all steps after which it
    was there. So a row that was made a second time would count too little.
    """
    tier = dataclasses.replace(TIER, host_rows=host_rows, ring_rows=ring_rows)
    coll = jde.Tables([counted(dataclasses.replace(BELOW, tier=tier))])
    store = jde.stores.Memory(coll.tables["cat"])

    @jax.jit
    def step(state, ids):
        rows, residual, state = coll.lookup(state, {"cat": ids})
        state = coll.apply_gradients(state, residual, {"cat": rows["cat"] * 0 + 1})
        found_rows, found, state = coll.find(state, {"cat": ids})
        return found_rows["cat"], found["cat"], state

    rng = np.random.default_rng(depth)
    batches = [rng.choice(1500, 150, replace=False) for _ in range(60)]
    state, count = coll.init(0), np.zeros(1500)
    given = ({"cat": ids} for ids in batches)
    with jde.tiers.prefetch_rows(
        coll, given, stores={"cat": store}, depth=depth
    ) as prefetcher:
        for ids in batches:
            on_device, state = prefetcher.next(state)
            rows, found, state = step(state, on_device["cat"])
            rows, found = np.asarray(rows), np.asarray(found)
            count[ids[found]] += 1
            np.testing.assert_array_equal(rows[found, 0], -count[ids[found]])
        state = prefetcher.drain(state)
        stats = coll.stats(state)
        assert stats["cat/refused"] > 0
        assert (stats["cat/ring_full"] > 0) == (ring_rows == 8)
    below = {
        k: np.frombuffer(v[8:12], np.float32)[0] for k, v in rows_in(store).items()
    }
    above = {
        int(k): row[0]
        for chunk in coll.export(state, "cat")
        for k, row in zip(chunk.keys, chunk.rows, strict=True)
    }
    assert not above.keys() & below.keys()
    assert above | below == {k: -n for k, n in enumerate(count) if n}


def test_a_lookup_beside_the_prefetcher_is_noticed():
    """Holds count lookups, so other lookups end them."""
    batches = cold_batches(6, 40)
    walk = Walk(jde.stores.Memory(PLAIN))
    others = cold_batches(7, 400)
    step = jax.jit(
        lambda s, ids: walk.coll.lookup(s, {"cat": ids})[2], donate_argnums=0
    )
    prefetcher = walk.prefetcher(batches)
    with pytest.raises(RuntimeError, match="a row that a coming batch needs"):
        for turn in range(40):
            _, walk.state = prefetcher.next(walk.state)
            for ids in others[10 * turn : 10 * turn + 10]:
                walk.state = step(walk.state, jde.ids(ids))
    prefetcher.close()


@pytest.mark.parametrize(
    "batch, error, match",
    [
        (np.arange(3), TypeError, "ids by feature"),
        ({"dog": np.arange(3)}, ValueError, "dog"),
        ({"cat": np.array([-3])}, ValueError, "reserved"),
        ({"cat": np.array([0.5])}, TypeError, "must be integers"),
    ],
)
def test_bad_batches_are_named(batch, error, match):
    walk = Walk(jde.stores.Memory(PLAIN))
    with (
        jde.tiers.prefetch_rows(walk.coll, [batch], stores=walk.stores) as prefetcher,
        pytest.raises(error, match=match),
    ):
        prefetcher.next(walk.state)


def test_a_call_that_raises_loses_no_batch():
    """Rows below an empty table are warned of; where warnings are errors too."""
    batches = cold_batches(9, 80)
    walk = Walk(jde.stores.Memory(PLAIN))
    with walk.prefetcher(batches) as prefetcher:
        walk.run(prefetcher, batches)
        walk.state = prefetcher.drain(walk.state)
    walk.stores["cat"].identity = None  # of a store that notes none
    state = walk.coll.init(3)
    with walk.prefetcher(batches[:6]) as prefetcher:
        with (
            pytest.raises(RuntimeWarning, match="stores have rows"),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("error")
            prefetcher.next(state)
        with pytest.warns(RuntimeWarning, match="stores have rows"):
            for batch in batches[:6]:
                given, state = prefetcher.next(state)
                np.testing.assert_array_equal(given["cat"], jde.ids(batch))
                _, state = stepper(walk.coll)(state, given)
        with pytest.raises(StopIteration):
            prefetcher.next(state)


def test_rows_of_a_wrong_shape_leave_the_state():
    batches = cold_batches(9, 80)
    walk = Walk(jde.stores.Memory(PLAIN))
    with walk.prefetcher(batches) as prefetcher:
        walk.run(prefetcher, batches[:60])
        walk.state = prefetcher.drain(walk.state)
        below = {"cat": walk.stores["cat"].keys()[:5]}
        with pytest.raises(ValueError, match=r"'values' has shape \(5, 4\)"):
            prefetcher.insert(walk.state, below, {"cat": np.zeros((5, 4), np.float32)})
        walk.run(prefetcher, batches[60:])
        walk.check(prefetcher)


def test_offers_of_erased_rows_are_dropped():
    """Each would hold arrays on the device for ever."""
    batches = cold_batches(9, 60)
    walk = Walk(jde.stores.Memory(PLAIN))
    with walk.prefetcher(batches, depth=3) as prefetcher:
        for turn in range(60):
            given, walk.state = prefetcher.next(walk.state)
            _, walk.state = stepper(walk.coll)(walk.state, given)
            if turn > 40:
                coming = np.concatenate([[-1], *batches[turn + 1 : turn + 5]])
                walk.state = prefetcher.erase(walk.state, {"cat": coming})
        stats = prefetcher.stats()
        assert stats["cat/hits"] > stats["cat/returned"]
        assert not prefetcher._shared.mover.traffic["cat"]._offers


def test_wide_ids_of_a_table_of_narrow_keys_are_refused():
    config = dataclasses.replace(BELOW, key_dtype="int32")
    coll = jde.Tables([config])
    stores = {"cat": jde.stores.Memory(config)}
    given = [{"cat": np.array([5, 2**31 - 1])}, {"cat": np.array([5, 2**32 + 5])}]
    with jde.tiers.prefetch_rows(coll, given, stores=stores) as prefetcher:
        ids, state = prefetcher.next(coll.init(0))
        assert ids["cat"].dtype == np.int32 and ids["cat"].tolist() == [5, 2**31 - 1]
        with pytest.raises(ValueError, match="beyond int32. Pass uint32 ids"):
            prefetcher.next(state)


@pytest.mark.parametrize(
    ("processes", "shards"),
    [([0, 0, 1, 1], None), ([0, 1, 0, 1], "follow each other"), ([0, 0, 0, 1], "many")],
)
def test_processes_need_shards_that_follow_each_other(processes, shards):
    devices = [Device(number, process) for number, process in enumerate(processes)]
    placed = {d: (slice(d.number, d.number + 1),) for d in devices}
    split = SimpleNamespace(
        mesh=SimpleNamespace(shape={"data": 4}),
        devices_indices_map=lambda shape: placed,
    )
    if shards is None:
        assert _own_shards(split, ["data"]) == (0, 2, 2)
        return
    with pytest.raises(NotImplementedError, match=shards):
        _own_shards(split, ["data"])


def test_a_prefetcher_of_the_size_before_is_named():
    """And the state is as it was."""
    walk, batches = Walk(jde.stores.Memory(PLAIN)), cold_batches(8, 4)
    with walk.prefetcher(batches) as prefetcher:
        walk.run(prefetcher, batches[:2])
        larger, grown = walk.coll.grow(walk.state, {"cat": 1024})
        with pytest.raises(ValueError, match=r"Call prefetcher.use\(coll\)"):
            prefetcher.next(grown)
        prefetcher.use(larger)
        walk.coll, walk.state = larger, grown
        walk.run(prefetcher, batches[2:])


def test_mistakes_are_named(tmp_path):
    store = jde.stores.Memory(PLAIN)
    coll = jde.Tables([BELOW])
    with pytest.raises(ValueError, match="No table has a store"):
        jde.tiers.prefetch_rows(jde.Tables([PLAIN]), [])
    with pytest.raises(TypeError, match="call the generator function"):
        jde.tiers.prefetch_rows(coll, lambda: [], stores={"cat": store})  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="depth must be"):
        jde.tiers.prefetch_rows(coll, [], depth=0, stores={"cat": store})
    for size in (-1, float("nan"), "256"):
        with pytest.raises(ValueError, match="waiting_megabytes must be a number"):
            jde.tiers.prefetch_rows(
                coll, [], stores={"cat": store}, waiting_megabytes=size
            )
    with pytest.raises(ValueError, match="no store for the tables"):
        jde.tiers.prefetch_rows(coll, [], stores={})
    with pytest.raises(ValueError, match="have no store in their tier"):
        jde.tiers.prefetch_rows(coll, [], stores={"cat": store, "dog": store})
    with pytest.raises(TypeError, match="lacks methods"):
        jde.tiers.prefetch_rows(coll, [], stores={"cat": object()})
    other = jde.stores.Memory(dataclasses.replace(PLAIN, dim=7))
    with pytest.raises(ValueError, match="dim 7 there"):
        jde.tiers.prefetch_rows(coll, [], stores={"cat": other})
    with pytest.raises(TypeError, match="takes a store.*lambda table"):
        jde.tiers.external(jde.stores.Memory)
    with pytest.raises(ValueError, match="host_rows and host_gigabytes"):
        jde.tiers.ssd(tmp_path, host_rows=3, host_gigabytes=3)
    with pytest.raises(ValueError, match="hbm_rows must be above 0"):
        jde.tiers.ssd(tmp_path, hbm_rows=-1)
    with pytest.raises(ValueError, match="path must name a directory"):
        jde.tiers.ssd("")
    with pytest.raises(ValueError, match="never evicts"):
        dataclasses.replace(BELOW, score_strategy="no_eviction", on_full=None)
    with pytest.raises(ValueError, match="Pass prefetcher="):
        jde.checkpoint.save(tmp_path, 1, coll.init(0), tables=coll)


def test_a_log_lies_in_the_folder_of_its_table(tmp_path):
    with jde.tiers.open_stores(
        jde.Tables([dataclasses.replace(BELOW, tier=jde.tiers.ssd(tmp_path))])
    ) as stores:
        assert isinstance(stores["cat"], jde.stores.Log)
    assert (tmp_path / "cat" / "LOCK").exists()
