# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""bucket_stats: histograms of a table, compared with the oracle's dicts."""

import jax
import numpy as np
import pytest

import jax_dynemb as jde
from keys import keys_of_bucket
from meshes import mesh_of
from support import Twins


def expected(twins: Twins, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Buckets by rows, rows by digits of their age and of their count."""
    table = twins.oracle.tables[name]
    occupancy = np.bincount([len(b) for b in table.buckets], minlength=129)
    scores = [row.score for _, row in table.items()]
    last = [table.last_use(row) for _, row in table.items()]
    ages = np.bincount([(table.clock - n).bit_length() for n in last], minlength=65)
    counts = np.bincount([(s >> 32).bit_length() for s in scores], minlength=65)
    return occupancy, ages, counts


@pytest.mark.parametrize("placement", [{}, {"share_arrays": True}, {"mesh": 8}])
def test_histograms(placement):
    if "mesh" in placement:
        placement = {"mesh": mesh_of(8)}
    names = {"a": "step", "b": "lfu", "c": "customized"}
    configs = [
        jde.TableConfig(
            n, 4, 1024, score_strategy=s, hash_seed=i * ("mesh" in placement)
        )
        for i, (n, s) in enumerate(names.items())
    ]
    if "mesh" in placement:
        copy = {"sharding": "replicated", "score_strategy": "lfu"}
        configs.append(jde.TableConfig("d", 4, 256, **copy))
        configs += [jde.TableConfig(n, 4, 512, sharding="table_wise") for n in "ef"]
    twins = Twins(*configs, **placement)
    for step in range(9):
        ids = np.random.default_rng(step).zipf(1.2, 64) % 500
        scores = {"c": np.uint32(step)}
        twins.lookup(dict.fromkeys(twins.coll.tables, ids), scores=scores)
    for name, got in jax.jit(twins.coll.bucket_stats)(twins.state).items():
        occupancy, ages, counts = expected(twins, name)
        np.testing.assert_array_equal(got.occupancy, occupancy)
        np.testing.assert_array_equal(got.ages, ages)
        rows = len(twins.oracle.tables[name])
        assert float(got.mean) == pytest.approx(rows / occupancy.sum())
        assert int(got.fullest) == twins.oracle.tables[name].fullest_bucket()
        assert (got.counts is not None) == (name in "bd")
        if got.counts is not None:
            np.testing.assert_array_equal(got.counts, counts)


def test_full_buckets_and_quantiles(platform):
    twins = Twins(jde.TableConfig("t", 2, 512, score_strategy="lfu"))
    keys = keys_of_bucket(0, 4, 128)
    twins.lookup({"t": keys})
    twins.lookup({"t": np.repeat(keys[:32], 5)})
    got = twins.coll.bucket_stats(twins.state)["t"]
    assert int(got.full) == 1 and int(got.fullest) == 128 and float(got.mean) == 32
    assert got.age_quantile(0.25) == 0 and got.age_quantile(0.26) == 1
    assert got.count_quantile(0.75) == 1 and got.count_quantile(0.76) == 7
    with pytest.raises(ValueError, match="from 0 to 1"):
        got.age_quantile(90)
    empty = twins.coll.bucket_stats(twins.coll.clear(twins.state))["t"]
    assert empty.age_quantile(1.0) == 0 and float(empty.mean) == 0


def test_counts_of_other_tables(platform):
    coll = jde.Tables([jde.TableConfig("t", 2, 256), jde.TTConfig("tt", 8, 64, (2, 2))])
    stats = coll.bucket_stats(coll.init(0))
    assert set(stats) == {"t"}
    with pytest.raises(ValueError, match="counts no uses"):
        stats["t"].count_quantile(0.5)


def test_ages_beyond_32_bits(platform):
    coll = jde.Tables([jde.TableConfig("t", 2, 256, score_strategy="step")])
    state = coll.init(0)
    _, _, state = coll.lookup(state, {"t": jde.ids(np.arange(3))})
    state = coll.set_score(state, {"t": 2**40 + 5})
    _, _, state = coll.lookup(state, {"t": jde.ids(np.array([2]))})
    ages = np.asarray(coll.bucket_stats(state)["t"].ages)
    assert ages[0] == 1 and ages[41] == 2 and ages.sum() == 3
