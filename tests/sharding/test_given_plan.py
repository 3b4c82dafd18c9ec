# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""``Tables(plan=...)``: tables lie where the plan says, and learn as on one device."""

import dataclasses
import re
import string

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jax_dynemb as jde
from meshes import mesh_of
from support import Twins, gradients

UNIFORM = jde.initializers.uniform(-0.1, 0.1)
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}


def table(name: str, **options) -> jde.TableConfig:
    common = {"dim": 16, "capacity": 1024, "initializer": UNIFORM}
    return jde.TableConfig(name, **{**common, **options})


def plan_of(**where: tuple[int, ...] | str) -> jde.Plan:
    """Shards of a table-wise table, or another sharding, by table."""
    return jde.Plan(
        tuple(
            jde.TablePlan(name, given)
            if isinstance(given, str)
            else jde.TablePlan(name, "table_wise", shards=given)
            for name, given in where.items()
        )
    )


def where(coll: jde.Tables) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {t.table: (t.sharding, t.shards) for t in coll.plan().tables}


def test_a_plan_of_other_tables_is_followed():
    shardings = ["table_wise"] * 7 + ["replicated", "column_wise", "row_wise"]
    pairs = list(enumerate(shardings))
    first = jde.Tables(
        [table(f"t{n}", sharding=s, pooling_factors=(n + 1,)) for n, s in pairs],
        mesh=mesh_of(4),
    )
    # These tables have no sharding or cost of their own.
    bare = [table(f"t{n}") for n, _ in pairs]
    second = jde.Tables(bare, mesh=mesh_of(4), plan=first.plan())
    assert where(second) == where(first)
    assert {t.sharding for t in second.tables.values()} == set(shardings)
    assert second == jde.Tables(bare, mesh=mesh_of(4), plan=second.plan())


def test_tables_lie_at_the_shards_of_the_plan():
    given = plan_of(a=(1,), b=(0,), c=(2, 3), d=(0, 1), e=(3,), f=(2,), g=(0,))
    coll = jde.Tables([table(n) for n in "abcdefg"], mesh=mesh_of(4), plan=given)
    assert where(coll) == {t.table: (t.sharding, t.shards) for t in given.tables}
    # Two levels of single shards (b, a, f, e; then g) and one of pairs (d, c).
    assert len({coll.state_name(n) for n in "abcdefg"}) == 3


def test_a_plan_without_shards_leaves_the_choice():
    tables = [table(f"t{n}") for n in range(4)]
    coll = jde.Tables(tables, mesh=mesh_of(4), plan=plan_of(t1="table_wise"))
    assert where(coll)["t1"] == ("table_wise", (0, 1, 2, 3))
    assert where(coll)["t0"] == ("row_wise", (0, 1, 2, 3))


def test_it_trains_as_on_one_device():
    tables = [table(n, pooling="sum", optimizer=jde.optim.adam(0.1)) for n in "abcd"]
    given = plan_of(a=(3,), b=(1,), c=(0,), d=(2,))
    twins = Twins(*tables, mesh=mesh_of(4), plan=given)
    for step in range(3):
        rng = np.random.default_rng(step)
        ids = {name: rng.integers(-1, 60, (8, 3)) for name in "abcd"}
        _, residuals = twins.lookup(ids)
        twins.apply(residuals, {name: gradients((8, 16), step) for name in ids})
    twins.check(TOLERANCE)


def test_a_grown_collection_keeps_its_plan():
    tables = [table(n, capacity=256) for n in "ab"]
    given = plan_of(a=(1,), b=(0,))
    coll = jde.Tables(tables, mesh=mesh_of(2), plan=given)
    larger, _ = coll.grow(coll.init(0), {"a": 2048})
    assert where(larger) == where(coll) and larger.tables["a"].capacity >= 2048


@pytest.mark.parametrize(
    ("given", "fix"),
    [
        (plan_of(a=(0,), z=(1,)), "names each table at most once, and no other"),
        (jde.Plan((jde.TablePlan("a", "row_wise"),) * 2), "at most once"),
        (plan_of(a="one device"), "made without a mesh"),
        (plan_of(a="diagonal"), "sharding must be one of"),
        (plan_of(a=(4,)), "has the shards 0 to 3"),
        (plan_of(a=(1, 2)), "the first a multiple of it"),
        (plan_of(a=(0, 1, 2)), "a number of neighbours that divides 4"),
        (plan_of(a=(-1,)), "has the shards 0 to 3"),
        (plan_of(a=(0, 2)), "neighbours"),
        (plan_of(a=(1,)), "Tables of one shape fill shards from 0 on"),
        (plan_of(a=(0,), b=(0,), c=(1,), d=(1,), e=(2,), f=(2,), g=(2,)), "fill"),
    ],
)
def test_plans_that_no_arrays_have_are_refused(given, fix):
    with pytest.raises(ValueError, match=fix):
        jde.Tables([table(n) for n in "abcdefg"], mesh=mesh_of(4), plan=given)


def followed(error: str, shards: dict[str, tuple[int, ...]]) -> dict:
    """The shards by table, as an error about them says; empty where it says nothing."""
    if move := re.search(r"leaves shard (\d+) without a table like '(\w)'", error):
        first, name = int(move[1]), move[2]
        return shards | {name: tuple(range(first, first + len(shards[name])))}
    use = re.search(r"table '(\w)' on the shards .*?(?:Use \[([\d, ]*)\]|$)", error)
    assert use, error
    return shards | {use[1]: tuple(int(n) for n in (use[2] or "").split(",") if n)}


# Widths that divide neither the devices nor the buckets; tables of few buckets.
@settings(max_examples=60)
@given(
    devices=st.sampled_from([2, 4, 6, 8]),
    buckets=st.sampled_from([1, 2, 3, 6, 8]),
    places=st.lists(st.tuples(st.integers(-1, 8), st.integers(1, 9)), min_size=1),
)
def test_what_a_refused_plan_advises_is_accepted(devices, buckets, places):
    names = string.ascii_lowercase[: len(places)]
    shards = {
        n: tuple(range(a, a + k)) for n, (a, k) in zip(names, places, strict=True)
    }
    tables = [table(name, capacity=128 * buckets) for name in names]
    for _ in range(9 * len(places)):
        try:
            coll = jde.Tables(tables, mesh=mesh_of(devices), plan=plan_of(**shards))
        except ValueError as error:
            shards = followed(str(error), shards)
        else:
            break
    for name, mine in where(coll).items():
        assert mine == ("table_wise", shards[name] or mine[1])


def test_a_plan_needs_a_mesh_and_a_plan():
    with pytest.raises(ValueError, match="leave the plan out on one device"):
        jde.Tables([table("a")], plan=plan_of(a="row_wise"))
    with pytest.raises(TypeError, match="must be a jde.Plan, not a dict"):
        jde.Tables([table("a")], mesh=mesh_of(2), plan={"a": "row_wise"})


def test_figures_of_a_plan_are_not_read():
    (one,) = jde.Tables([table("a")], mesh=mesh_of(2)).plan({"a": 64}).tables
    other = dataclasses.replace(one, rows=1, bytes=1, exchange="sums", devices=9)
    coll = jde.Tables([table("a")], mesh=mesh_of(2), plan=jde.Plan((other,)))
    assert coll == jde.Tables([table("a")], mesh=mesh_of(2))
