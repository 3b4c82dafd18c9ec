# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A mesh does with arrays and exchanges what a plan says of them."""

import dataclasses

import jax
import numpy as np
import optax
import pytest

import jax_dynemb as jde
from meshes import mesh_of
from planner.inputs import SHARDINGS, Constraints, only, planner, table


def bytes_by_device(state):
    total = {}
    for array in jax.tree.leaves(state):
        for part in array.addressable_shards:
            total[part.device] = total.get(part.device, 0) + part.data.nbytes
    return set(total.values())


@pytest.mark.parametrize("sharding", SHARDINGS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"optimizer": jde.optim.adam(0.1), "capacity": 5000},
        {"optimizer": optax.adam(0.1)},
        {"param_dtype": "bfloat16", "dim": 64},
        {"optimizer": jde.optim.rowwise_adagrad(0.1), "capacity": 130_000},
    ],
)
def test_storage_is_that_of_the_arrays(sharding, options):
    tables = [table(name, **options) for name in "abc"]
    plan = planner(constraints=only(sharding, *"abc")).plan(tables)
    assert {each.sharding for each in plan.tables} == {sharding}
    state = jde.Tables(tables, mesh=mesh_of(8), plan=plan).init(0)
    assert bytes_by_device(state) == set(plan.bytes_by_shard)


def test_storage_of_a_mixed_plan_and_where_its_tables_lie():
    tables = [table(f"t{n}", dim=8 + 24 * (n % 2)) for n in range(21)]
    wanted = {f"t{n}": Constraints(sharding_types=[SHARDINGS[n % 4]]) for n in range(8)}
    wanted |= only("table_wise", *(f"t{n}" for n in range(8, 21)))
    plan = planner(constraints=wanted).plan(
        [t if t.dim > 8 else dataclasses.replace(t, dim=64) for t in tables]
    )
    coll = jde.Tables(
        [t if t.dim > 8 else dataclasses.replace(t, dim=64) for t in tables],
        mesh=mesh_of(8),
        plan=plan,
    )
    assert bytes_by_device(coll.init(0)) == set(plan.bytes_by_shard)
    lies = {t.table: (t.sharding, t.shards, t.rows, t.columns) for t in plan.tables}
    real = coll.plan().tables
    assert lies == {t.table: (t.sharding, t.shards, t.rows, t.columns) for t in real}


@pytest.mark.parametrize("sharding", SHARDINGS)
@pytest.mark.parametrize("pooling", [None, "sum"])
def test_exchanged_bytes_are_those_of_the_mesh(sharding, pooling):
    factor = 4.0 if pooling else 1.0
    tables = [
        table(f"t{n}", pooling=pooling, pooling_factors=(factor,)) for n in range(8)
    ]
    names = [t.name for t in tables]
    plan = planner(
        batch_size=40, constraints=only(sharding, *names), exchange_factor=1.0
    ).plan(tables)
    coll = jde.Tables(tables, mesh=mesh_of(8), plan=plan, exchange_factor=1.0)
    real = coll.plan(dict.fromkeys(names, round(40 * factor)))
    fields = ("exchange", "ids", "id_bytes", "row_bytes", "gradient_bytes")
    for mine, theirs in zip(plan.tables, real.tables, strict=True):
        for field in fields:
            assert getattr(mine, field) == getattr(theirs, field), field


@pytest.mark.parametrize("factors", [(None, 16.0), (2.0, 16.0), (16.0, 16.0)])
@pytest.mark.parametrize("count", [2, 8])
def test_tables_in_one_stack_share_its_exchange(factors, count):
    """One exchange serves all tables of a stack, whatever each would have alone."""
    of_table = [factors[n % 2] for n in range(count)]
    tables = [
        table(
            f"t{n}",
            dim=64,
            pooling=factor and "sum",
            pooling_factors=(factor or 1.0,),
        )
        for n, factor in enumerate(of_table)
    ]
    names = [t.name for t in tables]
    plan = planner(batch_size=40, constraints=only("table_wise", *names)).plan(tables)
    coll = jde.Tables(tables, mesh=mesh_of(8), plan=plan)
    batch = {n: round(40 * (f or 1.0)) for n, f in zip(names, of_table, strict=True)}
    mine = {t.table: t for t in plan.tables}
    for theirs in coll.plan(batch).tables:
        for field in ("exchange", "id_bytes", "row_bytes", "gradient_bytes"):
            assert getattr(mine[theirs.table], field) == getattr(theirs, field), field


def test_a_plan_is_for_as_many_devices_as_its_topology_has():
    tables = [table(name) for name in "ab"]
    plan = planner().plan(tables)
    jde.Tables(tables, mesh=mesh_of(8), plan=plan)
    with pytest.raises(ValueError, match=r"made for 8 devices.* on 4: plan again"):
        jde.Tables(tables, mesh=mesh_of(4), plan=plan)


def test_a_plan_trains():
    tables = [table(f"t{n}", pooling="sum") for n in range(9)]
    plan = planner().plan(tables)
    coll = jde.Tables(tables, mesh=mesh_of(8), plan=plan)
    ids = {t.name: jde.ids(np.arange(32).reshape(16, 2)) for t in tables}
    rows, residual, state = jax.jit(coll.lookup)(coll.init(0), ids)
    state = jax.jit(coll.apply_gradients)(state, residual, rows)
    assert all(coll.stats(state)[f"{t.name}/rows"] == 32 for t in tables)
