# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Pinned rows: what keeps them, and what removes them all the same."""

import contextlib
import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jax_dynemb as jde
from jax_dynemb import checkpoint
from keys import keys_of_bucket
from meshes import mesh_of
from support import Twins, export

STRATEGIES = [str(strategy.value) for strategy in jde.ScoreStrategy]
CONFIG = jde.TableConfig("t", 4, 256, score_strategy="lfu")
ANY = st.lists(st.integers(0, 500), min_size=1, max_size=150)


def ids(keys) -> dict:
    return {"t": jde.ids(np.asarray(keys))}


def pin(twins: Twins, keys, pins: bool = True) -> None:
    change = twins.coll.pin if pins else twins.coll.unpin
    twins.state = change(twins.state, ids(keys))
    twins.oracle.pin({"t": np.asarray(keys)}, pins)


def pinned_of(coll, state) -> set[int]:
    chunks = list(coll.export(state, "t"))
    return {int(k) for c in chunks for k in c.keys[c.pinned]}


def check(twins: Twins) -> None:
    """Rows, scores, pins and counters are those of the reference."""
    twins.check()
    expected = twins.oracle.export("t")
    if twins.coll.tables["t"].score_strategy != "timestamp":
        rows = export(twins.coll, twins.state, "t")
        assert {k: r.score for k, r in rows.items()} == {
            k: r.score for k, r in expected.items()
        }
    pins = {key for key, row in expected.items() if row.pinned}
    assert pinned_of(twins.coll, twins.state) == pins
    assert twins.coll.stats(twins.state)["t/pinned"] == len(pins)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_pinned_rows_outlive_all_others(platform, strategy):
    twins = Twins(jde.TableConfig("t", 4, 256, score_strategy=strategy))
    keys = keys_of_bucket(0, 2, 300)
    twins.lookup({"t": keys[:120]})
    pin(twins, [*keys[:5], keys[0], -1, 10**9])
    for first in (120, 220, 180):
        twins.lookup({"t": keys[first : first + 120][:80]})
    twins.lookup({"t": keys[:3]})  # a use keeps the pin
    check(twins)
    pin(twins, keys[1:3], False)
    twins.lookup({"t": keys[60:180]})
    check(twins)


def test_a_decaying_count_keeps_its_pin(platform):
    twins = Twins(dataclasses.replace(CONFIG, lfu_halflife=2))
    keys = keys_of_bucket(0, 2, 200)
    twins.lookup({"t": keys[:100]})
    pin(twins, keys[:2])
    for _ in range(4):
        twins.lookup({"t": keys[100:200]})
    twins.lookup({"t": keys[:1]})
    check(twins)


def test_a_bucket_of_pinned_rows_refuses(platform):
    twins = Twins(CONFIG)
    keys = keys_of_bucket(0, 2, 130)
    twins.lookup({"t": keys[:128]})
    pin(twins, keys[:128])
    twins.lookup({"t": keys[128:]})
    assert twins.coll.stats(twins.state)["t/refused"] == 2
    check(twins)
    twins.erase({"t": keys[:1]})
    twins.lookup({"t": keys[128:]})
    check(twins)


@settings(max_examples=15)
@given(st.lists(st.tuples(st.sampled_from("pulei"), ANY), min_size=3, max_size=8))
def test_any_history(history):
    """Pins, releases, lookups, erasures, rules and inserts against the reference."""
    twins = Twins(CONFIG)
    for what, keys in history:
        padded = np.full(150, -1)
        padded[: len(keys)] = keys
        if what in "pu":
            pin(twins, padded, what == "p")
        elif what == "l":
            twins.lookup({"t": padded})
        elif what == "e":
            twins.erase({"t": padded})
        else:
            twins.erase_where({"t": {"count_below": 2, "keep_at_most": len(keys)}})
    check(twins)


def test_rules_pass_over_pinned_rows(platform):
    twins = Twins(CONFIG)
    twins.lookup({"t": np.arange(100)})
    pin(twins, np.arange(10))
    assert twins.erase_where({"t": {"count_below": 5, "keep_at_least": 20}}) == {
        "t": 70
    }
    assert twins.erase_where({"t": {"keep_at_most": 0}}) == {"t": 20}
    check(twins)
    twins.state = twins.coll.clear(twins.state)
    assert twins.coll.stats(twins.state)["t/pinned"] == 0


@pytest.mark.parametrize("sharding", ["row_wise", "replicated"])
def test_eight_devices_pin_as_one(sharding):
    config = dataclasses.replace(CONFIG, capacity=1024, sharding=sharding)
    twins = Twins(config, mesh=mesh_of(8))
    rng = np.random.default_rng(0)
    keys = rng.integers(0, 5000, 800)
    twins.lookup({"t": keys})
    pin(twins, keys[:100])
    twins.lookup({"t": keys + 5000})
    check(twins)
    pin(twins, keys[:50], False)
    check(twins)


def test_pins_travel(tmp_path):
    small, large = CONFIG, dataclasses.replace(CONFIG, capacity=1024)
    first = jde.Tables([large])
    keys = np.arange(600)
    state = first.lookup(first.init(0), ids(keys))[2]
    state = first.pin(state, ids(keys[:40]))
    wanted = set(range(40))
    checkpoint.save(tmp_path, 1, state, tables=first, wait=True)
    for config in (large, small):  # as it is; and filled again, with fewer rows
        coll = jde.Tables([config])
        said = contextlib.nullcontext()
        if config is small:
            said = pytest.warns(UserWarning, match="rows found no place")
        with said:
            again = checkpoint.restore(
                tmp_path, coll.init(0), tables=coll, allow_drop=True
            ).tree
        assert pinned_of(coll, again) == wanted
        assert coll.stats(again)["t/pinned"] == 40
    larger, grown = first.grow(state, {"t": 4096})
    assert pinned_of(larger, grown) == wanted


def test_a_delta_carries_pins():
    coll = jde.Tables([CONFIG])
    state = coll.lookup(coll.init(0), ids(np.arange(20)))[2]
    state = coll.pin(state, ids([1, 2, 3]))
    replica = coll.apply_delta(coll.init(0), "t", coll.export(state, "t"))
    assert pinned_of(coll, replica) == {1, 2, 3}
    mark = coll.get_score(state)["t"]
    state = coll.unpin(coll.pin(state, ids([7])), ids([1]))
    state = coll.lookup(state, ids([1]))[2]  # a release alone is not seen
    replica = coll.apply_delta(replica, "t", coll.export(state, "t", since=mark))
    assert pinned_of(coll, replica) == {2, 3, 7}
