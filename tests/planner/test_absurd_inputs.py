# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Absurd inputs of a planner get a sentence, or a plan with finite numbers."""

import dataclasses
import math
from typing import Any

import jax
import numpy as np
import pytest

import jax_dynemb as jde
from jax_dynemb._src.planner.rates import KINDS, Rates, fitted
from jax_dynemb._src.planner.rounds import (
    chances_of_rounds,
    expected_distinct,
    expected_rounds,
)
from jax_dynemb._src.planner.work import Batch

Constraints = jde.ParameterConstraints
SPEEDS = {"hbm_cap": 10**10, "hbm_mem_bw": 2e12, "intra_host_bw": 2e11}
NOT_WHOLE = (0, -1, 1.5, "8", True, math.nan, math.inf)
NOT_POSITIVE = (0, -1.0, "x", True, math.nan)


def table(name: str = "a", **options: Any) -> jde.TableConfig:
    common = {"dim": 32, "capacity": 1024, "pooling": "sum"}
    return jde.TableConfig(name, **{**common, **options})


def planned(batch_size: Any = 64, world: Any = 8, **options: Any) -> Any:
    given = options.pop("constraints", None)
    speeds = SPEEDS | {k: options.pop(k) for k in list(options) if k in TOPOLOGY}
    devices = jde.Topology(world, **speeds)
    made = jde.EmbeddingShardingPlanner(devices, batch_size, given, **options)
    return made.plan([table()])


TOPOLOGY = {f for f in jde.Topology.__dataclass_fields__}
REFUSED = [
    *(("world", value) for value in (*NOT_WHOLE, None)),
    *(("hbm_cap", value) for value in (*NOT_WHOLE, None)),
    *(("local_world_size", value) for value in NOT_WHOLE),
    *(("at_once", value) for value in NOT_WHOLE),
    *(("batch_size", value) for value in (*NOT_WHOLE, None)),
    *(("hbm_mem_bw", value) for value in (*NOT_POSITIVE, None)),
    *(("intra_host_bw", value) for value in (*NOT_POSITIVE, None)),
    *(("inter_host_bw", value) for value in NOT_POSITIVE),
    *(("collective_latency", value) for value in (-1, "x", math.nan, math.inf, None)),
    *(("step_overhead", value) for value in (-1, "x", math.nan, math.inf, None)),
    *(("exchange_factor", value) for value in (*NOT_POSITIVE, math.inf, None)),
    ("exchange_pooled", "no"),
    ("rates", {}),
]


@pytest.mark.parametrize(("field", "value"), REFUSED)
def test_a_bad_number_is_named_with_its_field(field, value):
    name = "world_size" if field == "world" else field
    with pytest.raises(ValueError, match=name):
        planned(**{field: value})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("pooling_factors", [x]) for x in (0, -1, math.nan, math.inf, "x")),
        ("pooling_factors", 3),
        ("sharding_types", "row_wise"),
        ("feature_names", "a"),
        ("compute_kernels", "fused"),
        *(("num_keys", x) for x in (0, -5, 2.5, "x", math.nan)),
        *(("key_skew", x) for x in (-1, "x", math.nan, math.inf, None)),
        *(("min_partition", x) for x in (0, -5, "x")),
    ],
)
def test_a_bad_constraint_is_named_with_its_field(field, value):
    with pytest.raises(ValueError, match=field):
        Constraints(**{field: value})


@pytest.mark.parametrize(
    ("call", "fix"),
    [
        (lambda: jde.EmbeddingShardingPlanner(None, 64), "topology must be a Topo"),  # pyright: ignore[reportArgumentType]
        (lambda: planned(constraints=[Constraints()]), "a dict by table"),
        (lambda: planned(constraints={"a": "row_wise"}), "jde.ParameterConstraints"),
        (lambda: planned(storage_reservation=0.1), "StorageReservation"),
        (lambda: jde.Topology.measure(None), "jax.make_mesh"),  # pyright: ignore[reportArgumentType]
        (lambda: jde.StorageReservation.for_model({"w": 3}), "jax.eval_shape"),
    ],
)
def test_another_type_is_named_with_the_fix(call, fix):
    with pytest.raises(TypeError, match=fix):
        call()


@pytest.mark.parametrize("tables", [None, 3, table(), {"a": table()}, "abc"])
def test_what_is_no_list_of_tables(tables):
    made = jde.EmbeddingShardingPlanner(jde.Topology(8, **SPEEDS), 64)
    with pytest.raises(TypeError, match="a list of TableConfig"):
        made.plan(tables)


def test_an_axis_that_is_not_there():
    with pytest.raises(ValueError, match="no axis"):
        jde.Topology.measure(jax.make_mesh((1,), ("data",)), "nope")


@pytest.mark.parametrize(
    "text", [None, 3, b"\xff", "null", '{"format": 1, "tables": 3}']
)
def test_what_is_no_plan(text):
    with pytest.raises(ValueError, match="from_json"):
        jde.ShardingPlan.from_json(text)


@pytest.mark.parametrize(
    "options",
    [
        {"world": 1},
        {"world": 7},
        {"world": 1000},
        {"hbm_mem_bw": 1e-300},
        {"hbm_mem_bw": math.inf, "intra_host_bw": math.inf},
        {"at_once": 10**6},
        {"constraints": {"a": Constraints(num_keys=10**15, key_skew=1.2)}},
        {"constraints": {"a": Constraints(num_keys=2, key_skew=1e6)}},
        {"constraints": {"a": Constraints(num_poolings=[1e-9])}},
        {"constraints": {"a": Constraints(batch_sizes=[1e-9])}},
        {"constraints": {"a": Constraints(min_partition=10**9)}},
        {"exchange_factor": 1e-9},
    ],
)
def test_extremes_have_a_plan(options):
    plan = planned(**options)
    assert [each.table for each in plan.tables] == ["a"]
    assert not math.isnan(plan.ms) and "a" in str(plan)
    assert jde.ShardingPlan.from_json(plan.to_json()) == plan


def test_a_batch_beyond_all_memory_says_what_is_missing():
    with pytest.raises(jde.PlannerError, match="INSUFFICIENT_STORAGE"):
        planned(batch_size=10**12)


# ---- what a plan is computed from ---------------------------------------------------


@pytest.mark.parametrize("skew", [0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("keys", [1, 2, 50, 5000])
def test_expected_distinct_ids(keys, skew):
    odds = np.arange(1.0, keys + 1) ** -skew
    odds /= odds.sum()
    rng = np.random.default_rng(0)
    for draws in (1, 10, 2000):
        seen = [len(set(rng.choice(keys, draws, p=odds).tolist())) for _ in range(40)]
        mean, chance = np.mean(seen), 4 * np.std(seen) / 40**0.5
        found = expected_distinct(draws, keys, skew)
        assert found == pytest.approx(mean, abs=chance + 0.03 * mean + 1e-9)


def test_rates_of_steps_that_follow_the_model_are_found_again():
    rng = np.random.default_rng(1)
    rates = np.array([2e-4, 3e-4, 5e-5, 3e-10, 1e-11, 2e-12])
    own = {kind: rates * [n, n, 2 * n, 1, 1, 1] for n, kind in enumerate(KINDS, 1)}
    steps = []
    for kind in KINDS:
        counted = rng.uniform(0, 1, (10, 6)) * [1, 2, 4, 1e6, 1e8, 1e8]
        steps += [(kind, each.tolist(), float(each @ own[kind])) for each in counted]
    for kind, found in fitted(steps).items():
        np.testing.assert_allclose(dataclasses.astuple(found), own[kind], rtol=1e-6)
    # The small steps of one kind say nothing of its bytes: they cost what others do.
    few = [(k, c if k != "sums" else [1, 0, 1, 9, 9, 9], s) for k, c, s in steps]
    found = dataclasses.astuple(fitted(few)["sums"])
    np.testing.assert_allclose(found[3:], rates[3:], rtol=0.2)
    flat = [("rows", (1, 0, 1, 0, 10, 0), 2.0), ("rows", (1, 0, 1, 0, 20, 0), 1.0)]
    more = [(kind, (1, 0, 1, 1, 1, 1), 1.0) for kind in KINDS]
    falling = fitted(flat + more)["rows"]  # slower with less
    assert min(dataclasses.astuple(falling)) >= 0
    with pytest.raises(ValueError, match="0 or more"):
        Rates(-1.0, 0.0, 0.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize("room", [12, 34, 40, 44, 60])
@pytest.mark.parametrize("shards", [2, 8])
def test_expected_rounds_are_the_mean_of_many_batches(shards, room):
    distinct, tables = 32 * shards - 9, 2
    rng = np.random.default_rng(room)
    even = np.full(shards, 1 / shards)
    sizes = rng.multinomial(distinct, even, (2000, tables * shards))
    needed = -(-sizes.max(axis=(1, 2)) // room)
    run = needed + (needed > 1)  # owners forget the first one if not all ids fit
    batch = Batch(distinct, distinct, distinct, shards * distinct, shards)
    chances = chances_of_rounds(batch, shards, room)
    assert chances[-1] == 1 and (np.diff(chances) >= 0).all()
    found = expected_rounds([chances] * tables)
    assert found == pytest.approx(run.mean(), rel=0.06)


def test_rounds_of_one_owner_are_no_chance():
    batch = Batch(100, 100, 90, 500, 8)
    rounds = [expected_rounds([chances_of_rounds(batch, 1, n)]) for n in (90, 45, 44)]
    assert rounds == [1, 3, 4]
    assert expected_rounds([]) == 1


def test_duplicates_make_a_plan_cheaper():
    many = {"pooling_factors": [50.0]}
    all_differ, few = (
        planned(constraints={"a": Constraints(num_keys=keys, **many)})
        for keys in (10**9, 20)
    )
    assert few.ms < all_differ.ms


def test_devices_that_share_cores_balance_each_other():
    tables = [table(f"t{n}", pooling_factors=(1.0 + 40 * (n == 0),)) for n in range(8)]
    only = {t.name: Constraints(["table_wise"]) for t in tables}

    def plan(at_once: int) -> jde.ShardingPlan:
        devices = jde.Topology(8, **SPEEDS, at_once=at_once)
        return jde.EmbeddingShardingPlanner(devices, 64, only).plan(tables)

    apart, shared = plan(8), plan(2)
    loads = [device.ms for device in apart.devices]
    assert apart.ms == pytest.approx(max(loads))
    assert shared.ms == pytest.approx(max(max(loads) / 4, sum(loads) / 8))
    assert shared.ms < apart.ms
    assert jde.ShardingPlan.from_json(shared.to_json()).ms == shared.ms
