# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Ids counted by key until they are admitted: as a dict would, while all have room."""

import collections
import dataclasses
from typing import Any, cast

import jax
import numpy as np
import pytest

import jax_dynemb as jde
from growth import grow
from jax_dynemb.admission import Exact, Frequency, Sketch
from keys import keys_of_bucket
from meshes import mesh_of
from support import Twins, export, gradients, stat, stored, zipf

DIM = 4
ROOMY = Exact(capacity=4096)
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}


def config(rule: Frequency, **options) -> jde.TableConfig:
    options = {"capacity": 1024, "optimizer": jde.optim.sgd(0.5)} | options
    initializer = jde.initializers.uniform(-0.1, 0.1)
    fields = {"name": "t", "dim": DIM, "initializer": initializer} | options
    return jde.TableConfig(admission=rule, **fields)


def place(devices: int | None) -> dict[str, Any]:
    return {} if devices is None else {"mesh": mesh_of(devices)}


def counted(twins: Twins, name: str = "t") -> dict[int, int]:
    """The counts in the arrays, by key."""
    ids, counts = twins.coll.admission_counts(twins.state, name)
    assert ids.dtype == np.int64 and counts.dtype == np.uint32
    assert (np.diff(ids) > 0).all()
    return dict(zip(ids.tolist(), counts.tolist(), strict=True))


def expected(twins: Twins, name: str = "t") -> dict[int, int]:
    """Returns the counts of the oracle by key."""
    reference = twins.oracle.tables[name].admission.keys
    return {k: n for bucket in reference.buckets for k, (_, n) in bucket.items()}


@pytest.mark.parametrize("counts", ["occurrences", "lookups"])
@pytest.mark.parametrize("threshold", [0, 1, 2, 5, 300])
def test_counts_are_those_of_a_dict(platform, threshold, counts):
    twins = Twins(config(Frequency(threshold, ROOMY, counts=counts)))
    seen: collections.Counter[int] = collections.Counter()
    wanted: set[int] = set()
    for seed in range(6):
        ids = zipf(seed, 200)
        batch = [int(k) for k in ids if k != -1 and k not in wanted]
        seen.update(set(batch) if counts == "lookups" else batch)
        wanted |= {k for k, n in seen.items() if n >= threshold}
        twins.train({"t": ids}, seed=seed)
        assert stored(twins) == wanted
        if threshold > 1:
            assert counted(twins) == {k: n for k, n in seen.items() if k not in wanted}
    twins.check()


def test_an_admitted_key_leaves_the_counter(platform):
    twins = Twins(config(Frequency(2, ROOMY), capacity=256))
    twins.lookup({"t": [1, 2, 2]})
    assert stored(twins) == {2} and counted(twins) == {1: 1}
    twins.erase({"t": [2]})
    twins.lookup({"t": [2]})  # counted from the beginning
    assert stored(twins) == set() and counted(twins) == {1: 1, 2: 1}
    twins.check()


@pytest.mark.parametrize("counts", ["occurrences", "lookups"])
@pytest.mark.parametrize("policy", ["step", "lfu", "no_eviction"])
def test_a_full_bucket_forgets_as_the_oracle_does(platform, policy, counts):
    """More ids than the counter has room for, and than the table has."""
    rule = Frequency(3, Exact(1), counts=counts)
    twins = Twins(config(rule, capacity=256, score_strategy=policy))
    for seed in range(8):
        rows, residuals = twins.lookup({"t": zipf(seed, 900, 3000)})
        twins.apply(residuals, {"t": gradients(rows["t"].shape, seed)})
        assert counted(twins) == expected(twins)
    assert len(counted(twins)) > 200  # 256 have room
    twins.check()


def test_the_key_that_has_waited_longest_is_forgotten(platform):
    twins = Twins(config(Frequency(3, Exact(1)), capacity=256))
    keys = keys_of_bucket(0, 2, 130)
    twins.lookup({"t": keys[:1] * 2})
    twins.lookup({"t": keys[1:128]})
    twins.lookup({"t": keys[128:129]})
    assert set(counted(twins)) == set(keys[1:129])
    twins.lookup({"t": keys[:1]})  # begins again, though it had occurred twice
    assert counted(twins)[keys[0]] == 1 and stored(twins) == set()
    twins.check()


def test_a_lookup_with_more_keys_than_room(platform):
    twins = Twins(config(Frequency(2, Exact(1)), capacity=256))
    keys = keys_of_bucket(1, 2, 300)
    twins.lookup({"t": keys})
    assert len(counted(twins)) == 128
    twins.lookup({"t": keys})
    assert len(stored(twins)) == 128
    twins.check()


def test_several_buckets_of_keys_for_each_of_rows(platform):
    rule = Frequency(3, Exact(5_000))
    assert rule.for_buckets(8).counter == Exact(5 * 1024, 5)
    twins = Twins(config(rule, hash_seed=77))
    for seed in range(5):
        twins.train({"t": zipf(seed, 3000, 6000)}, seed=seed)
    assert counted(twins) == expected(twins) != {}
    twins.check()


def test_halving(platform):
    twins = Twins(config(Frequency(4, ROOMY, halve_every=3)))
    for ids in ([1, 1], [2], [2, 3], [1, 1], [1, 1]):
        twins.lookup({"t": [*ids, *[-1] * (6 - len(ids))]})
    # 2, 2, 1, 3, and then it is enough
    assert stored(twins) == {1} and counted(twins) == {2: 1, 3: 1}
    twins.check()


def test_duplicates_of_two_features_reach_the_threshold(platform):
    twins = Twins(config(Frequency(3, ROOMY), feature_names=("a", "b")))
    twins.train({"a": [1, 2, 2, 3, 3, 3], "b": [1, 1, 2, 4]}, seed=0)
    assert stored(twins) == {1, 2, 3} and counted(twins) == {4: 1}
    twins.check()


def test_serving_never_counts(platform):
    twins = Twins(config(Frequency(2, ROOMY)))
    for _ in range(3):
        twins.find({"t": [1, 2]})
        twins.lookup({"t": [1, 2]}, insert=False)
    assert counted(twins) == {}
    twins.check()


@pytest.mark.parametrize("counts", ["occurrences", "lookups"])
def test_shared_arrays_and_clear(platform, counts):
    rules = [Frequency(2, Exact(1), counts=counts), Frequency(9, Exact(1))]
    tables = [
        jde.TableConfig(name, dim=DIM, capacity=256, admission=rule)
        for name, rule in zip("tu", rules, strict=True)
    ]
    # It has as many words, but another counter, so it gets arrays of its own.
    alike = Frequency(2, Sketch(2 * 2176))
    tables.append(jde.TableConfig("v", dim=DIM, capacity=256, admission=alike))
    twins = Twins(*tables, share_arrays=True)
    assert sorted(twins.state) == ["t+1", "v"]
    for seed in range(4):
        twins.train({n: zipf(seed, 200, 90) for n in "tuv"}, seed=seed)
    twins.state, _ = twins.coll.clear(twins.state), twins.oracle.clear()
    for seed in range(2):
        twins.train({n: zipf(seed, 200, 90) for n in "tuv"}, seed=seed)
    assert counted(twins, "t") == expected(twins, "t")
    assert counted(twins, "u") == expected(twins, "u") != {}
    with pytest.raises(ValueError, match="does not count ids by key"):
        twins.coll.admission_counts(twins.state, "v")
    twins.check()


@pytest.mark.parametrize("counts", ["occurrences", "lookups"])
def test_a_mesh_counts_what_one_device_counts(counts):
    rule = Frequency(4, Exact(1), counts=counts)
    common = {"dim": DIM, "capacity": 1024, "admission": rule}
    tables = [
        jde.TableConfig("row", **common),
        jde.TableConfig("sum", pooling="sum", **common),
        jde.TableConfig("copy", sharding="replicated", **common),
        jde.TableConfig("whole", sharding="table_wise", **common),
        jde.TableConfig("other", sharding="table_wise", **common),
    ]
    twins = Twins(*tables, mesh=mesh_of(8))
    for seed in range(4):
        names = enumerate(twins.coll.tables)
        ids = {n: zipf(seed * 9 + i, 768, 3000) for i, n in names}
        ids["sum"] = ids["sum"].reshape(-1, 3)
        twins.train(ids, seed=seed)
    for name in twins.coll.tables:
        assert counted(twins, name) == expected(twins, name) != {}
    twins.check(TOLERANCE)


def test_a_batch_in_several_rounds():
    rule = Frequency(3, Exact(1), halve_every=2)
    table = jde.TableConfig("t", dim=4, capacity=8192, admission=rule)
    twins = Twins(table, mesh=mesh_of(8), exchange_factor=0.02)
    for seed in range(4):
        rng = np.random.default_rng(seed)
        twins.train({"t": rng.integers(0, 900, 1600)}, seed=seed)
    twins.check(TOLERANCE)
    assert twins.coll.stats(twins.state)["t/exchange_overflows"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("mesh", [None, 4])
def test_growth_keeps_every_count(mesh):
    table = config(Frequency(3, Exact(2_000)))
    tables = [table, dataclasses.replace(table, name="u", feature_names=())]
    twins = Twins(*tables, **place(mesh))
    for seed in range(6):
        if seed == 3:
            grow(twins, t=4096, u=4096)
        names = {"t": zipf(seed, 400, 1500), "u": zipf(seed + 9, 400, 1500)}
        twins.train(names, seed=seed)
        assert counted(twins, "u") == expected(twins, "u")
    twins.check(TOLERANCE)


@pytest.mark.parametrize("after", [None, 8])
def test_a_checkpoint_in_between_changes_nothing(tmp_path, after):
    def run(coll, state, seeds):
        lookup = jax.jit(coll.lookup, donate_argnums=0)
        for seed in seeds:
            _, _, state = lookup(state, {"t": jde.ids(zipf(seed, 64))})
        return state

    table = config(Frequency(3, ROOMY))
    first = jde.Tables([table], mesh=mesh_of(2))
    state = run(first, first.init(3), range(3))
    jde.checkpoint.save(tmp_path, 1, state, tables=first, wait=True)
    whole = run(first, state, range(3, 6))
    second = jde.Tables([table], **place(after))
    again = jde.checkpoint.restore(tmp_path, second.init(0), tables=second).tree
    again = run(second, again, range(3, 6))
    assert set(export(second, again, "t")) == set(export(first, whole, "t"))
    assert second.stats(again)["t/not_admitted"] == first.stats(whole)["t/not_admitted"]


@pytest.mark.parametrize("other", [Sketch(4 * 8 * 2176), Exact(9_000)])
def test_keys_move_into_another_counter(tmp_path, other):
    exact, others = config(Frequency(3, ROOMY)), config(Frequency(3, other))
    for before, after in ((exact, others), (others, exact)):
        first, second = jde.Tables([before]), jde.Tables([after])
        _, _, state = first.lookup(first.init(3), {"t": jde.ids([1, 1, 1, 2])})
        path = tmp_path / str(before is exact)
        jde.checkpoint.save(path, 1, state, tables=first, wait=True)
        again = jde.checkpoint.restore(path, second.init(0), tables=second)
        kept = before is exact or isinstance(other, Exact)
        assert kept != any("has no ids" in note for note in again.notes)
        _, _, state = second.lookup(again.tree, {"t": jde.ids([2, 2, 3, 3, 3])})
        assert set(export(second, state, "t")) == ({1, 2, 3} if kept else {1, 3})


def test_keys_move_into_a_table_of_another_capacity(tmp_path):
    small, ids = jde.Tables([config(Frequency(3, ROOMY))]), zipf(0, 200)
    _, _, state = small.lookup(small.init(3), {"t": jde.ids(ids)})
    jde.checkpoint.save(tmp_path, 1, state, tables=small, wait=True)
    for capacity in (4096, 256):
        other = jde.Tables([config(Frequency(3, ROOMY), capacity=capacity)])
        again = jde.checkpoint.restore(tmp_path, other.init(0), tables=other)
        for old, new in zip(
            small.admission_counts(state, "t"),
            other.admission_counts(again.tree, "t"),
            strict=True,
        ):
            np.testing.assert_array_equal(old, new)


def test_a_step_is_in_place(platform):
    coll = jde.Tables([config(Frequency(2, Exact(1)), capacity=1 << 15)])

    def step(state, ids):
        rows, residual, state = coll.lookup(state, {"t": ids})
        return coll.apply_gradients(state, residual, rows)

    jitted = jax.jit(step, donate_argnums=0)
    jde.testing.assert_in_place(jitted, coll.init(0), jde.ids(np.arange(64)))


@pytest.mark.parametrize("error", [0.2, 0.01])
def test_a_sketch_for_some_keys_errs_as_often_as_it_says(platform, error):
    """Keys that occur once, of which those that share all counters are admitted."""
    sketch = Sketch.for_keys(40_000, error)
    twins = jde.Tables([config(Frequency(2, sketch), capacity=1 << 16)])
    _, _, state = jax.jit(twins.lookup)(twins.init(0), {"t": jde.ids(range(40_000))})
    share = twins.stats(state)["t/rows"] / 40_000
    assert error / 2 < share < 1.5 * error


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Exact(0), "room for 1 id"),
        (lambda: config(Frequency(2, Exact(1 << 30))), "count them in a Sketch"),
        (lambda: Frequency(2, Sketch(9), counts="lookups"), "Exact\\(capacity\\)"),
        (lambda: Frequency(2**31, ROOMY), "threshold from 0 to 2147483647"),
        (
            lambda: Frequency(2, ROOMY, counts=cast("Any", "batches")),
            "counts must be one of",
        ),
        (lambda: Sketch.for_keys(0), "1 or more ids"),
        (lambda: Sketch.for_keys(10, 1.5), "error above 0"),
    ],
)
def test_mistakes_name_the_fix(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


def test_refused_ids_count_from_the_beginning(platform):
    """An admitted id that finds no slot in the table has left the counter."""
    twins = Twins(config(Frequency(2, ROOMY), capacity=256, on_full="refuse"))
    keys = keys_of_bucket(0, 2, 130)
    twins.insert({"t": keys[:128]}, {"t": np.ones((128, DIM))})
    twins.lookup({"t": keys[128:] * 2})
    assert stat(twins, "t/refused") == 4 and counted(twins) == {}
    twins.check()
