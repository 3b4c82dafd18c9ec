# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Rows that a table above a store evicts: all of them go to its ring, as they were."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde
from jax_dynemb._src.rows import Exported
from jax_dynemb.stores import Layout
from jax_dynemb.testing import assert_in_place
from meshes import keys_of_shard, mesh_of
from support import HostRow, Twins, assert_same_rows, export, gradients
from tiered import ADAM, above_store

OPTIMIZERS = {
    "sgd": jde.optim.sgd(0.1),
    "adam": ADAM,
    "rowwise_adagrad": jde.optim.rowwise_adagrad(0.1),
}


def host_rows(rows: Exported) -> list[tuple[int, HostRow]]:
    """Departed rows in their order."""
    states = rows.optimizer_state
    return [
        (key, HostRow(rows.rows[i], {n: x[i] for n, x in states.items()}, score))
        for i, (key, score) in enumerate(
            zip(rows.keys.tolist(), rows.scores.tolist(), strict=True)
        )
    ]


def take(twins: Twins, tolerance: dict) -> int:
    """Takes the departed rows of both, and compares them."""
    twins.state, departed = twins.coll.take_departed(twins.state)
    got = host_rows(departed.exported("t"))
    want = twins.oracle.tables["t"].take_departed()
    assert sorted(key for key, _ in got) == sorted(key for key, _ in want)
    for key in {key for key, _ in want}:  # in order, where one left twice
        ours = [row for k, row in got if k == key]
        for one, two in zip(ours, [row for k, row in want if k == key], strict=True):
            np.testing.assert_allclose(one.values, two.values, **tolerance)
            assert one.score == two.score
            for name, state in one.state.items():
                np.testing.assert_allclose(state, two.state[name], **tolerance)
    return len(got)


ALL = list(range(900))
# A table of 256 slots has two buckets. With the ids of one of them it is known
# which one gets the last places of a ring.
FIRST = keys_of_shard(0, 2, 600)


def walk(
    twins: Twins, steps: int, tolerance: dict, keys: list[int] = ALL, size: int = 60
) -> int:
    """Random calls, each compared with the oracle's."""
    rng = np.random.default_rng(0)
    taken = 0

    def ids() -> list[int]:
        return rng.choice(keys, size, replace=False).tolist()

    for step in range(steps):
        held = ids()
        twins.state = twins.coll.hold(
            twins.state, {"t": jde.ids(held)}, lookups=1 + step % 3
        )
        twins.oracle.hold({"t": held}, 1 + step % 3)
        twins.train({"t": ids()}, seed=step)
        if step % 3 == 1:
            twins.erase({"t": ids()})
        if step % 3 == 2:
            rows = rng.normal(size=(size, twins.coll.tables["t"].dim))
            twins.insert({"t": ids()}, {"t": rows})
        if step % 2 == 1:
            twins.state = twins.coll.prefetch(twins.state, {"t": jde.ids(ids())})
        if step % 4 == 2:
            taken += take(twins, tolerance)
    return taken + take(twins, tolerance)


TOLERANCE = {"rtol": 2e-5, "atol": 1e-6}


@pytest.mark.parametrize("strategy", ["step", "lfu"])
@pytest.mark.parametrize("frames", [4, 64])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_random_walk(platform, optimizer, frames, strategy):
    config = above_store(
        400, frames, optimizer=OPTIMIZERS[optimizer], score_strategy=strategy
    )
    twins = Twins(config)
    taken = walk(twins, 9, TOLERANCE)
    twins.check()
    stats = twins.coll.stats(twins.state)
    assert taken == stats["t/departed"] == stats["t/evicted"] > 200
    assert stats["t/ring_full"] == 0 and stats["t/held"] > 0
    rows = stats["t/rows"] + stats["t/departed"] + stats["t/erased"]
    assert stats["t/inserted"] == rows


def test_a_full_ring_refuses_newcomers(platform):
    twins = Twins(above_store(20))
    taken = walk(twins, 9, TOLERANCE, FIRST)
    twins.check()
    stats = twins.coll.stats(twins.state)
    assert taken == stats["t/departed"] and stats["t/ring_full"] > 50
    assert stats["t/refused"] >= stats["t/ring_full"]


@dataclasses.dataclass
class Stream:
    """A table above a store, and a table that never has to evict, fed alike."""

    coll: jde.Tables
    large: jde.Tables

    @classmethod
    def of(cls, config: jde.TableConfig, **placement) -> "Stream":
        large = dataclasses.replace(config, tier=None, capacity=1 << 14)
        return cls(jde.Tables([config], **placement), jde.Tables([large], **placement))

    @staticmethod
    def step(coll: jde.Tables):
        @functools.partial(jax.jit, donate_argnums=0)
        def run(state, ids, d_rows):
            rows, residual, state = coll.lookup(state, {"t": ids})
            return rows["t"], coll.apply_gradients(state, residual, {"t": d_rows})

        return run

    def compare(self, steps: int) -> dict[str, float]:
        """Ids come for a while and never again, so a departed row is final."""
        states = [self.coll.init(3), self.large.init(3)]
        runs: list[Any] = [self.step(self.coll), self.step(self.large)]
        rng, departed, spent = np.random.default_rng(0), {}, None
        dim = self.coll.tables["t"].dim
        for i in range(steps):
            ids = jde.ids(40 * i + rng.integers(0, 80, 64))
            d_rows = jnp.asarray(gradients((64, dim), i))
            results = []
            for k, run in enumerate(runs):
                rows, states[k] = run(states[k], ids, d_rows)
                results.append(rows)
            np.testing.assert_array_equal(*results)
            states[0], taken = self.coll.take_departed(states[0], reuse=spent)
            for key, row in host_rows(taken.exported("t")):
                assert key not in departed
                departed[key] = row
            spent = taken
        stats = self.coll.stats(states[0])
        rows = export(self.coll, states[0], "t")
        assert not rows.keys() & departed.keys()
        assert_same_rows(rows | departed, export(self.large, states[1], "t"))
        assert stats["t/departed"] == len(departed) > 0
        assert stats["t/refused"] == stats["t/ring_full"] == 0
        assert runs[0]._cache_size() <= 2  # arrays of init, and of a step
        return stats


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_with_its_ring_it_is_a_table_that_never_evicts(platform, dtype):
    Stream.of(above_store(80, param_dtype=dtype)).compare(12)


# Shardy crashes there on the loop of rounds within shard_map (concepts/tiers.md).
@pytest.mark.skipif(
    jax.__version_info__[:2] == (0, 11), reason="the compiler of jaxlib 0.11 crashes"
)
@pytest.mark.parametrize("sharding", ["row_wise", "table_wise"])
def test_on_a_mesh(sharding):
    config = above_store(80, capacity=1024, sharding=sharding)
    Stream.of(config, mesh=mesh_of(8)).compare(30)


def step_of(coll: jde.Tables):
    @functools.partial(jax.jit, donate_argnums=0)
    def step(state, ids):
        state = coll.hold(state, {"t": ids[:5]}, lookups=2)
        rows, residual, state = coll.lookup(state, {"t": ids})
        state = coll.apply_gradients(state, residual, rows)
        return coll.insert(state, {"t": ids + 2000}, {"t": rows["t"]})

    return step


def test_nothing_is_copied(platform):
    coll = jde.Tables([above_store(64, capacity=4096)])
    assert_in_place(step_of(coll), coll.init(0), jde.ids(np.arange(64)))


def test_in_a_scan(platform):
    """Several lookups and inserts in one program share a ring."""
    coll = jde.Tables([above_store(2000)])
    batches = np.stack([np.arange(64) + 50 * i for i in range(6)])
    step = step_of(coll)
    one = coll.init(0)
    for batch in batches:
        one = step(one, jde.ids(batch))

    @functools.partial(jax.jit, donate_argnums=0)
    def scanned(state, batches):
        body = lambda state, ids: (step(state, ids), None)  # noqa: E731
        return jax.lax.scan(body, state, batches)[0]

    many = scanned(coll.init(0), jde.ids(batches))
    got, want = (coll.departed(s).exported("t") for s in (many, one))
    assert len(got.keys) == len(want.keys) > 300
    order = [np.lexsort((x.scores.astype(np.int64), x.keys)) for x in (got, want)]
    for a, b in ((got.keys, want.keys), (got.rows, want.rows)):
        np.testing.assert_array_equal(a[order[0]], b[order[1]])


def test_a_store_packs_departed_rows(platform):
    config = above_store(300)
    coll = jde.Tables([config])
    state = coll.init(0)
    step = Stream.step(coll)
    for i in range(6):
        ids = jde.ids(np.arange(64) + 70 * i)
        _, state = step(state, ids, jnp.ones((64, 6)))
    state, departed = coll.take_departed(state)
    departed.start_copy()
    rows = departed.exported("t")
    assert departed.is_ready() and departed.tables == ("t",)
    layout = Layout.of(config)
    back = layout.unpack(rows.keys, layout.pack(rows))
    np.testing.assert_array_equal(back.rows, rows.rows)
    np.testing.assert_array_equal(back.scores, rows.scores)
    assert len(coll.departed(state).exported("t").keys) == 0


def hold(twins: Twins, ids: list[int], lookups: int) -> None:
    held = {"t": jde.ids(ids)}
    twins.state = twins.coll.hold(twins.state, held, lookups=lookups)
    twins.oracle.hold({"t": ids}, lookups)


def stored(twins: Twins) -> set[int]:
    """The ids of the table, which are the oracle's."""
    twins.check()
    return set(export(twins.coll, twins.state, "t"))


def test_held_rows_stay_for_so_many_lookups(platform):
    twins = Twins(above_store(1000))
    old, others = FIRST[:128], FIRST[128:]
    twins.train({"t": old}, seed=0)
    hold(twins, old, 2)
    hold(twins, old[:64], 1)  # the longer one stays
    twins.insert({"t": others[:1]}, {"t": np.ones((1, 6))})  # as the next lookup
    assert stored(twins) == set(old)
    for new in others[1:3]:
        twins.train({"t": [new]}, seed=1)
        assert stored(twins) == set(old)
    twins.train({"t": [others[3]]}, seed=2)
    assert stored(twins) == {*old[1:], others[3]}
    # The row in that slot is a new one: nothing holds it.
    hold(twins, old[1:2], 1)
    twins.train({"t": others[4:131]}, seed=3)
    assert stored(twins) == {old[1], *others[4:131]}
    assert twins.coll.stats(twins.state)["t/refused"] == 3


def test_pins_and_holds_do_not_know_of_each_other(platform):
    twins = Twins(above_store(1000))
    old, others = FIRST[:128], FIRST[128:]
    pinned, both, held = old[3:6]
    twins.train({"t": old}, seed=0)
    twins.state = twins.coll.pin(twins.state, {"t": jde.ids([pinned, both])})
    twins.oracle.pin({"t": [pinned, both]})
    hold(twins, [both, held], 1)
    twins.state = twins.coll.unpin(twins.state, {"t": jde.ids([both])})
    twins.oracle.pin({"t": [both]}, pins=False)
    twins.train({"t": others[:125]}, seed=1)
    assert stored(twins) == {pinned, both, held, *others[:125]}
    twins.train({"t": others[125:252]}, seed=1)
    assert stored(twins) == {pinned, *others[125:252]}


def test_erased_rows_do_not_depart(platform):
    coll = jde.Tables([above_store(100)])
    state = coll.init(0)
    step = Stream.step(coll)
    _, state = step(state, jde.ids(np.arange(64)), jnp.ones((64, 6)))
    state = coll.erase(state, {"t": jde.ids(np.arange(30))})
    _, state = coll.erase_where(state, {"t": jde.lifecycle.Rule(unused_for=0)})
    state = coll.clear(state)
    assert len(coll.departed(state).exported("t").keys) == 0


def test_a_checkpoint_leaves_ring_and_holds_out(platform, tmp_path):
    coll = jde.Tables([above_store(300)])
    state = coll.init(0)
    step = step_of(coll)
    for i in range(6):
        state = step(state, jde.ids(np.arange(64) + 70 * i))
    assert len(coll.departed(state).exported("t").keys) > 0
    jde.checkpoint.save(tmp_path, 1, state, tables=coll, wait=True)
    back = jde.checkpoint.restore(tmp_path, coll.init(1), tables=coll).tree
    assert_same_rows(export(coll, back, "t"), export(coll, state, "t"))
    assert len(coll.departed(back).exported("t").keys) == 0
    assert not np.asarray(back["t"].tier.held).any()


MISTAKES = [
    (lambda c, s: c.hold(s, {"u": jde.ids([1])}, lookups=1), "Use pin for it"),
    (lambda c, s: c.hold(s, {"t": jde.ids([1])}, lookups=0), "from 1 to 65535"),
    (lambda c, s: c.departed(s).exported("u"), "a tier with a store"),
]


@pytest.mark.parametrize("call, message", MISTAKES)
def test_mistakes(call, message):
    coll = jde.Tables([above_store(8), jde.TableConfig("u", 4, 128)])
    with pytest.raises(ValueError, match=message):
        call(coll, coll.init(0))
