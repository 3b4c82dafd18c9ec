# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A sharded step compiles in place everywhere, and with no other collectives."""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import jax_dynemb as jde
from jax_dynemb.testing import assert_in_place
from meshes import collectives, grid, large_results, mesh_of

AXES = ("data", "model")


def collection(mesh, **options) -> jde.Tables:
    common = {"capacity": 65_536, "optimizer": jde.optim.adam(0.1)}
    return jde.Tables(
        [
            jde.TableConfig("t", dim=8, feature_names=("a", "b"), **common),
            jde.TableConfig(
                "bag", dim=4, pooling="mean", pooling_factors=(3,), **common
            ),
        ],
        mesh=mesh,
        **options,
    )


def batch(size: int = 32) -> dict[str, jax.Array]:
    rng = np.random.default_rng(0)
    shapes = {"a": (size,), "b": (size, 2), "bag": (size, 3)}
    return {f: jde.ids(rng.integers(-1, 10**9, s)) for f, s in shapes.items()}


def train_step(coll: jde.Tables, state, ids):
    rows, residual, state = coll.lookup(state, ids)
    d_rows = jax.grad(lambda rows: sum(jnp.sum(x**2) for x in rows.values()))(rows)
    return coll.apply_gradients(state, residual, d_rows)


@pytest.mark.collectives
def test_a_step_is_in_place_with_four_exchanges():
    coll = collection(mesh_of(4))
    step = jax.jit(functools.partial(train_step, coll), donate_argnums=0)
    state = coll.init(0)
    assert_in_place(step, state, batch())
    entry, loops = collectives(step.lower(state, batch()).compile().as_text())
    # Ids, with which travels how many there are; rows; and gradients of ids and bags.
    assert entry == {"all-to-all": 4}
    # Further rounds of a lookup send slots back, those of an update send ids again with
    # the gradients; and five small numbers, of which two go together.
    assert loops == {"all-to-all": 5, "all-reduce": 8}


BATCH = 4096  # a row has 192 bytes or more, so nothing else is as large as rows


def step_with_given_gradients(coll: jde.Tables) -> str:
    """A compiled step whose gradients are arguments, so nothing computes with rows."""
    split = NamedSharding(coll.placement.mesh, PartitionSpec("data"))
    rng = np.random.default_rng(0)
    bag = (2,) if coll.config_of("t0").pooling else ()
    ids = {f: jde.ids(rng.integers(0, 10**9, (BATCH, *bag))) for f in coll.features}
    d_rows = {
        f: jax.ShapeDtypeStruct(
            (BATCH, coll.config_of(f).dim), jnp.float32, sharding=split
        )
        for f in coll.features
    }

    def step(state, ids, d_rows):
        rows, residual, state = coll.lookup(state, ids)
        return rows, coll.apply_gradients(state, residual, d_rows)

    lowered = jax.jit(step, donate_argnums=0).lower(coll.init(0), ids, d_rows)
    return lowered.compile().as_text()


def several_tables(dims: tuple[int, ...], pooled: bool, **options) -> jde.Tables:
    bags = {"pooling": "sum", "pooling_factors": (2,)} if pooled else {}
    tables = [
        jde.TableConfig(f"t{n}", dim=dim, capacity=16_384, **bags)
        for n, dim in enumerate(dims)
    ]
    return jde.Tables(tables, mesh=mesh_of(8), **options)


@pytest.mark.collectives
@pytest.mark.parametrize("dims", [(64, 64, 64), (64, 48, 80)])
@pytest.mark.parametrize("pooled", [False, True])
def test_rows_of_all_tables_travel_as_kernels_write_them(dims, pooled):
    """Between kernels and exchange nothing is joined, cut or copied."""
    coll = several_tables(dims, pooled, exchange_pooled="rows")
    found = large_results(step_with_given_gradients(coll), BATCH // 8 * 48 * 4)
    # On a CPU, XLA cuts and joins what an all_to_all takes and gives: so many of those.
    found.pop("all_to_all")
    # What is left: rows to the places of the user's ids, and the sums of bags.
    assert found.pop("select_n") == len(dims)
    assert found.pop("reduce_sum", 0) == (len(dims) if pooled else 0)
    assert not found


@pytest.mark.collectives
def test_sums_of_all_tables_travel_as_kernels_write_them():
    coll = several_tables((64, 48, 80), pooled=True, exchange_pooled="sums")
    # Each device sends as many bags to every owner as it has.
    found = large_results(step_with_given_gradients(coll), BATCH * 48 * 4)
    found.pop("all_to_all")
    # Of each table: gradients, which every owner gets.
    assert found.pop("broadcast_in_dim") <= 3
    # All gradients are joined once, by what writes them for the exchange.
    assert found.pop("concatenate") == 1
    assert not found


@pytest.mark.collectives
def test_where_any_batch_fits_there_are_no_further_rounds():
    coll = collection(mesh_of(4), exchange_factor=4)
    step = jax.jit(functools.partial(train_step, coll), donate_argnums=0)
    entry, loops = collectives(step.lower(coll.init(0), batch()).compile().as_text())
    assert entry == {"all-to-all": 4} and not loops


@pytest.mark.collectives
def test_a_replicated_table_gathers_ids_and_gradients():
    table = jde.TableConfig("t", dim=8, capacity=1024, sharding="replicated")
    coll = jde.Tables([table], mesh=mesh_of(4))
    step = jax.jit(functools.partial(train_step, coll), donate_argnums=0)
    ids = {"t": batch()["a"]}
    assert_in_place(step, coll.init(0), ids)
    entry, loops = collectives(step.lower(coll.init(0), ids).compile().as_text())
    assert set(entry) == {"all-gather"} and entry["all-gather"] <= 3 and not loops


def of_sharding(sharding: str, mesh, dim: int = 8) -> jde.Tables:
    """Two tables that share arrays, or one of columns; and a row-wise one."""
    common = {"optimizer": jde.optim.adam(0.1), "capacity": 16_384}
    initial = {"initializer": jde.initializers.uniform(-0.1, 0.1)}
    tables = [
        jde.TableConfig(name, dim=dim, sharding=sharding, **initial, **common)
        for name in ("a", "b")
    ]
    bag = jde.TableConfig("bag", dim=4, pooling="mean", pooling_factors=(3,), **common)
    return jde.Tables([*tables, bag], mesh=mesh)


@pytest.mark.collectives
def test_table_wise_tables_share_the_three_exchanges():
    coll = of_sharding("table_wise", mesh_of(2))
    step = jax.jit(functools.partial(train_step, coll), donate_argnums=0)
    assert sorted(coll.init(0)) == ["a+1", "bag"]
    assert_in_place(step, coll.init(0), batch(256))
    entry, loops = collectives(step.lower(coll.init(0), batch(256)).compile().as_text())
    assert entry == {"all-to-all": 3}
    assert loops == {"all-to-all": 5, "all-reduce": 8}


def test_tables_that_a_step_leaves_out_are_not_copied():
    coll = of_sharding("table_wise", mesh_of(2))
    step = jax.jit(functools.partial(train_step, coll), donate_argnums=0)
    assert_in_place(step, coll.init(0), {"a": batch()["a"]})


@pytest.mark.parametrize("optimizer", ["adam", "rowwise_adagrad"])
def test_column_wise_tables_gather_ids_and_exchange_columns_twice(optimizer):
    coll = of_sharding("column_wise", mesh_of(4), dim=64)
    if optimizer == "rowwise_adagrad":
        changed = {"optimizer": jde.optim.rowwise_adagrad(0.1)}
        configs = coll.tables.values()
        coll = coll.with_tables([dataclasses.replace(t, **changed) for t in configs])
    step = jax.jit(functools.partial(train_step, coll), donate_argnums=0)
    ids = {name: batch()[name] for name in "ab"}
    assert_in_place(step, coll.init(0), ids)
    text = step.lower(coll.init(0), ids).compile().as_text()
    entry, loops = collectives(text)
    sums = {"all-reduce"} if optimizer == "rowwise_adagrad" else set()
    assert set(entry) == {"all-gather", "all-to-all"} | sums and not loops
    assert entry["all-to-all"] == 2 and entry["all-gather"] <= 2
    assert entry["all-reduce"] <= 2


@pytest.mark.parametrize("kind", ["auto", "explicit", "inside", "inside_checked"])
def test_every_way_to_a_mesh_gives_the_same_rows(kind):
    mesh = grid(explicit=kind == "explicit")
    coll = collection(mesh, axis=AXES)
    step, ids = functools.partial(train_step, coll), batch()
    if kind == "explicit":
        ids = jax.device_put(ids, NamedSharding(mesh, PartitionSpec(AXES)))
    if kind.startswith("inside"):
        specs = coll.partition_specs()
        step = jax.shard_map(
            step,
            mesh=mesh,
            in_specs=(specs, PartitionSpec(AXES)),
            out_specs=specs,
            check_vma=kind == "inside_checked",
        )
    state = jax.jit(step, donate_argnums=0)(coll.init(0), ids)
    alone = collection(None)
    expected = jax.jit(functools.partial(train_step, alone))(alone.init(0), batch())
    for table in ("t", "bag"):
        ours, theirs = (
            _rows(c, s, table) for c, s in [(coll, state), (alone, expected)]
        )
        assert ours.keys() == theirs.keys()
        for key, row in ours.items():
            np.testing.assert_allclose(row, theirs[key], rtol=1e-5, atol=1e-6)


def _rows(coll: jde.Tables, state, table: str) -> dict[int, np.ndarray]:
    return {
        int(key): row
        for chunk in coll.export(state, table)
        for key, row in zip(chunk.keys, chunk.rows, strict=True)
    }


def test_tables_are_made_where_they_live():
    coll = collection(mesh_of(8))
    state = coll.init(0)
    for name, specs in coll.partition_specs().items():
        for array, spec in zip(
            jax.tree.leaves(state[name]), jax.tree.leaves(specs), strict=True
        ):
            assert array.sharding.spec == spec
            assert len({s.data.shape[0] for s in array.addressable_shards}) == 1
            assert array.addressable_shards[0].data.shape[0] * 8 == array.shape[0]


@pytest.mark.collectives
def test_sums_and_rows_travel_together():
    coll = collection(mesh_of(4), exchange_pooled="sums")
    step = jax.jit(functools.partial(train_step, coll), donate_argnums=0)
    assert_in_place(step, coll.init(0), batch())
    entry, loops = collectives(step.lower(coll.init(0), batch()).compile().as_text())
    assert entry == {"all-to-all": 4}
    assert loops == {"all-to-all": 5, "all-reduce": 8}
    # Without rows there is nothing that might not fit.
    only = {"bag": batch()["bag"]}
    assert_in_place(step, coll.init(0), only)
    entry, loops = collectives(step.lower(coll.init(0), only).compile().as_text())
    assert entry == {"all-to-all": 3} and not loops


def bytes_sent(text: str) -> list[int]:
    """Lists the bytes of each all_to_all of a lowered program."""
    sent = []
    for shape in re.findall(
        r'"?stablehlo.all_to_all.*?\((tensor<[^>]*>)\)', text, re.S
    ):
        *sizes, element = shape[len("tensor<") : -1].split("x")
        width = {"ui32": 4, "i32": 4, "f32": 4, "bf16": 2, "ui8": 1}[element]
        sent.append(int(np.prod([int(n) for n in sizes])) * width)
    return sent


@pytest.mark.collectives
@pytest.mark.parametrize("pooled", ["rows", "sums"])
@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_the_plan_counts_what_the_program_sends(dtype, pooled):
    coll = collection(mesh_of(4), exchange_dtype=dtype, exchange_pooled=pooled)
    step = jax.jit(functools.partial(train_step, coll))
    sent = bytes_sent(step.lower(coll.init(0), batch()).as_text())
    plan = coll.plan({"a": 8, "b": 16, "bag": 24})
    assert [t.exchange for t in plan.tables] == ["rows", pooled]
    for kind in ("id_bytes", "row_bytes", "gradient_bytes"):
        assert sum(getattr(t, kind) for t in plan.tables) in sent
    assert "row_wise" in str(plan) and "total" in str(plan)


@pytest.mark.collectives
@pytest.mark.parametrize("pooled", ["rows", "sums"])
def test_serving_sends_what_training_sends(pooled):
    """Ids, rows or sums. Training also sends how often ids occur again."""
    coll = collection(mesh_of(4), exchange_pooled=pooled)
    find = jax.jit(lambda state, ids: coll.find(state, ids)[:2])
    sent = bytes_sent(find.lower(coll.init(0), batch()).as_text())
    plan = coll.plan({"a": 8, "b": 16, "bag": 24})
    repeats = 4 * 4 * [t.exchange for t in plan.tables].count("rows")
    assert sum(t.id_bytes for t in plan.tables) - repeats in sent
    assert sum(t.row_bytes for t in plan.tables) in sent
    entry, _ = collectives(find.lower(coll.init(0), batch()).compile().as_text())
    assert entry == {"all-to-all": 3}


@pytest.mark.collectives
def test_the_plan_counts_what_tables_of_one_stack_send():
    coll = of_sharding("table_wise", mesh_of(2))
    step = jax.jit(functools.partial(train_step, coll))
    sent = bytes_sent(step.lower(coll.init(0), batch()).as_text())
    plan = coll.plan({"a": 16, "b": 32, "bag": 48})
    for kind in ("id_bytes", "row_bytes", "gradient_bytes"):
        assert sum(getattr(t, kind) for t in plan.tables) in sent
    assert {(t.shards, t.devices) for t in plan.tables[:2]} == {((0,), 1), ((1,), 1)}


def test_the_plan_counts_what_columns_send_and_the_arrays_of_a_device():
    coll = of_sharding("column_wise", mesh_of(4), dim=64)
    ids = {name: batch()[name] for name in "ab"}
    state = coll.init(0)
    lowered = jax.jit(functools.partial(train_step, coll)).lower(state, ids)
    plan = coll.plan({"a": 8, "b": 16})
    for kind in ("row_bytes", "gradient_bytes"):
        assert sum(getattr(t, kind) for t in plan.tables) in bytes_sent(
            lowered.as_text()
        )
    arrays = [
        x for s in state.values() for x in (s.index, s.values, *s.optimizer.values())
    ]
    on_device = sum(x.addressable_shards[1].data.nbytes for x in arrays)
    assert plan.bytes_by_shard == (on_device,) * 4


@pytest.mark.parametrize(
    ("options", "fix"),
    [
        ({"axis": "rows"}, "name one of them"),
        ({"exchange_factor": 0}, "above 0"),
        ({"exchange_dtype": "int8"}, "bfloat16"),
        ({"exchange_pooled": "bags"}, "'sums'"),
    ],
)
def test_mistakes_are_refused(options, fix):
    with pytest.raises(ValueError, match=fix):
        collection(mesh_of(2), **options)


def test_an_axis_needs_a_mesh():
    small = jde.TableConfig("t", dim=8, capacity=256)
    jde.Tables([small], mesh=mesh_of(8))  # two buckets on eight devices
    with pytest.raises(ValueError, match="mesh"):
        jde.Tables([small], axis="data")


_JOINS_EMPTY = re.compile(r"stablehlo\.concatenate.*: \(.*tensor<(?:\d+x)*0x")


@pytest.mark.parametrize("tables", [1, 2])
def test_loops_of_rounds_join_no_empty_arrays(tables):
    # XLA of jaxlib 0.11.2 ends the process where a loop does.
    configs = [jde.TableConfig(f"t{n}", dim=8, capacity=2048) for n in range(tables)]
    coll = jde.Tables(configs, mesh_of(2), share_arrays=False, exchange_factor=0.5)
    state, ids = coll.init(seed=0), {"t0": jde.ids(np.arange(512))}

    def step(state, ids):
        rows, residual, state = coll.lookup(state, ids)
        return coll.apply_gradients(state, residual, rows)

    for call in (step, coll.find):
        text = jax.jit(call).lower(state, ids).as_text()
        assert "stablehlo.while" in text
        assert not _JOINS_EMPTY.search(text)
