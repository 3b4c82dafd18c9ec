# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Full buckets in which a new key has to beat the lowest score."""

from typing import Any

import numpy as np
import pytest

import jax_dynemb as jde
from jax_dynemb.admission import Frequency, Sketch
from keys import keys_of_bucket
from meshes import mesh_of
from support import Twins, gradients, stat, stored

DIM = 4
DEBUG = jde.initializers.debug()


def config(policy: str, **options: Any) -> jde.TableConfig:
    fields: dict[str, Any] = {"name": "t", "capacity": 256, "initializer": DEBUG}
    fields |= {"score_strategy": policy, "on_full": "compete"} | options
    return jde.TableConfig(dim=DIM, **fields)


def test_a_row_used_twice_stays_and_one_used_once_leaves(platform):
    twins = Twins(config("lfu"))
    keys = keys_of_bucket(0, 2, 140)
    twins.lookup({"t": keys[:128]})
    twins.lookup({"t": keys[3:128]})
    rows, _ = twins.lookup({"t": np.repeat(keys[128:], 2)})
    winners = stored(twins) - set(keys[:128])
    assert stored(twins) >= set(keys[3:128]) and len(winners) == 3
    assert rows["t"][::2, 0].tolist() == [key % 100_000 for key in keys[128:]]
    assert stat(twins, "t/refused") == 2 * (12 - 3)
    assert stat(twins, "t/evicted") == 3
    twins.check()


def test_newcomers_do_not_know_their_number_of_uses(platform):
    twins = Twins(config("lfu"))
    keys = keys_of_bucket(1, 2, 129)
    twins.lookup({"t": np.repeat(keys[:128], 2)})
    twins.lookup({"t": keys[128:] * 50})
    assert stored(twins) == set(keys[:128])
    twins.check()


@pytest.mark.parametrize(("given", "enters"), [(6, 0), (7, 2), (9, 4)])
def test_given_scores_are_compared(platform, given, enters):
    """A score as high as the lowest one wins: its row is the more recent one."""
    twins = Twins(config("customized"))
    keys = keys_of_bucket(0, 2, 132)
    twins.lookup({"t": keys[:2]}, scores={"t": np.uint32(7)})
    twins.lookup({"t": keys[2:4]}, scores={"t": np.uint32(8)})
    twins.lookup({"t": keys[4:128]}, scores={"t": np.uint32(30)})
    twins.lookup({"t": keys[128:]}, scores={"t": np.uint32(given)})
    assert stored(twins) & set(keys[:4]) == set(keys[enters:4])
    assert stat(twins, "t/evicted") == enters
    twins.check()


def test_rows_that_are_given_enter(platform):
    twins = Twins(config("lfu"))
    keys = keys_of_bucket(0, 2, 130)
    twins.lookup({"t": np.repeat(keys[:128], 3)})
    twins.insert({"t": keys[128:]}, {"t": np.ones((2, DIM))})
    assert set(keys[128:]) <= stored(twins)
    twins.check()


@pytest.mark.parametrize("admission", [None, Frequency(2, Sketch(1 << 14))])
@pytest.mark.parametrize("policy", ["lfu", "customized"])
@pytest.mark.parametrize("mesh", [None, 8])
def test_a_stream_against_the_oracle(platform, policy, admission, mesh):
    if mesh is not None and platform != "cpu":
        pytest.skip("the mesh is of CPU devices")
    placement: dict[str, Any] = {} if mesh is None else {"mesh": mesh_of(mesh)}
    common = {"capacity": 1_024, "admission": admission}
    tables = [
        config(policy, **common),
        config(policy, name="u", sharding="table_wise", **common),
        config(policy, name="v", sharding="replicated", pooling="sum", **common),
    ]
    twins = Twins(*tables, **placement)
    names = ("t", "u", "v")
    for step in range(4):
        rng = np.random.default_rng(step)
        ids = {n: rng.zipf(1.1, 2_000) % 20_000 for n in names}
        ids["v"] = ids["v"].reshape(-1, 4)
        scores = None
        if policy == "customized":
            scores = {n: np.uint32(rng.integers(5)) for n in names}
        rows, residuals = twins.lookup(ids, scores=scores)
        twins.apply(residuals, {n: gradients(x.shape, step) for n, x in rows.items()})
    few = admission is not None
    assert few or (stat(twins, "t/refused") > 0 and stat(twins, "t/evicted") > 0)
    if mesh is None:
        return twins.check()
    # An owner counts a refused id once for each device that has it.
    for name in names:
        twins.assert_table(name, {"rtol": 1e-5, "atol": 1e-5})
        counts = twins.oracle.tables[name].counts
        assert stat(twins, f"{name}/evicted") == counts["evicted"]


def test_touch_false_evicts_nothing(platform):
    twins = Twins(config("lfu"))
    keys = keys_of_bucket(0, 2, 130)
    twins.lookup({"t": keys[:128]})
    twins.lookup({"t": keys[120:]}, touch=False)
    assert stored(twins) == set(keys[:128])
    twins.check()


def test_a_table_that_competes_grows_within_its_bound_only():
    assert not config("lfu").grows
    assert config("lfu", max_capacity=1024).grows


@pytest.mark.parametrize("policy", ["step", "timestamp", "no_eviction"])
def test_scores_that_a_new_key_always_beats_are_refused(policy):
    with pytest.raises(ValueError, match="use on_full='evict'"):
        config(policy)
