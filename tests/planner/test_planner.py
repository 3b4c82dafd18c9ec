# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Plans: every table once, the best choice, constraints that hold, errors, reports."""

import dataclasses
import itertools
import json
import math
import time

import jax
import numpy as np
import optax
import pytest

import jax_dynemb as jde
from jax_dynemb._src.planner import layout as _layout
from jax_dynemb._src.planner import measure as _measure
from jax_dynemb._src.planner import options as _options
from jax_dynemb._src.planner import probes as _probes
from meshes import mesh_of
from planner.inputs import (
    Constraints,
    many_tables,
    only,
    planner,
    table,
    topology,
)

# ---- the search --------------------------------------------------------------------


@pytest.mark.slow
def test_a_thousand_tables_on_64_devices():
    tables = many_tables(1000)
    with_64 = planner(devices=topology(64, hbm_cap=8 * 10**10), batch_size=512)

    def seconds(count: int) -> float:
        begin = time.process_time()
        with_64.plan(tables[:count])
        return time.process_time() - begin

    # Whatever the machine: time grows as the tables do, not as their pairs.
    seconds(10)
    assert seconds(1000) < 25 * min(seconds(100) for _ in range(3))
    plan = with_64.plan(tables)
    assert [each.table for each in plan.tables] == [t.name for t in tables]
    assert plan == with_64.plan(tables)
    # The mesh engine accepts it, with arrays of as many bytes.
    mesh = _options.exchange_placement(64, 0.5, None, "auto")
    placed = mesh.with_tables(plan.apply(tables), plan.shards)
    arrays = sum(_options.arrays_bytes(stack.local) for stack in placed.stacks)
    assert plan.bytes_by_shard == (arrays,) * 64


@pytest.mark.parametrize("seed", range(6))
def test_the_choice_is_nearly_the_best_of_all(seed):
    rng = np.random.default_rng(seed)
    tables = many_tables(4, seed)
    tables += [dataclasses.replace(tables[0], name="twin", feature_names=())]
    devices = topology(
        4,
        hbm_cap=int(4e9 * rng.uniform(0.4, 1.5)),
        intra_host_bw=10 ** rng.uniform(9, 12),
        collective_latency=10 ** rng.uniform(-6, -4),
    )
    made = planner(devices=devices, batch_size=int(rng.integers(32, 4096)))
    options = {t.name: made._options(t, None) for t in tables}
    groups = _layout.Groups(options)
    room = made._reservation.left(devices.hbm_cap)
    every = [
        _layout.lay_out(dict(zip(options, some, strict=True)), options, groups, devices)
        for some in itertools.product(*(o.allowed for o in options.values()))
    ]
    best = min(layout.slowest for layout in every if layout.bytes <= room)
    plan = made.plan(tables)
    assert best <= plan.ms / 1e3 * (1 + 1e-9)
    assert plan.ms / 1e3 <= best * 1.04  # a search that does not try all
    assert max(d.table_bytes + d.batch_bytes for d in plan.devices) <= room


def test_memory_decides_where_time_would_not():
    tables = [table("a", capacity=100_000)]
    slow = topology(collective_latency=1e-3)  # copies need the fewest collectives
    free = planner(devices=slow, batch_size=16).plan(tables)
    assert free.tables[0].sharding == "replicated"
    need = max(d.table_bytes + d.batch_bytes for d in free.devices)
    small = dataclasses.replace(slow, hbm_cap=int(need / 0.85 * 0.9))
    tight = planner(devices=small, batch_size=16).plan(tables)
    assert tight.tables[0].sharding != "replicated" and tight.ms > free.ms
    assert max(d.table_bytes + d.batch_bytes for d in tight.devices) <= tight.room


def test_one_device_has_everything():
    plan = planner(devices=topology(1, hbm_cap=10**11)).plan(many_tables(5))
    assert {t.shards for t in plan.tables} == {(0,)}
    assert plan.devices[0].forward_exchange_ms < plan.devices[0].forward_ms


def test_table_wise_tables_are_spread_by_their_cost():
    factors = (9, 1, 1, 1, 8, 2, 7, 3)
    tables = [table(f"t{n}", pooling_factors=(f,)) for n, f in enumerate(factors)]
    names = [t.name for t in tables]
    plan = planner(4, 512, only("table_wise", *names)).plan(tables)
    loads = np.zeros(4)
    for factor, one in zip(factors, plan.tables, strict=True):
        (shard,) = one.shards
        loads[shard] += factor
    assert loads.max() <= 10 and plan.imbalance.max_over_mean < 1.2


# ---- constraints -------------------------------------------------------------------


def test_constraints_change_what_is_counted():
    two = ("x", "y")
    tables = [table("a", feature_names=two, pooling="sum", capacity=100_000)]

    def ids(**options):
        return (
            planner(constraints={"a": Constraints(**options)})
            .plan(tables)
            .tables[0]
            .ids
        )

    assert ids() == 128
    assert ids(pooling_factors=[3, 5]) == 64 * 8
    assert ids(pooling_factors=[3, 5], num_poolings=[2, 1]) == 64 * 11
    assert ids(batch_sizes=[10, 20], pooling_factors=[2]) == 60
    assert ids(feature_names=["y", "x"], compute_kernels=["fused"]) == 128
    wide = planner(constraints={"a": Constraints(output_dtype="bfloat16")}).plan(tables)
    assert wide.devices[0].batch_bytes < planner().plan(tables).devices[0].batch_bytes
    sums = {"sharding_types": ["row_wise"], "pooling_factors": [99]}
    plain, weighted = (
        planner(constraints={"a": Constraints(**sums, is_weighted=w)}).plan(tables)
        for w in (False, True)
    )
    assert plain.tables[0].exchange == weighted.tables[0].exchange == "sums"
    more = weighted.tables[0].id_bytes - plain.tables[0].id_bytes
    assert more == 8 * 4 * plain.tables[0].ids


def test_min_partition_keeps_columns_together():
    allowed = {"sharding_types": ["column_wise", "row_wise"]}
    tables = [table("a", dim=128, pooling="sum", pooling_factors=(50.0,))]
    for least, wanted in ((16, "column_wise"), (32, "row_wise")):
        constraints = {"a": Constraints(**allowed, min_partition=least)}
        made = planner(constraints=constraints, devices=topology(step_overhead=0))
        options = made._options(tables[0], constraints["a"])
        assert wanted in options.allowed
        assert ("column_wise" in options.allowed) == (least == 16)


def test_torchrec_names_of_sharding_types():
    given = Constraints(sharding_types=["DATA_PARALLEL", "ROW_WISE"])
    kinds = jde.torchrec.ShardingType
    assert given == Constraints(sharding_types=[kinds.DATA_PARALLEL, kinds.ROW_WISE])
    with pytest.raises(ValueError, match="same locality"):
        Constraints(sharding_types=[kinds.TABLE_COLUMN_WISE])
    assert given.allowed == ("row_wise", "replicated")


@pytest.mark.parametrize(
    ("options", "fix"),
    [
        ({"compute_kernels": ["dense"]}, "always fused"),
        ({"cache_params": object()}, "there is no cache"),
        ({"enforce_hbm": True}, "every table lies in device memory"),
        ({"device_group": "cpu"}, "give jde.Tables the mesh"),
        ({"key_value_params": object()}, "every table is a hash table"),
        ({"sharding_types": ["table_row_wise"]}, "axis=\\('host', 'device'\\)"),
        ({"sharding_types": ["grid_shard"]}, "same locality"),
        ({"sharding_types": ["diagonal"]}, "use one of"),
        ({"pooling_factors": [0]}, "above 0"),
    ],
)
def test_what_constraints_refuse(options, fix):
    with pytest.raises(ValueError, match=fix):
        Constraints(**options)


# ---- errors ------------------------------------------------------------------------


def error_of(made, tables):
    with pytest.raises(jde.PlannerError) as caught:
        made.plan(tables)
    return caught.value


def test_what_does_not_fit_is_named():
    tables = [table(f"t{n}", capacity=100_000 * (n + 1)) for n in range(5)]
    devices = topology(hbm_cap=10**7)
    error = error_of(planner(devices=devices), tables)
    assert error.error_type is jde.PlannerErrorType.INSUFFICIENT_STORAGE
    text = str(error)
    assert text.index("'t4'") < text.index("'t3'") < text.index("'t2'")
    assert "'t1'" not in text
    # With the missing bytes there is a plan.
    missing = int(
        text.split(" bytes of each device, ")[1].split(" more")[0].replace(",", "")
    )
    enough = dataclasses.replace(
        devices, hbm_cap=math.ceil((8.5e6 + missing) / 0.85) + 2
    )
    planner(devices=enough).plan(tables)


@pytest.mark.parametrize(
    ("constraints", "what"),
    [
        (
            {"a": Constraints(sharding_types=["column_wise"])},
            "dim does not divide by 32",
        ),
        ({"table": Constraints()}, "Did you mean 'tables'"),
        ({"a": Constraints(feature_names=["z"])}, "feature_names are \\['z'\\]"),
        ({"a": Constraints(pooling_factors=[1, 2])}, "has 2 numbers"),
    ],
)
def test_constraints_without_a_plan(constraints, what):
    tables = [table("a", dim=20), table("tables", dim=20)]
    error = error_of(planner(constraints=constraints), tables)
    assert error.error_type is jde.PlannerErrorType.STRICT_CONSTRAINTS
    with pytest.raises(jde.PlannerError, match=what):
        raise error


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="each name once"):
        planner().plan([table("a"), table("a")])
    with pytest.raises(TypeError, match="Leave tensor trains out"):
        planner().plan([jde.TTConfig("tt", 16, 64, (4, 4))])  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"or give the configs of a collection: emb"):
        planner().plan({"a": table("a")})  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"no sharders: write planner.plan\(tables\)"):
        planner().plan([table("a")], [])
    assert not hasattr(planner(), "no_such_name")
    with pytest.raises(ValueError, match="Topology.measure"):
        topology(hbm_cap=0)
    with pytest.raises(ValueError, match="whole hosts"):
        topology(8, local_world_size=3)
    with pytest.raises(
        ValueError, match="batch_size must be a whole number, 1 or more"
    ):
        planner(batch_size=0)
    with pytest.raises(ValueError, match="percentage"):
        jde.StorageReservation(1.5)


@pytest.mark.parametrize("sharding", ["row_wise", "column_wise"])
@pytest.mark.parametrize("world_size", [2, 3, 8])
@pytest.mark.parametrize(
    "options", [{}, {"capacity": 100}, {"dim": 20}, {"optimizer": optax.lion(0.1)}]
)
def test_impossible_is_what_the_mesh_refuses(sharding, world_size, options):
    config = table("a", sharding=sharding, **options)
    mesh = _options.exchange_placement(world_size, 0.5, None, "auto")
    try:
        mesh.with_tables([config])
        refused = False
    except ValueError:
        refused = True
    constraints = Constraints(sharding_types=[sharding, "replicated"])
    known = planner(world_size)._options(config, constraints).reasons
    assert (sharding in known) == refused


# ---- what a plan says --------------------------------------------------------------


def test_json_both_ways():
    tables = many_tables(12)
    made = planner(constraints=only("row_wise", "t3"))
    plan = made.plan(tables)
    again = jde.ShardingPlan.from_json(plan.to_json(), made.inputs(tables))
    assert again == plan and str(again) == str(plan)
    assert json.loads(plan.to_json())["tables"][3]["sharding"] == "row_wise"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda p, t: (dataclasses.replace(p, batch_size=65), t), "batch_size"),
        (lambda p, t: (dataclasses.replace(p, exchange_factor=1.0), t), "exchange"),
        (lambda p, t: (p, t[1:]), "tables"),
        (lambda p, t: (p, [dataclasses.replace(t[0], dim=4), *t[1:]]), "tables"),
        (
            lambda p, t: (
                dataclasses.replace(p, constraints=only("row_wise", "t1")),
                t,
            ),
            "constraints",
        ),
        (lambda p, t: (dataclasses.replace(p, topology=topology(4)), t), "devices"),
    ],
)
def test_a_plan_of_other_inputs_is_refused(change, named):
    tables, made = many_tables(3), planner()
    text = made.plan(tables).to_json()
    other, others = change(made, tables)
    with pytest.raises(ValueError, match=f"other inputs: {named} changed"):
        jde.ShardingPlan.from_json(text, other.inputs(others))


def test_speeds_and_shardings_are_no_inputs():
    tables, made = many_tables(3), planner()
    other = dataclasses.replace(made, topology=topology(hbm_mem_bw=1e12))
    placed = [dataclasses.replace(t, sharding="replicated") for t in tables]
    assert other.inputs(placed) == made.inputs(tables)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1}', '{"format": 9}'])
def test_damaged_json_is_named(text):
    with pytest.raises(ValueError, match="from_json"):
        jde.ShardingPlan.from_json(text)


def test_the_report_has_what_a_person_looks_for():
    tables = many_tables(9)
    text = str(planner(constraints=only("row_wise", "t0")).plan(tables))
    for word in ("fullest device", "forward", "tables MB", "imbalance of ms", "0-7"):
        assert word in text
    lines = [line for line in text.splitlines() if line.startswith("t0 ")]
    assert len(lines) == 1 and "replicated: not in sharding_types" in lines[0]
    assert all(
        len([x for x in text.splitlines() if x.startswith(f"t{n} ")]) == 1
        for n in range(9)
    )


def test_imbalance():
    assert jde.Imbalance.of([3, 3, 3]) == jde.Imbalance()
    one = jde.Imbalance.of([5, 0, 0, 0])
    assert one.max_over_mean == 4
    for value in dataclasses.astuple(one)[1:]:
        assert value == pytest.approx(1)
    some = jde.Imbalance.of([3, 1])  # shares 3/4 and 1/4
    assert some.max_over_mean == pytest.approx(1.5)
    assert some.total_variation == pytest.approx(0.5)
    assert some.total_distance == pytest.approx(0.5)
    assert some.chi_squared == pytest.approx(0.25)
    entropy = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    assert some.kl_divergence == pytest.approx(entropy / math.log(2))


def test_reserved_memory():
    dense = {"w": jax.ShapeDtypeStruct((1000, 10), np.float32)}
    reserved = jde.StorageReservation.for_model(dense, percentage=0.5)
    assert reserved.left(10**6) == 500_000 - 40_000 * 4


@pytest.mark.slow
def test_measured_devices(monkeypatch):
    # Repeats make the numbers precise; how precise is no question here.
    for module, name in (
        (_measure, "REPEATS"),
        (_measure, "PASSES"),
        (_probes, "STEPS"),
        (_probes, "TURNS"),
    ):
        monkeypatch.setattr(module, name, 1)
    devices = jde.Topology.measure(mesh_of(2))
    assert devices.world_size == 2 and devices.compute_device == "cpu"
    assert devices.hbm_mem_bw > 1e7 and devices.intra_host_bw > 1e7
    assert devices.hbm_cap > 10**8
    planner(devices=devices).plan(many_tables(3))
