# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""GPUs that read each other's memory exchange what XLA's collectives exchange."""

import functools
import os
import subprocess
import sys
import textwrap
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh

import jax_dynemb as jde
import peers
from jax_dynemb._src import ffi, ops
from jax_dynemb._src.engines.hash.exchange import arrived_rows
from jax_dynemb._src.engines.hash.layouts.peers import grouped, peers_of
from jax_dynemb._src.engines.hash.links import Links
from meshes import gpus, large_results, mesh_of

_QUICK = [(0.5, "rows"), (0.5, "sums")]  # with further rounds
_OTHERS = [(None, "rows"), (0.1, "auto"), (8.0, "rows")]
FACTORS = [*_QUICK, *(pytest.param(*each, marks=pytest.mark.slow) for each in _OTHERS)]


_ON_GPUS = [
    pytest.param("one gpu", marks=pytest.mark.gpu),
    pytest.param("gpus", marks=pytest.mark.multigpu),
]


@pytest.fixture(params=["emulated", *_ON_GPUS])
def mesh(request, monkeypatch):
    """A mesh whose devices read each other's memory, or do as if they did."""
    if request.param == "emulated":
        peers.emulate(monkeypatch)
        return mesh_of(2)
    return peers.of_itself(monkeypatch) if request.param == "one gpu" else gpus()


def _tables() -> list[jde.TableConfig]:
    adam, sgd = jde.optim.adam(0.01), jde.optim.sgd(0.1)
    return [
        jde.TableConfig("evicts", dim=32, capacity=1024, optimizer=adam),
        jde.TableConfig("bags", dim=8, capacity=4096, optimizer=sgd, pooling="sum"),
        jde.TableConfig("means", dim=20, capacity=4096, optimizer=sgd, pooling="mean"),
        jde.TableConfig("few", dim=36, capacity=3, optimizer=adam),
        jde.TableConfig(
            "copies", dim=12, capacity=512, optimizer=sgd, sharding="replicated"
        ),
    ]


def _trained(mesh: Mesh, transport: str, factor: float, pooled: str) -> list:
    """Rows of all steps and of a serving lookup, after eviction and removal."""
    coll = jde.Tables(
        _tables(),
        mesh,
        exchange_factor=factor,
        exchange_pooled=pooled,
        exchange_transport=transport,
    )
    state = coll.init(seed=0)
    n, rng = 128 * mesh.size, np.random.default_rng(1)

    @jax.jit
    def step(state, ids, shift):
        rows, residual, state = coll.lookup(state, ids)
        grads = {name: row * 0.25 + shift for name, row in rows.items()}
        return rows, coll.apply_gradients(state, residual, grads)

    outputs = []
    for t in range(4):
        ids = {
            "evicts": rng.integers(0, 600, n),
            "bags": rng.integers(0, 900 // (1 + t), (n // 4, 4)),
            "means": rng.integers(0, 900, (n // 4, 6)),
            "few": rng.integers(0, 3, n),
            "copies": rng.integers(0, 300, n),
        }
        ids = {name: jde.ids(each) for name, each in ids.items()}
        rows, state = step(state, ids, jnp.float32(0.125 * t))
        outputs += [rows[name] for name in sorted(rows)]
        if t == 2:
            state = coll.erase(state, {"evicts": jde.ids(np.arange(100))})
    found, _ = coll.find(state, {"evicts": jde.ids(rng.integers(0, 900, n))})[:2]
    outputs += jax.tree.leaves(found)
    stats = coll.stats(state)
    counted = ("rows", "evicted", "lost_updates", "refused")
    outputs += [v for k, v in sorted(stats.items()) if k.split("/")[-1] in counted]
    return [np.asarray(each, np.float64) for each in outputs]


@pytest.mark.parametrize(("factor", "pooled"), FACTORS)
def test_rows_and_counters_are_those_of_collectives(mesh, factor, pooled):
    by_peers = _trained(mesh, "peers", factor, pooled)
    by_collectives = _trained(mesh, "collectives", factor, pooled)
    for mine, theirs in zip(by_peers, by_collectives, strict=True):
        # XLA may add the rows of a bag in another order in another program.
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


def test_bags_of_many_rows_are_read_from_the_buffer(mesh, monkeypatch):
    """Beside rows that are read into their places."""
    monkeypatch.setattr(arrived_rows, "_MOST_BAG_BYTES", 0)
    by_peers = _trained(mesh, "peers", 0.5, "rows")
    by_collectives = _trained(mesh, "collectives", 0.5, "rows")
    for mine, theirs in zip(by_peers, by_collectives, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


def _bags_alone(
    mesh: Mesh, transport: str, dtype: str | None = None, **options: Any
) -> list:
    """Sums, residual updates and a serving lookup of bags of every form."""
    sgd, adam = jde.optim.sgd(0.25), jde.optim.adam(0.01)
    common = {"capacity": 2048, "initializer": jde.initializers.uniform(-0.1, 0.1)}
    tables = [
        jde.TableConfig(
            "sum", dim=32, pooling="sum", optimizer=adam, **common | options
        ),
        jde.TableConfig("mean", dim=20, pooling="mean", optimizer=sgd, **common),
        jde.TableConfig("odd", dim=7, pooling="sum", optimizer=sgd, **common),
        jde.TableConfig(
            "half", dim=64, pooling="sum", param_dtype="bfloat16", **common
        ),
    ]
    coll = jde.Tables(
        tables,
        mesh,
        exchange_pooled="sums",
        exchange_dtype=dtype,
        exchange_transport=transport,
    )
    n, rng = 32 * mesh.size, np.random.default_rng(2)

    def batch() -> dict:
        lengths = rng.integers(0, 6, n)
        values = rng.integers(-1, 1500, 5 * n)  # some behind the last bag
        return {
            "sum": jde.ids(rng.integers(-1, 1500, (n, 5))),
            "mean": jde.ids(rng.integers(-1, 900, (n, 3))),
            "odd": jde.Jagged(jde.ids(values), lengths=jnp.asarray(lengths)),
            "half": jde.ids(rng.integers(0, 6000, (n, 8))),  # more than there is room
        }

    @jax.jit
    def step(state, ids, weights):
        rows, residual, state = coll.lookup(state, ids, weights=weights)
        grads = {name: row * 0.25 + 0.5 for name, row in rows.items()}
        return rows, coll.apply_gradients(state, residual, grads)

    state, outputs = coll.init(seed=0), []
    for _ in range(3):
        weights = {"sum": jnp.asarray(rng.integers(-2, 3, (n, 5)), jnp.float32)}
        rows, state = step(state, batch(), weights)
        outputs += [rows[name] for name in sorted(rows)]
    outputs += jax.tree.leaves(jax.jit(coll.find)(state, batch())[:2])
    outputs += [coll.stats(state)[f"{table.name}/rows"] for table in tables]
    return [np.asarray(each, np.float64) for each in outputs]


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_sums_are_written_to_the_devices_that_need_them(mesh, dtype):
    """Owners add up in the same order, so bits are those of collectives."""
    by_peers = _bags_alone(mesh, "peers", dtype)
    by_collectives = _bags_alone(mesh, "collectives", dtype)
    for mine, theirs in zip(by_peers, by_collectives, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("mesh", _ON_GPUS, indirect=True)
def test_ids_of_bags_go_to_their_owners(mesh):
    rng, shards = np.random.default_rng(0), mesh.size
    sizes, buckets = (1, 7, 1024, 5000), (shards, 3 * shards - 1, 64, 1 << 20)
    tables = [
        ops.RouteTable(n, 0, shards, 5 + n, b, -(-b // shards))
        for n, b in zip(sizes, buckets, strict=True)
    ]
    ids = [
        jde.ids(rng.integers(-1, 10**12, (shards, n)).reshape(-1)).reshape(-1, n, 2)
        for n in sizes
    ]
    links = Links(("data",), shards, tuple(device.id for device in mesh.devices))

    @jax.jit
    @functools.partial(
        jax.shard_map, mesh=mesh, in_specs=jax.P("data"), out_specs=jax.P("data")
    )
    def run(*ids):
        return [x[None] for x in links.send_bags([x[0] for x in ids], tables)]

    prepared = peers_of(mesh, ("data",), "peers") if shards > 1 else None
    assert prepared is None or prepared.ids == links.peers
    for _ in range(2):
        for found, sent, table in zip(run(*ids), ids, tables, strict=True):
            by_sender = [peers.ids_by_owner(x, table, shards) for x in sent]
            np.testing.assert_array_equal(found, np.swapaxes(by_sender, 0, 1))


@pytest.mark.parametrize("transport", ["auto", "peers"])
def test_sums_of_a_table_with_a_tier_are_copied(mesh, transport):
    """The lookup of such a table is several calls, which write to this device."""
    tier = jde.tiers.host(hbm_fraction=0.5)
    by_peers = _bags_alone(mesh, transport, tier=tier)
    by_collectives = _bags_alone(mesh, "collectives", tier=tier)
    for mine, theirs in zip(by_peers, by_collectives, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("mesh", _ON_GPUS, indirect=True)
def test_no_sum_is_copied_before_or_after_it_travels(mesh):
    table = jde.TableConfig(
        "t", dim=64, capacity=1 << 16, pooling="sum", optimizer=jde.optim.sgd(0.1)
    )
    coll = jde.Tables([table], mesh, exchange_pooled="sums", exchange_transport="peers")
    ids = {"t": jde.ids(np.arange(4096 * mesh.size * 4).reshape(-1, 4) % 900)}

    def train(state, ids, d_rows):
        rows, residual, state = coll.lookup(state, ids)
        return rows, coll.apply_gradients(state, residual, d_rows)

    d_rows = {"t": jnp.zeros((4096 * mesh.size, 64))}
    program = jax.jit(train, donate_argnums=0).lower(coll.init(0), ids, d_rows)
    text = program.compile().as_text()
    assert "dynemb_peer_lookup" in text and "all-to-all" not in text
    # Only what adds up the sums of owners is as large as the sums of a device.
    found = large_results(text, 4096 * 64 * 4)
    assert set(found) <= {"add", "slice"}


@pytest.mark.parametrize("mesh", _ON_GPUS, indirect=True)
@pytest.mark.parametrize("factor", [0.5, 8.0])  # with further rounds, and without
def test_tables_that_peers_read_stay_in_place(mesh, factor):
    """A GPU reads rows where they are stored, and no program copies a table."""
    sgd = jde.optim.sgd(0.1)
    tables = [
        jde.TableConfig(name, dim=32, capacity=1 << 20, optimizer=sgd) for name in "ab"
    ]
    coll = jde.Tables(tables, mesh, exchange_factor=factor, exchange_transport="peers")
    ids = jde.ids(np.arange(1024 * mesh.size) % 900)

    def train(state, ids):
        rows, residual, state = coll.lookup(state, ids)
        d_rows = {name: jnp.ones_like(row) for name, row in rows.items()}
        return rows, coll.apply_gradients(state, residual, d_rows)

    def serve(state, ids):
        return coll.find(state, ids)

    state, given = coll.init(seed=0), dict.fromkeys("ab", ids)
    least = (32 * 4 << 20) // mesh.size // 8  # bytes, fewer than those of an array
    for function in (train, serve):
        program = jax.jit(function, donate_argnums=0).lower(state, given).compile()
        text = program.as_text()
        assert "dynemb_place_stored_rows" in text
        assert not large_results(text, least)


@pytest.mark.parametrize("mesh", _ON_GPUS, indirect=True)
@pytest.mark.parametrize(
    "options",
    [
        {"dtype": "bfloat16"},
        {"dim": 16},  # rows of 64 bytes
        {"tier": jde.tiers.host(hbm_fraction=0.5)},
    ],
)
def test_rows_that_travel_in_another_form_are_copied_first(mesh, options):
    sgd = jde.optim.sgd(0.1)
    table = jde.TableConfig(
        "a", **{"dim": 64, "capacity": 1 << 14, "optimizer": sgd} | options
    )
    coll = jde.Tables([table], mesh, exchange_transport="peers")
    ids = {"a": jde.ids(np.arange(1024 * mesh.size) % 900)}
    text = jax.jit(coll.lookup).lower(coll.init(seed=0), ids).compile().as_text()
    assert "dynemb_place_rows" in text and "dynemb_place_stored_rows" not in text


@pytest.mark.parametrize(
    ("of_python", "name"),
    [
        (ops.Piece, "piece_fields"),
        (ops.PlacedTable, "placed_table_fields"),
        (ops.StoredTable, "stored_table_fields"),
        (ops.Span, "span_fields"),
    ],
)
def test_python_and_kernels_agree_on_the_fields_of_a_record(of_python, name):
    assert of_python._fields == tuple(ffi.constants()[name])


@pytest.mark.multigpu
@pytest.mark.parametrize("late", range(4))
def test_a_late_device_is_waited_for(late):
    mesh = gpus()
    if late >= mesh.size:
        pytest.skip(f"needs {late + 1} GPUs")
    coll = jde.Tables(
        _tables()[:2], mesh, exchange_pooled="sums", exchange_transport="peers"
    )

    def body(state, ids, turns):
        me = jax.lax.axis_index("data")
        count = jnp.where(me == late, turns, 0)
        busy = jax.lax.fori_loop(0, count, lambda _, x: x @ x * 0.5, jnp.eye(512))
        ids = ids + jnp.where(jnp.isnan(busy[0, 0]), 1, 0).astype(ids.dtype)
        bags = ids.reshape(-1, 4, *ids.shape[1:])
        rows, residual, state = coll.lookup(state, {"evicts": ids, "bags": bags})
        busy = jax.lax.fori_loop(0, count, lambda _, x: x @ x * 0.5, busy)
        shift = jnp.where(jnp.isnan(busy[0, 0]), 1, 0)
        grads = {name: row + shift for name, row in rows.items()}
        return list(rows.values()), coll.apply_gradients(state, residual, grads)

    placement = coll.placement
    assert placement is not None
    specs, split = placement.state_specs(placement.stacks), placement.split
    step = jax.jit(
        jax.shard_map(
            body,
            mesh=mesh,
            in_specs=(specs, split, jax.P()),
            out_specs=(split, specs),
            check_vma=False,
        )
    )
    ids = jde.ids(np.random.default_rng(0).integers(0, 600, 256 * mesh.size))
    results = []
    for turns in (0, 300):
        state = coll.init(seed=0)
        for _ in range(3):
            rows, state = step(state, ids, turns)
        results.append([np.asarray(row) for row in rows])
    for mine, theirs in zip(*results, strict=True):
        np.testing.assert_array_equal(mine, theirs)


_DEAD = """
    import jax, jax.numpy as jnp, numpy as np
    from jax.sharding import Mesh
    import jax_dynemb as jde

    mesh = Mesh(np.array(jax.devices()), ("data",))
    table = jde.TableConfig("t", dim=16, capacity=1024, optimizer=jde.optim.sgd(0.1))
    coll = jde.Tables([table], mesh, exchange_transport="peers")

    def body(state, ids):
        turns = jnp.where(jax.lax.axis_index("data") == 1, 10**6, 0)
        busy = jax.lax.fori_loop(0, turns, lambda _, x: x * 0.5 + ids[0, 0], 1.0)
        return coll.lookup(state, {"t": ids + jnp.uint32(busy > 1e30)})[0]["t"]

    specs = coll.placement.state_specs(coll.placement.stacks)
    split = coll.placement.split
    run = jax.jit(
        jax.shard_map(
            body, mesh=mesh, in_specs=(specs, split), out_specs=split, check_vma=False
        )
    )
    ids = jde.ids(np.arange(64 * mesh.size))
    jax.block_until_ready(run(coll.init(seed=0), ids))
"""


@pytest.mark.multigpu
def test_a_device_that_never_arrives_is_named():
    gpus()
    environment = dict(os.environ, JAX_DYNEMB_PEER_TIMEOUT="3")
    done = subprocess.run(
        [sys.executable, "-P", "-c", textwrap.dedent(_DEAD)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode != 0
    assert "waited 3 s for GPU 1, which did not arrive" in done.stderr


@pytest.mark.collectives
def test_peers_are_refused_where_there_are_no_gpus():
    with pytest.raises(ValueError, match="Leave it out") as error:
        jde.Tables(_tables(), mesh_of(2), exchange_transport="peers")
    assert "platform cpu" in str(error.value)
    jde.Tables(_tables(), mesh_of(2))  # the advice


def test_an_unknown_transport_is_refused():
    with pytest.raises(ValueError, match="'auto', 'peers', 'collectives'"):
        jde.Tables(_tables(), mesh_of(2), exchange_transport="nccl")


def test_many_arrays_and_pieces_are_exchanged_in_several_calls(monkeypatch):
    limits = ffi.constants()
    sent = []

    def call(op, results, operands, aliases, **attributes):
        assert op == "exchange" and not aliases
        sent.append((operands[:-2], attributes["pieces"].reshape(-1, 5)))
        return list(operands[:-2])

    monkeypatch.setattr(ffi, "call", call)
    arrays = [jnp.full((2, 320, 4), n, jnp.float32) for n in range(70)]
    crowded, row = 65, 16  # one array has more pieces than a call may have
    counts = [300 if n == crowded else 5 for n in range(70)]
    pieces = [
        ops.Piece(n, k * row, row, row, counter=0)
        for n, count in enumerate(counts)
        for k in range(count)
    ]
    counters = jnp.ones((1, 2), jnp.int32)
    options = {"devices": (0, 1), "counted_by_sender": False}
    result = ops.exchange(arrays, pieces, jnp.int32(0), counters, **options)
    assert [int(x[0, 0, 0]) for x in result] == list(range(70))
    covered = {}
    for operands, numbers in sent:
        assert 0 < len(operands) <= limits["most_exchanged"]
        assert len(numbers) <= limits["most_pieces"]
        for array, begin, row_bytes, room, counter in numbers.tolist():
            whole = counter < 0 or row_bytes == room
            assert whole and begin + room <= operands[array].nbytes // 2
            name = int(operands[array][0, 0, 0])
            covered.setdefault(name, set()).update(range(begin, begin + room))
    assert all(covered[n] >= set(range(counts[n] * row)) for n in range(70))


@pytest.mark.parametrize("axes", [("b",), ("a", "c"), ("c", "a"), ("a", "b", "c")])
def test_groups_are_the_devices_that_an_axis_index_numbers(axes):
    names, shape = ("a", "b", "c"), (2, 3, 4)
    grid = np.arange(24).reshape(shape)
    groups = grouped(grid, names, axes)
    coordinates = dict(zip(names, np.indices(shape), strict=True))
    for group in groups:
        for place, device in enumerate(group):
            index = 0
            for axis in axes:
                n = names.index(axis)
                index = index * shape[n] + coordinates[axis].reshape(-1)[device]
            assert index == place
        others = [n for n in names if n not in axes]
        for axis in others:
            assert len(set(coordinates[axis].reshape(-1)[group])) == 1
    assert sorted(groups.reshape(-1)) == list(range(24))
