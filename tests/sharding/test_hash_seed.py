# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tables with hashes of their own on a mesh: the oracle is one device."""

import dataclasses

import numpy as np
import pytest

import jax_dynemb as jde
from growth import TABLES, check_growth
from meshes import mesh_of
from oracle import bucket_of
from support import HostJagged, Twins, assert_same_rows, compiled, export

SEED = 0x8D3A_51C2_9B6E_F017
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}


def tables() -> list[jde.TableConfig]:
    """One of each sharding; two row-wise tables have different seeds, one has none."""
    common = {"capacity": 1024, "optimizer": jde.optim.adagrad(0.1)}
    return [
        jde.TableConfig("seq", dim=12, hash_seed=SEED, **common),
        jde.TableConfig("sum", dim=4, pooling="sum", hash_seed=1, **common),
        jde.TableConfig("mean", dim=4, pooling="mean", **common),
        jde.TableConfig(
            "copy", dim=5, sharding="replicated", hash_seed=2**64 - 1, **common
        ),
        jde.TableConfig(
            "cols", dim=32, sharding="column_wise", hash_seed=SEED, **common
        ),
    ]


def batch(seed: int, size: int) -> dict:
    rng = np.random.default_rng(seed)
    bags = [list(rng.integers(0, 400, n)) for n in rng.integers(0, 5, size)]
    return {
        "seq": rng.integers(-1, 1500, (size, 3)),
        "sum": rng.integers(-1, 1500, (size, 4)),
        "mean": HostJagged.of(bags, capacity=5 * size),
        "copy": rng.integers(-1, 300, size),
        "cols": rng.integers(-1, 300, size),
    }


@pytest.mark.slow
@pytest.mark.parametrize("pooled", ["rows", "sums"])
def test_equals_one_device(pooled):
    twins = Twins(*tables(), mesh=mesh_of(4), exchange_pooled=pooled)
    for step in range(3):
        ids = batch(step, 40)
        twins.train(ids, seed=step)
        twins.find(ids)
    keys = np.arange(0, 1500, 7)
    twins.insert({"seq": keys}, {"seq": np.ones((len(keys), 12), np.float32)})
    twins.erase({"seq": np.arange(0, 1500, 5), "sum": np.arange(200)})
    twins.check(TOLERANCE)


def test_ids_lie_with_their_owners():
    """The shard follows from the high bits of the hash with the seed."""
    coll = jde.Tables(tables()[:2], mesh=mesh_of(8))
    ids = {name: jde.ids(np.arange(400)) for name in ("seq", "sum")}
    _, _, state = compiled(coll).lookup(coll.init(0), ids, None, None)
    for name, seed in [("seq", SEED), ("sum", 1)]:
        rows = np.zeros(8, int)
        for key in range(400):
            rows[bucket_of(key, 8, seed)] += 1
        stats = coll.stats(state)
        assert stats[f"{name}/fullest_shard"] == pytest.approx(rows.max() / 128)
        assert stats[f"{name}/fullest_bucket"] == rows.max()  # 8 shards of a bucket
        assert stats[f"{name}/mean_bucket"] == 400 / 8


def test_rounds_of_an_exchange():
    """With room for a tenth of the ids buckets travel whole, by their hash."""
    options = {"dim": 3, "capacity": 2048}
    seeded = [
        jde.TableConfig(f"t{n}", hash_seed=seed, on_full=full, **options)
        for n, (seed, full) in enumerate([(0, "evict"), (SEED, "evict"), (3, "refuse")])
    ]
    twins = Twins(*seeded, mesh=mesh_of(2), exchange_factor=0.1)
    rng = np.random.default_rng(0)
    for step in range(2):
        ids = {t.name: rng.integers(0, 4000, 1200) for t in seeded}
        twins.train(ids, seed=step)
        twins.find(ids)
    twins.check(TOLERANCE)
    stats = twins.coll.stats(twins.state)
    assert all(stats[f"t{n}/exchange_overflows"] > 0 for n in range(3))


@pytest.mark.slow
def test_table_wise_tables_share_arrays_with_those_of_their_seed():
    common = {"dim": 4, "capacity": 1024, "sharding": "table_wise"}
    seeds = {"a": 0, "b": SEED, "c": 0, "d": SEED, "e": 7}
    configs = [jde.TableConfig(n, hash_seed=s, **common) for n, s in seeds.items()]
    twins = Twins(*configs, mesh=mesh_of(2))
    places = {name: twins.coll.state_name(name) for name in seeds}
    assert places["a"] == places["c"] and places["b"] == places["d"]
    assert len({places[name] for name in "abe"}) == 3
    for step in range(2):
        rng = np.random.default_rng(step)
        ids = {name: rng.integers(-1, 2000, 300) for name in seeds}
        twins.train(ids, seed=step)
        twins.find(ids)
    twins.check(TOLERANCE)


@pytest.mark.slow
def test_growth():
    seeded = (dataclasses.replace(t, hash_seed=SEED) for t in TABLES)
    check_growth(Twins(*seeded, mesh=mesh_of(4)))


@pytest.mark.slow
@pytest.mark.parametrize("devices", [None, 2, 8])
def test_a_checkpoint_restores_onto_any_mesh(tmp_path, devices):
    """With the same seed as it is; with another one row by row."""
    before = jde.Tables(tables(), mesh=mesh_of(4))
    ids = {f: jde.ids(x) for f, x in batch(0, 40).items() if f != "mean"}
    _, _, state = compiled(before).lookup(before.init(3), ids, None, None)
    jde.checkpoint.save(tmp_path, 1, state, tables=before, wait=True)
    mesh = None if devices is None else mesh_of(devices)
    for seed in (None, 99):
        configs = [
            t if seed is None else dataclasses.replace(t, hash_seed=seed)
            for t in tables()
        ]
        coll = jde.Tables(configs, mesh=mesh)
        again = jde.checkpoint.restore(tmp_path, coll.init(0), tables=coll)
        changed = [note for note in again.notes if "another hash_seed" in note]
        assert len(changed) == (0 if seed is None else 5)
        found = coll.find(again.tree, ids)[1]
        for name, rows in found.items():
            want = export(before, state, name)
            assert_same_rows(export(coll, again.tree, name), want)
            known = np.isin(batch(0, 40)[name], list(want))
            np.testing.assert_array_equal(rows, known)
