# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Removal by rule on a mesh: the oracle is one device."""

import dataclasses

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import PartitionSpec

import jax_dynemb as jde
from jax_dynemb.lifecycle import Rule
from meshes import collectives, grid, mesh_of
from support import Twins, export

TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}
UNIFORM = jde.initializers.uniform(-0.5, 0.5)


def config(name: str, sharding: str, **options) -> jde.TableConfig:
    options = {"dim": 4, "capacity": 2048, "initializer": UNIFORM} | options
    return jde.TableConfig(name, sharding=sharding, **options)


def tables() -> list[jde.TableConfig]:
    wise = [
        config(f"w{n}", "table_wise", dim=6, score_strategy="lfu") for n in range(3)
    ]
    return [
        config("step", "row_wise"),
        config("lfu", "row_wise", score_strategy="lfu", hash_seed=5),
        *wise,
        config("columns", "column_wise", dim=32),
        config("copy", "replicated", capacity=512),
    ]


def filled(**placement) -> Twins:
    """Rows of several ages and counts in tables of all shardings."""
    twins = Twins(*tables(), **placement)
    for step in range(4):
        rng = np.random.default_rng(step)
        ids = {n: rng.zipf(1.2, 64) % 300 for n in twins.coll.tables}
        twins.train(ids, seed=step)
    return twins


ROUNDS = [
    {
        "step": {"unused_for": 2},
        "lfu": {"count_below": 2, "keep_at_least": 60},
        "w1": {"count_below": 3, "unused_for": 1, "combine": "any"},
        "columns": {"norm_below": 1.6},
        "copy": {"unused_since": 3, "keep_at_most": 20},
    },
    {
        "step": {"keep_at_most": 9},
        "lfu": {"keep_at_most": 31},
        "w0": {"unused_for": 0, "keep_at_least": 17},
        "w2": {"keep_at_most": 5},
        "columns": {"norm_below": 1.8, "keep_at_least": 3},
        "copy": {"norm_below": 0.6, "keep_at_most": 11},
    },
]


@pytest.mark.slow
@pytest.mark.parametrize("mesh", [mesh_of(8), grid()], ids=["line", "grid"])
def test_a_mesh_removes_what_one_device_removes(mesh):
    twins = filled(mesh=mesh)
    for rules in ROUNDS:
        removed = twins.erase_where(rules)
        assert sum(removed.values()) > 50
        twins.check(TOLERANCE)
        stats = twins.coll.stats(twins.state)
        for name in twins.coll.tables:
            names = ("rows", "evicted", "erased", "removed_by_rule")
            parts = sum(stats[f"{name}/{each}"] for each in names)
            assert stats[f"{name}/inserted"] == parts
    ids = {n: np.arange(40) for n in twins.coll.tables}
    twins.train(ids, seed=9)  # removed ids come back as new ones
    twins.check(TOLERANCE)


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["train", "erase", "old", "trim"]), st.integers(0, 2**16)
    ),
    min_size=3,
    max_size=8,
)


@pytest.mark.slow
def test_every_row_that_left_has_a_cause():
    """Any sequence of operations, with buckets that overflow."""
    configs = [
        config("a", "row_wise", capacity=1024, score_strategy="lfu"),
        config("b", "replicated", capacity=256, optimizer=jde.optim.sgd(0.1)),
    ]

    @settings(max_examples=6, deadline=None)
    @given(operations=OPERATIONS)
    def check(operations):
        twins = Twins(*configs, mesh=mesh_of(8))
        for operation, seed in operations:
            rng = np.random.default_rng(seed)
            ids = {"a": rng.integers(-1, 3000, 800), "b": rng.integers(-1, 400, 800)}
            if operation == "train":
                twins.train(ids, seed=seed)
            elif operation == "erase":
                twins.erase(ids)
            elif operation == "old":
                fields = {"unused_for": seed % 3, "keep_at_least": seed % 500}
                twins.erase_where({"a": fields, "b": fields})
            else:
                most = {"keep_at_most": seed % 900}
                twins.erase_where({"a": most, "b": most})
            stats = twins.coll.stats(twins.state)
            for name in "ab":
                names = ("rows", "evicted", "erased", "removed_by_rule")
                parts = sum(stats[f"{name}/{each}"] for each in names)
                assert stats[f"{name}/inserted"] == parts
        twins.check(TOLERANCE)

    check()


def test_decay_on_a_mesh():
    twins = filled(mesh=mesh_of(8))
    factors = {"lfu": 0.5, "w1": 0.3}
    twins.state = twins.coll.decay(twins.state, factors)
    for name, factor in factors.items():
        twins.oracle.tables[name].decay(factor)
    twins.check(TOLERANCE)


def test_columns_in_other_slots():
    """Each shard has the keys of a bucket, in slots of its own choice."""
    coll = jde.Tables([config("t", "column_wise", dim=32)], mesh=mesh_of(8))
    state = coll.init(0)
    _, _, state = coll.lookup(state, {"t": jde.ids(np.arange(400))})
    before = export(coll, state, "t")
    state = {"t": _moved(state["t"], shard=3)}
    norms = {k: np.sqrt(np.sum(np.square(r.values))) for k, r in before.items()}
    bound = float(np.median(list(norms.values())))
    removed, state = coll.erase_where(state, {"t": Rule(norm_below=bound)})
    expected = {k for k, norm in norms.items() if norm >= bound}
    assert set(export(coll, state, "t")) == expected
    assert int(removed["t"]) == 400 - len(expected)


def _moved(state, shard: int):
    """Reverses the order of the slots of each bucket of one shard."""
    buckets = state.index.shape[0] // 8
    own = slice(shard * buckets, (shard + 1) * buckets)
    index, values = np.array(state.index), np.array(state.values)
    digests = np.ascontiguousarray(index[own, :32]).view(np.uint8)[:, ::-1]
    index[own, :32] = np.ascontiguousarray(digests).view(np.uint32)
    entries = index[own, 32:].reshape(buckets, 128, 4)[:, ::-1]
    index[own, 32:] = entries.reshape(buckets, 512)
    rows = values.reshape(8, buckets, 128, -1)
    rows[shard] = rows[shard, :, ::-1].copy()
    new = {"index": index, "values": rows.reshape(values.shape)}
    placed = {n: jax.device_put(x, getattr(state, n).sharding) for n, x in new.items()}
    return dataclasses.replace(state, **placed)


def test_inside_a_shard_map_of_the_user():
    mesh = mesh_of(8)
    coll = jde.Tables([config("t", "row_wise")], axis_name="data")
    same = jde.Tables([config("t", "row_wise")], mesh=mesh)
    state = same.init(0)
    _, _, state = same.lookup(state, {"t": jde.ids(np.arange(400))})

    def trim(state, rule):
        return coll.erase_where(state, {"t": rule})

    specs = same.partition_specs()
    all_ = PartitionSpec()
    run = jax.shard_map(
        trim,
        mesh=mesh,
        in_specs=(specs, all_),
        out_specs=(all_, specs),
        check_vma=False,
    )
    removed, state = jax.jit(run)(state, Rule(keep_at_most=123))
    assert int(removed["t"]) == 277 and same.stats(state)["t/rows"] == 123


def test_only_counts_travel():
    coll = jde.Tables([config("t", "row_wise")], mesh=mesh_of(8))
    state = coll.init(0)
    rule = {"t": Rule(unused_for=1, norm_below=1.0)}
    text = jax.jit(coll.erase_where).lower(state, rule).compile().as_text()
    always, in_loops = collectives(text)
    assert set(always) <= {"all-reduce"} and not in_loops


def test_limits_of_rows_that_32_bits_do_not_count_are_refused():
    coll = jde.Tables([config("t", "row_wise", capacity=2**33)], mesh=mesh_of(8))

    def removed(rule: Rule):
        return jax.eval_shape(lambda: coll.erase_where(coll.init(0), {"t": rule})[0])

    assert removed(Rule(unused_for=10))["t"].dtype == np.uint32
    with pytest.raises(ValueError, match="count rows in 32 bits. Leave them out"):
        removed(Rule(keep_at_most=10))
