# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""``find(touch=True)`` moves scores and nothing else, the same on every layout."""

import functools

import jax
import numpy as np
import pytest

import jax_dynemb as jde
from meshes import mesh_of
from support import HostJagged, assert_same_rows, export, gradients, to_device

LAYOUTS = ("row_wise", "table_wise", "column_wise", "replicated")
STRATEGIES = ("step", "lfu", "customized")
# What only tables on a mesh count, and what their owners count once for a device.
OF_A_MESH = ("exchange", "fullest_shard", "hits", "misses", "hbm_hit_rate", "bus_giga")


def collection(sharding: str, tier, **placement) -> jde.Tables:
    """A table of each score strategy, one of them pooled over jagged bags."""
    return jde.Tables(
        [
            jde.TableConfig(
                name=name,
                dim=16,
                capacity=1024,
                pooling="sum" if name == "lfu" else None,
                optimizer=jde.optim.adagrad(0.1),
                score_strategy=name,
                sharding=sharding,
                tier=tier,
            )
            for name in STRATEGIES
        ],
        **placement,
    )


def batch(first: int, size: int = 24) -> dict:
    keys = np.arange(first, first + size)
    bags = [[k, k, k + 1] for k in keys[: size // 2].tolist()]
    jagged = HostJagged.of(bags, capacity=2 * size)
    ids = {"step": keys, "lfu": jagged, "customized": np.append(keys[1:], keys[1])}
    return {name: to_device(each) for name, each in ids.items()}


def run(coll: jde.Tables):
    """Trains, then touches rows of which some are stored; counters before and after."""
    score = {"customized": np.uint32(7)}

    @functools.partial(jax.jit, donate_argnums=0)
    def train(state, ids, d_rows):
        _, residual, state = coll.lookup(state, ids, scores=score)
        return coll.apply_gradients(state, residual, d_rows)

    @functools.partial(jax.jit, donate_argnums=0)
    def touch(state, ids, counts):
        later = {"customized": np.uint32(9)}
        return coll.find(state, ids, touch=True, scores=later, counts=counts)

    state = coll.init(3)
    shapes = {"step": (24, 16), "lfu": (12, 16), "customized": (24, 16)}
    d_rows = {name: gradients(shape, 1) for name, shape in shapes.items()}
    for first in (0, 24, 48):
        state = train(state, batch(first), d_rows)
    before = coll.stats(state)
    counts = {"lfu": np.arange(48, dtype=np.uint32)}
    rows, found, state = touch(state, batch(40), None)
    *_, state = touch(state, batch(8), counts)
    return rows, found, state, before, coll.stats(state)


@functools.cache
def on_one_device(tiered: bool):
    coll = collection("row_wise", TIER if tiered else None)
    return coll, *run(coll)


TIER = jde.tiers.host(hbm_fraction=4 / 128, spill_rows=48)


CASES = [(layout, False) for layout in LAYOUTS]
CASES += [("row_wise", True), ("table_wise", True)]  # others refuse a tier


@pytest.mark.parametrize(("sharding", "tiered"), CASES)
def test_every_layout_equals_one_device(sharding, tiered):
    tier = TIER if tiered else None
    coll = collection(sharding, tier, mesh=mesh_of(2))
    rows, found, state, before, after = run(coll)
    alone, rows_, found_, state_, before_, after_ = on_one_device(tiered)
    assert after == before and after_ == before_  # counters say nothing of a touch
    shared = [k for k in after_ if not k.split("/")[1].startswith(OF_A_MESH)]
    assert len(shared) > 15 * len(STRATEGIES)
    tier_counts = ("promoted", "bypassed", "prefetched", "written_back", "spilled")
    for name in shared:
        if not name.endswith(tier_counts):  # frames are those of a shard
            assert after[name] == after_[name], name
    for name in STRATEGIES:
        np.testing.assert_allclose(rows[name], rows_[name], rtol=1e-6, atol=1e-6)
        np.testing.assert_array_equal(found[name], found_[name])
        got, want = export(coll, state, name), export(alone, state_, name)
        assert {k: r.score for k, r in got.items()} == {
            k: r.score for k, r in want.items()
        }
        assert got.keys() == want.keys()
    assert len({r.score for r in export(coll, state, "step").values()}) > 3


def test_a_touch_moves_no_row_between_homes():
    coll = collection("row_wise", TIER, mesh=mesh_of(2))
    _, _, state, _, _ = run(coll)
    kept = jax.device_get(state["step"])
    *_, state = jax.jit(lambda s: coll.find(s, batch(0), touch=True))(state)
    new = jax.device_get(state["step"])
    np.testing.assert_array_equal(new.tier.location, kept.tier.location)
    np.testing.assert_array_equal(new.tier.owners, kept.tier.owners)
    np.testing.assert_array_equal(new.tier.counters, kept.tier.counters)
    assert (new.index != kept.index).any()


def test_more_ids_than_one_round_takes():
    coll = collection("row_wise", None, mesh=mesh_of(2), exchange_factor=0.1)
    alone = jde.Tables(list(coll.tables.values()))
    scores = []
    for each in (coll, alone):
        ids = {"step": to_device(np.arange(400))}
        state = jax.jit(each.lookup)(each.init(0), ids)[2]
        *_, state = jax.jit(lambda s, i, c=each: c.find(s, i, touch=True))(state, ids)
        scores.append(export(each, state, "step"))
    assert_same_rows(*scores)
    assert len({row.score for row in scores[0].values()}) == 1
