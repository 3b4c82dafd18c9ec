# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A prefetcher goes on with the states of one history, above stores of the same one."""

import contextlib
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import jax_dynemb as jde
from meshes import mesh_of
from stores.conftest import make_store, redis_url  # noqa: F401
from walks import BELOW, PLAIN, Walk, cold_batches, rows_in, rows_of, stepper

OTHER_RUN = "the prefetcher got a state of another run"
EARLIER = "the prefetcher got a state of an earlier moment"


def copied(state):
    return jax.tree.map(jnp.copy, state)


def goes_on(walk: Walk, prefetcher, state, steps: int = 4):
    """Steps from another state; a prefetcher may need a few to see it."""
    for _ in range(steps):
        ids, state = prefetcher.next(state)
        _, state = stepper(walk.coll)(state, ids)


def fresh(walk: Walk):
    return walk.coll.init(9)


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("other", ["fresh", "earlier", "branch"])
def test_another_state_is_refused(other, devices):
    batches, placement = cold_batches(1, 60), {}
    if devices > 1:
        placement = {"mesh": mesh_of(devices)}
    walk = Walk(jde.stores.Memory(PLAIN), **placement)
    reason = OTHER_RUN if other == "fresh" else EARLIER
    prefetcher = walk.prefetcher(batches)
    with pytest.raises(ValueError, match=reason), prefetcher:
        walk.run(prefetcher, batches[:20])
        kept = copied(walk.state)
        if other == "branch":  # as many lookups, of a copy of the state
            for batch in batches[30:33]:
                ids = {"cat": jde.ids(batch)}
                _, kept = stepper(walk.coll)(kept, ids)
        walk.run(prefetcher, batches[20:23])
        prefetcher.drain(copied(walk.state))
        below = rows_in(walk.stores["cat"])
        state = walk.coll.init(9) if other == "fresh" else kept
        try:
            goes_on(walk, prefetcher, state)
        finally:
            # Nothing of the other state came below, and nothing was discarded.
            assert rows_in(walk.stores["cat"]) == below


def test_other_calls_compare_too():
    batches = cold_batches(1, 30)
    for call in ("drain", "commit", "erase"):
        walk = Walk(jde.stores.Memory(PLAIN))
        with contextlib.ExitStack() as stack:
            prefetcher = stack.enter_context(walk.prefetcher(batches))
            walk.run(prefetcher, batches[:10])
            stack.enter_context(pytest.raises(ValueError, match=OTHER_RUN))
            if call == "drain":
                prefetcher.drain(fresh(walk))
            elif call == "commit":
                prefetcher.commit(fresh(walk), "other")
            else:
                prefetcher.erase(fresh(walk), {"cat": batches[0]})


def test_lookups_between_two_batches_are_welcome():
    batches = cold_batches(2, 40)
    walk = Walk(jde.stores.Memory(PLAIN))
    with walk.prefetcher(batches) as prefetcher:
        walk.run(prefetcher, batches[:20])
        walk.state = prefetcher.drain(walk.state)
        prefetcher.commit(walk.state, "here")
        walk.run(prefetcher, batches[20:])
        walk.check(prefetcher)


def test_a_new_run_above_rows_of_another_one():
    batches = cold_batches(3, 40)
    walk = Walk(jde.stores.Memory(PLAIN))
    with walk.prefetcher(batches) as prefetcher:
        walk.run(prefetcher, batches)
    store, state = walk.stores["cat"], fresh(walk)
    refused = pytest.raises(ValueError, match="has rows of another run")
    with walk.prefetcher(batches) as prefetcher, refused:
        prefetcher.next(state)
    store.discard(store.keys())  # the advice, and the state lives on
    with walk.prefetcher(batches) as prefetcher:
        goes_on(walk, prefetcher, state)
    assert walk.coll.stats(walk.state)["cat/rows"] > 0


def saved(walk: Walk, path, prefetcher, step: int) -> None:
    jde.checkpoint.save(
        path, step, walk.state, tables=walk.coll, prefetcher=prefetcher, wait=True
    )


def test_a_commit_that_is_newer_than_the_checkpoint(tmp_path):
    batches = cold_batches(4, 60)
    walk = Walk(jde.stores.Log(tmp_path / "log", PLAIN, keep=3))
    with walk.prefetcher(batches) as prefetcher:
        walk.run(prefetcher, batches[:20])
        saved(walk, tmp_path / "at", prefetcher, 20)
        expected = rows_of(walk.plain, walk.whole)
        whole = copied(walk.whole)
        walk.run(prefetcher, batches[20:40])
        prefetcher.commit(walk.state, "later")  # and then the run dies
    walk.stores["cat"].close()
    with jde.stores.Log(tmp_path / "log", PLAIN, keep=3) as log:
        state = jde.checkpoint.restore(
            tmp_path / "at", fresh(walk), tables=walk.coll, stores={"cat": log}
        ).tree
    # A prefetcher that opens the log again has the newest commit.
    with jde.stores.Log(tmp_path / "log", PLAIN, keep=3) as log:
        walk.stores = {"cat": log}
        refused = pytest.raises(ValueError, match=r"'later'.*store.open\(tag\) first")
        with walk.prefetcher(batches[20:]) as prefetcher, refused:
            prefetcher.next(state)
        log.open("step-20")  # the advice
        assert rows_of(walk.coll, state) | rows_in(log) == expected
        walk.state, walk.whole = state, whole
        with walk.prefetcher(batches[20:]) as prefetcher:
            walk.run(prefetcher, batches[20:])
            walk.check(prefetcher)


def test_a_prefetcher_that_opens_the_log_of_its_tier(tmp_path):
    """The run died after a later commit; both kinds of prefetchers say what to do."""
    tier = jde.tiers.ssd(tmp_path / "log", host_rows=512, ring_rows=256)
    coll = jde.Tables([dataclasses.replace(PLAIN, tier=tier)])

    def prefetcher_of(seed: int, **options):
        given = ({"cat": ids} for ids in cold_batches(seed, 80))
        return jde.tiers.prefetch_rows(coll, given, **options)

    def trained(prefetcher, state, steps: int):
        for _ in range(steps):
            ids, state = prefetcher.next(state)
            _, state = stepper(coll)(state, ids)
        return state

    with prefetcher_of(1) as prefetcher:
        state = trained(prefetcher, coll.init(0), 40)
        jde.checkpoint.save(
            tmp_path / "at", 40, state, tables=coll, prefetcher=prefetcher, wait=True
        )
        prefetcher.commit(trained(prefetcher, state, 20), "later")
    with jde.tiers.open_stores(coll) as stores:
        state = jde.checkpoint.restore(
            tmp_path / "at", coll.init(9), tables=coll, stores=stores
        ).tree
        expected = rows_of(coll, state) | rows_in(stores["cat"])
    assert len(expected) > 512
    for evaluate in (False, True):
        refused = pytest.raises(ValueError, match=r"'later'.*open_stores\(coll\)")
        with prefetcher_of(2, evaluate=evaluate) as prefetcher, refused:
            prefetcher.next(state)
    with jde.tiers.open_stores(coll) as stores:  # the advice
        stores["cat"].open("step-40")
        assert rows_of(coll, state) | rows_in(stores["cat"]) == expected
        with prefetcher_of(2, stores=stores) as prefetcher:
            trained(prefetcher, state, 20)


@pytest.mark.parametrize("make_store", ["RocksDB", "Redis"], indirect=True)
def test_rows_that_changed_in_place_are_newer_than_the_table(make_store):  # noqa: F811
    batches = cold_batches(7, 40)
    walk = Walk(make_store(table=PLAIN))
    with walk.prefetcher(batches) as prefetcher:
        walk.run(prefetcher, batches[:20])
        prefetcher.commit(walk.state, "step-20", 20)
        state, whole = copied(walk.state), copied(walk.whole)
        walk.run(prefetcher, batches[20:])  # and then the run dies
    getattr(walk.stores["cat"], "close", lambda: None)()
    walk.stores = {"cat": make_store(table=PLAIN)}
    refused = pytest.raises(ValueError, match=r"later moment.*store.open\(tag\) first")
    with walk.prefetcher(batches[20:]) as prefetcher, refused:
        prefetcher.next(state)
    walk.stores["cat"].open("step-20")  # the advice
    walk.state, walk.whole = state, whole
    with walk.prefetcher(batches[20:]) as prefetcher:
        walk.run(prefetcher, batches[20:])
        walk.check(prefetcher)


@pytest.mark.parametrize("tells_before", [True, False])
def test_a_commit_of_the_same_name_of_another_run(
    make_store,  # noqa: F811
    tmp_path,
    tells_before,
):
    batches = cold_batches(5, 60)
    stores, colls = [], []
    for name in ("a", "b"):
        walk = Walk(make_store(name, table=PLAIN))
        if not tells_before:  # a store of a user
            walk.stores["cat"].identity_at = None
        with walk.prefetcher(batches) as prefetcher:
            walk.run(prefetcher, batches[:40])
            saved(walk, tmp_path / name, prefetcher, 20)
            walk.run(prefetcher, batches[40:])
            walk.state = prefetcher.drain(walk.state)
        stores.append(walk.stores)
        colls.append(walk.coll)
    into, below = colls[0].init(1), rows_in(stores[1]["cat"])
    assert below
    with pytest.raises(ValueError, match="another run in its commit 'step-20'"):
        jde.checkpoint.restore(tmp_path / "a", into, tables=colls[0], stores=stores[1])
    assert (rows_in(stores[1]["cat"]) == below) == tells_before
    back = jde.checkpoint.restore(
        tmp_path / "a", into, tables=colls[0], stores=stores[0]
    )
    assert colls[0].stats(back.tree)["cat/rows"] > 0


def test_a_module_that_got_another_state():
    batches = cold_batches(6, 40)
    model = jde.nnx.EmbeddingCollection([BELOW], rngs=nnx.Rngs(0))
    store = {"cat": jde.stores.Memory(PLAIN)}
    given = ({"cat": ids} for ids in batches)
    prefetcher = jde.nnx.prefetch_rows(model, given, stores=store)
    with pytest.raises(ValueError, match=OTHER_RUN), prefetcher:
        for number, ids in enumerate(prefetcher):
            _, _, state = model.coll.lookup(model.get_state(), ids)
            model.set_state(model.coll.init(5) if number == 20 else state)
    assert len(np.unique(store["cat"].keys()))
