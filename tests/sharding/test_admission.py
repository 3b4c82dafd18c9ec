# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Rules for unseen ids on a mesh: the same decisions as on one device."""

import jax
import numpy as np
import pytest

import jax_dynemb as jde
from jax_dynemb.admission import Exact, Frequency, Probability, Sketch
from keys import keys_of_bucket
from meshes import mesh_of
from support import Twins, export

TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}
# Small: keys share counters, which must be the same ones on every mesh.
RULES = [
    Probability(0.3),
    Frequency(4, Sketch(1 << 9)),
    Frequency(300, Sketch(1 << 12)),
]


def tables(rule, policy: str) -> list[jde.TableConfig]:
    """A table of each sharding, pooled ones too."""
    common = {"capacity": 1024, "admission": rule, "score_strategy": policy}
    return [
        jde.TableConfig("row", dim=4, feature_names=("a", "b"), **common),
        jde.TableConfig("sum", dim=8, pooling="sum", **common),
        jde.TableConfig("copy", dim=4, sharding="replicated", **common),
        jde.TableConfig("column", dim=32, sharding="column_wise", **common),
        jde.TableConfig("whole", dim=4, sharding="table_wise", **common),
        jde.TableConfig("other", dim=4, sharding="table_wise", **common),
    ]


def batch(seed: int, size: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)

    def drawn(*shape: int) -> np.ndarray:
        return np.where(rng.random(shape) < 0.1, -1, rng.zipf(1.3, shape) % 300)

    names = ("a", "b", "copy", "column", "whole", "other")
    return {name: drawn(size) for name in names} | {"sum": drawn(size, 3)}


COIN, FEW, MANY = RULES


@pytest.mark.parametrize(
    ("policy", "rule"),
    [
        pytest.param("step", COIN, id="step-coin"),
        pytest.param("step", FEW, id="step-few"),
        pytest.param("step", MANY, id="step-many", marks=pytest.mark.slow),
        pytest.param("lfu", COIN, id="lfu-coin", marks=pytest.mark.slow),
        pytest.param("lfu", FEW, id="lfu-few", marks=pytest.mark.slow),
        pytest.param("lfu", MANY, id="lfu-many"),
    ],
)
def test_a_mesh_admits_what_one_device_admits(policy, rule):
    twins = Twins(*tables(rule, policy), mesh=mesh_of(8))
    for seed in range(4):
        twins.train(batch(seed, 64), seed=seed)
    twins.check(TOLERANCE)


@pytest.mark.parametrize("pooled", ["rows", "sums"])
def test_what_travels_does_not_matter(pooled):
    rule = Frequency(5, Sketch(1 << 9))
    twins = Twins(*tables(rule, "step"), mesh=mesh_of(4), exchange_pooled=pooled)
    for seed in range(3):
        twins.train(batch(seed, 32), seed=seed)
    twins.check(TOLERANCE)


def test_a_batch_in_several_rounds():
    rule = Frequency(3, Sketch(1 << 9), halve_every=2)
    table = jde.TableConfig("t", dim=4, capacity=8192, admission=rule)
    twins = Twins(table, mesh=mesh_of(8), exchange_factor=0.02)
    for seed in range(4):
        rng = np.random.default_rng(seed)
        twins.train({"t": rng.integers(0, 900, 1600)}, seed=seed)
    twins.check(TOLERANCE)
    assert twins.coll.stats(twins.state)["t/exchange_overflows"] > 0


CROWD = keys_of_bucket(3, 8, 400)  # for one bucket of 128 slots, on one device


def crowd(seed: int) -> np.ndarray:
    """At most 120 different ids, of which some have rows; others have to leave."""
    return np.random.default_rng(seed).choice(CROWD[70 * seed :][:120], 600)


def crowded() -> jde.TableConfig:
    rule = Frequency(2, Exact(capacity=8192))
    return jde.TableConfig("t", dim=4, capacity=1024, admission=rule)


def test_a_crowded_bucket_with_room_for_all_ids():
    """As many places as devices hold any batch, so this bucket has one round too."""
    twins = Twins(crowded(), mesh=mesh_of(2), exchange_factor=2.0)
    for seed in range(3):
        twins.train({"t": crowd(seed)}, seed=seed)
    twins.check(TOLERANCE)


def test_a_crowded_bucket_in_several_rounds():
    """Earlier rounds come first, so other ids may get the slots; no count is off."""
    coll = jde.Tables([crowded()], mesh=mesh_of(2), exchange_factor=0.05)
    state = coll.init(0)

    @jax.jit
    def step(state, ids):
        rows, residual, state = coll.lookup(state, {"t": ids})
        return coll.apply_gradients(state, residual, rows)

    for seed in range(3):
        state = step(state, jde.ids(crowd(seed)))
    numbers = {n.removeprefix("t/"): x for n, x in coll.stats(state).items()}
    assert numbers["exchange_overflows"] == 3
    assert numbers["rows"] == numbers["fullest_bucket"] == 128
    assert numbers["inserted"] == numbers["rows"] + numbers["evicted"]
    assert numbers["hits"] + numbers["misses"] == 3 * 600
    assert numbers["evicted"] > 0 and numbers["lost_updates"] == 0
    assert set(export(coll, state, "t")) < set(CROWD)


def test_sketches_are_the_same_array_on_every_mesh():
    rule = Frequency(5, Sketch(1 << 10))
    table = jde.TableConfig("t", dim=4, capacity=2048, admission=rule)
    sketches = []
    for placement in ({}, {"mesh": mesh_of(2)}, {"mesh": mesh_of(8)}):
        coll = jde.Tables([table], **placement)
        state = coll.init(0)
        lookup = jax.jit(coll.lookup, donate_argnums=0)
        for seed in range(3):
            ids = jde.ids(np.random.default_rng(seed).zipf(1.2, 256) % 1000)
            _, _, state = lookup(state, {"t": ids})
        sketches.append(np.asarray(state["t"].sketch))
        assert sketches[0].any()
        np.testing.assert_array_equal(sketches[0], sketches[-1])


def test_flags_on_a_mesh():
    coll = jde.Tables(tables(None, "step"), mesh=mesh_of(4))
    state = coll.init(0)
    lookup = jax.jit(coll.lookup, static_argnames=("touch", "insert"))
    first = {
        n: jde.ids(np.arange(x.size).reshape(x.shape)) for n, x in batch(0, 8).items()
    }
    _, _, state = lookup(state, first)
    other = {
        n: jde.ids(np.arange(x.size).reshape(x.shape) + 4)
        for n, x in batch(0, 8).items()
    }
    stored = {n: set(export(coll, state, n)) for n in coll.tables}
    _, residual, state = lookup(state, other, touch=False, insert=False)
    rows, found, touched = jax.jit(lambda s, i: coll.find(s, i, touch=True))(
        state, other
    )
    for name in coll.tables:
        rows_now = export(coll, touched, name)
        assert set(rows_now) == stored[name]
        before = export(coll, state, name)
        moved = {k for k in before if rows_now[k].score > before[k].score}
        ids = [f for f, t in coll.features.items() if t == name]
        asked = {int(k) for f in ids for k in np.asarray(other[f])[..., 0].reshape(-1)}
        assert moved == asked & stored[name]
    assert coll.stats(touched)["row/lookups"] == coll.stats(state)["row/lookups"] == 2
