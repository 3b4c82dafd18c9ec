# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Checks the log of removed keys: what was removed since a head, by any cause."""

import dataclasses
import datetime
import functools

import jax
import numpy as np
import pytest

import jax_dynemb as jde
from jax_dynemb.testing import assert_in_place
from keys import keys_of_bucket
from meshes import mesh_of
from support import Twins, stat

# So many that two buckets of 128 can not hold them.
CROWD = np.array(keys_of_bucket(0, 2, 200) + keys_of_bucket(1, 2, 200), np.int64)
CROWD = np.random.default_rng(0).permutation(CROWD)


def config(name: str = "t", **options) -> jde.TableConfig:
    options = {"dim": 4, "capacity": 256, "log_removed": 600} | options
    return jde.TableConfig(name, **options)


class Followed:
    """A table and its oracle, with the head of its log at the latest look."""

    def __init__(self, twins: Twins, name: str):
        self.twins, self.name = twins, name
        self.seen = 0
        _, self.head = twins.coll.take_removed(twins.state, name)

    def take(self) -> np.ndarray:
        """Compares the keys that the oracle has removed since, but for those back."""
        table = self.twins.oracle.tables[self.name]
        keys, self.head = self.twins.coll.take_removed(
            self.twins.state, self.name, self.head
        )
        gone = {k for k in table.removed[self.seen :] if table.get(k) is None}
        self.seen = len(table.removed)
        wanted = np.array(sorted(gone), np.uint64).view(np.int64)
        assert keys is not None
        np.testing.assert_array_equal(keys, np.sort(wanted))
        return keys


@pytest.mark.parametrize("strategy", ["step", "lfu"])
def test_all_ways_out_are_logged(platform, strategy):
    twins = Twins(config(score_strategy=strategy, keep_for=4))
    followed = Followed(twins, "t")
    left = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        twins.lookup({"t": rng.choice(CROWD, 150)})
        if seed % 3 == 0:
            twins.erase({"t": rng.choice(CROWD, 30)})
        if seed % 4 == 1:
            twins.erase_where({"t": {"unused_for": 1}})
        if seed % 2:
            left += len(followed.take())
    assert left > 100
    stats = twins.coll.stats(twins.state)
    for name in ("evicted", "evicted_young", "erased", "removed_by_rule"):
        assert stats[f"t/{name}"] > 0
    twins.check()


def test_keys_of_all_bits_and_of_32_bits():
    wide = np.array([-9, 7, -(2**63), 2**63 - 1, 0], np.int64)
    coll = jde.Tables([config(), config("narrow", key_dtype="int32")])
    narrow = np.array([5, -7, 2**31 - 1], np.int32)
    ids = {"t": jde.ids(wide), "narrow": narrow}
    _, _, state = coll.lookup(coll.init(), ids)
    state = coll.erase(state, {"t": jde.ids(wide[:4]), "narrow": narrow[1:]})
    keys, _ = coll.take_removed(state, "t")
    np.testing.assert_array_equal(keys, np.sort(wide[:4]))
    keys, _ = coll.take_removed(state, "narrow")
    np.testing.assert_array_equal(keys, [-7, 2**31 - 1])


def test_a_key_that_is_back_is_not_gone():
    coll = jde.Tables([config()])
    ids = {"t": jde.ids(np.arange(10))}
    _, _, state = coll.lookup(coll.init(), ids)
    _, head = coll.take_removed(state, "t")
    state = coll.erase(state, {"t": jde.ids(np.arange(6))})
    _, _, state = coll.lookup(state, {"t": jde.ids(np.arange(3))})
    keys, later = coll.take_removed(state, "t", head)
    np.testing.assert_array_equal(keys, [3, 4, 5])
    # Reading changes nothing: a second reader sees the same, a head is plain numbers.
    again, same = coll.take_removed(state, "t", list(head))
    np.testing.assert_array_equal(again, keys)
    assert same == later and all(type(n) is int for n in later)
    none, _ = coll.take_removed(state, "t", later)
    assert none is not None and len(none) == 0


def test_overwritten_keys_give_none():
    twins = Twins(config(log_removed=32))
    twins.lookup({"t": CROWD[:100]})
    followed = Followed(twins, "t")
    twins.erase({"t": CROWD[:20]})
    followed.take()
    old = followed.head
    twins.lookup({"t": CROWD})
    twins.erase({"t": CROWD})
    keys, head = twins.coll.take_removed(twins.state, "t", old)
    assert keys is None
    # The log goes on from there.
    twins.lookup({"t": CROWD[:50]})
    twins.erase({"t": CROWD[10:20]})
    keys, _ = twins.coll.take_removed(twins.state, "t", head)
    np.testing.assert_array_equal(keys, np.sort(CROWD[10:20]))


def test_the_log_holds_as_many_random_keys_as_it_says():
    coll = jde.Tables([config(capacity=1 << 15, log_removed=5000)])
    for seed in range(5):
        keys = np.random.default_rng(seed).integers(0, 2**62, 5000)
        _, _, state = coll.lookup(coll.init(), {"t": jde.ids(keys)})
        state = coll.erase(state, {"t": jde.ids(keys)})
        taken, _ = coll.take_removed(state, "t")
        np.testing.assert_array_equal(taken, np.unique(keys))


def test_clear_leaves_nothing_to_read():
    coll = jde.Tables([config()])
    _, _, state = coll.lookup(coll.init(), {"t": jde.ids(CROWD[:50])})
    state = coll.erase(state, {"t": jde.ids(CROWD[:5])})
    _, head = coll.take_removed(state, "t")
    state = coll.clear(state)
    assert coll.take_removed(state, "t", head)[0] is None
    assert coll.take_removed(state, "t")[0] is None
    _, head = coll.take_removed(state, "t")
    _, _, state = coll.lookup(state, {"t": jde.ids(CROWD[:50])})
    state = coll.erase(state, {"t": jde.ids(CROWD[:5])})
    keys, _ = coll.take_removed(state, "t", head)
    np.testing.assert_array_equal(keys, np.sort(CROWD[:5]))


def test_another_table_gives_none():
    coll = jde.Tables([config()])
    _, head = coll.take_removed(coll.init(), "t")
    assert coll.take_removed(coll.init(), "t", head)[0] is None


@pytest.mark.parametrize(("capacity", "reaches"), [(1024, False), (1 << 14, True)])
def test_growth_keeps_the_log_where_its_parts_stay(capacity, reaches):
    coll = jde.Tables([config(capacity=capacity)])
    _, _, state = coll.lookup(coll.init(), {"t": jde.ids(CROWD)})
    _, head = coll.take_removed(state, "t")
    state = coll.erase(state, {"t": jde.ids(CROWD[:30])})
    coll, state = coll.grow(state, {"t": 2 * capacity})
    keys, head = coll.take_removed(state, "t", head)
    assert (keys is not None) == reaches
    if reaches:
        np.testing.assert_array_equal(keys, np.sort(CROWD[:30]))
    state = coll.erase(state, {"t": jde.ids(CROWD[30:40])})
    keys, _ = coll.take_removed(state, "t", head)
    np.testing.assert_array_equal(keys, np.sort(CROWD[30:40]))


def test_a_checkpoint_keeps_the_log(tmp_path):
    coll = jde.Tables([config()])
    _, _, state = coll.lookup(coll.init(), {"t": jde.ids(CROWD[:50])})
    _, head = coll.take_removed(state, "t")
    state = coll.erase(state, {"t": jde.ids(CROWD[:9])})
    jde.checkpoint.save(tmp_path, 1, state, tables=coll)
    mesh = jde.Tables([config(capacity=256)], mesh=mesh_of(2))
    for other in (coll, mesh):
        new = jde.checkpoint.restore(tmp_path, other.init(1), tables=other).tree
        keys, _ = other.take_removed(new, "t", head)
        np.testing.assert_array_equal(keys, np.sort(CROWD[:9]))
    # Another size of the log, or none before: it begins again, and says so.
    bigger = jde.Tables([config(log_removed=4000)])
    restored = jde.checkpoint.restore(tmp_path, bigger.init(1), tables=bigger)
    assert "log of removed keys" in " ".join(restored.notes)
    assert bigger.take_removed(restored.tree, "t", head)[0] is None
    assert bigger.stats(restored.tree)["t/rows"] == 41


def test_tables_beside_it_share_arrays_as_before():
    plain = [config(name, log_removed=0) for name in "abc"]
    coll = jde.Tables([*plain, config("logged")], share_arrays=True)
    assert {coll.state_name(name) for name in "abc"} == {"a+2"}
    assert coll.state_name("logged") == "logged"
    assert coll.init()["a+2"].removed is None
    ids = {name: jde.ids(CROWD[:40]) for name in coll.tables}
    _, _, state = coll.lookup(coll.init(), ids)
    state = coll.erase(state, {name: jde.ids(CROWD[:4]) for name in coll.tables})
    keys, _ = coll.take_removed(state, "logged")
    np.testing.assert_array_equal(keys, np.sort(CROWD[:4]))


def test_it_is_written_in_place():
    coll = jde.Tables([config(capacity=1024)])
    state = coll.init()

    @functools.partial(jax.jit, donate_argnums=0)
    def step(state, ids):
        _, _, state = coll.lookup(state, {"t": ids})
        return coll.erase(state, {"t": ids[:4]})

    assert_in_place(step, state, jde.ids(CROWD[:32]))


MESH_TABLES = [
    config("rows", sharding="row_wise", capacity=1024, keep_for=1),
    config("copy", sharding="replicated", keep_for=1),
    config("columns", sharding="column_wise", dim=32),
    *(config(f"w{n}", sharding="table_wise", dim=6, keep_for=1) for n in range(3)),
]


@pytest.mark.slow
def test_on_a_mesh_as_on_one_device():
    twins = Twins(*MESH_TABLES, mesh=mesh_of(8))
    followed = [Followed(twins, name) for name in twins.coll.tables]
    crowd = np.random.default_rng(0).integers(-(2**60), 2**60, 1400)
    for seed in range(5):
        rng = np.random.default_rng(seed)
        ids = {
            t.name: rng.choice(crowd, 400 if t.name == "rows" else 160)
            for t in MESH_TABLES
        }
        if seed == 2:
            del ids["w1"]  # a table of a stack that is not looked up
        twins.lookup(ids)
        twins.erase({name: each[:16] for name, each in ids.items()})
        twins.erase_where({"rows": {"unused_for": 1, "keep_at_least": 600}})
        for each in followed:
            each.take()
    stats = twins.coll.stats(twins.state)
    assert stats["rows/removed_by_rule"] > 0
    assert stats["copy/evicted_young"] > 0 and stats["w0/evicted"] > 0
    twins.check()
    state = twins.coll.clear(twins.state)
    assert twins.coll.take_removed(state, "w0", followed[3].head)[0] is None


def test_young_rows_that_leave_make_growth_due():
    coll = jde.Tables([config(max_capacity=1024, keep_for=2, grow_at=1.0)])
    state = coll.init()
    for first in (0, 100, 200):
        _, _, state = coll.lookup(state, {"t": jde.ids(CROWD[first : first + 100])})
    before = coll.stats(state)
    assert before["t/evicted_young"] == before["t/evicted"] > 0
    assert coll.growth_due(before) == {"t": 512}
    assert coll.growth_due(before, before) == {}
    bounded = jde.Tables([config(keep_for=2)])  # no bound, so it never grows
    assert bounded.growth_due(before) == {}


def test_old_rows_may_leave():
    twins = Twins(config(keep_for=1))
    twins.lookup({"t": CROWD[:200]})
    for _ in range(3):
        twins.lookup({"t": CROWD[:1]})
    twins.lookup({"t": CROWD[200:400]})
    assert stat(twins, "t/evicted") > 0
    assert stat(twins, "t/evicted_young") == 0


def test_a_time_for_timestamps():
    hour = datetime.timedelta(hours=1)
    table = config(score_strategy="timestamp", keep_for=hour)
    assert table.keep_for == 3_600 * 10**9
    coll = jde.Tables([table])
    state = coll.init()
    for part in (CROWD[:200], CROWD[200:]):
        _, _, state = coll.lookup(state, {"t": jde.ids(part)})
    stats = coll.stats(state)
    assert stats["t/evicted_young"] == stats["t/evicted"] > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"log_removed": -1}, "log_removed must be 0 to"),
        ({"log_removed": 1.5}, "log_removed must be an int"),
        ({"keep_for": 0}, "keep_for must be 1 or more"),
        ({"keep_for": True}, "keep_for must be a number"),
        ({"keep_for": 3, "on_full": "refuse"}, "evicts none"),
        ({"keep_for": datetime.timedelta(1)}, "score_strategy='timestamp'"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        config(**options)


def test_a_table_without_a_log_says_so():
    coll = jde.Tables([config(log_removed=0)])
    with pytest.raises(ValueError, match="set TableConfig\\(log_removed=n\\)"):
        coll.take_removed(coll.init(), "t")


def test_a_head_that_is_none():
    coll = jde.Tables([config()])
    state = coll.init()
    _, head = coll.take_removed(state, "t")
    for other in (3, "head", (*head[:2], -1), [float(n) for n in head], (2**64,)):
        with pytest.raises(TypeError, match="an earlier take_removed returned, not"):
            coll.take_removed(state, "t", other)
    for other in ((), head[:2], (*head, 0), [n + 9 for n in head]):
        assert coll.take_removed(state, "t", other)[0] is None


def test_a_state_of_another_log_is_refused():
    with_log = jde.Tables([config()])
    without = jde.Tables([dataclasses.replace(config(), log_removed=0)])
    ids = {"t": jde.ids(CROWD[:4])}
    with pytest.raises(ValueError, match="'removed' is absent"):
        with_log.lookup(without.init(), ids)
    with pytest.raises(ValueError, match="expected absent"):
        without.lookup(with_log.init(), ids)


def test_not_inside_jit():
    coll = jde.Tables([config()])
    with pytest.raises(TypeError, match="take_removed"):
        jax.jit(lambda state: coll.take_removed(state, "t"))(coll.init())
