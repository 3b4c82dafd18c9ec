# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""GPUs that read each other's memory read rows into place, and write sums to owners."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh

from jax_dynemb._src.engines.hash.links import Links
from jax_dynemb._src.ops import (
    Peer,
    Placed,
    PlacedIds,
    PlacedTable,
    Span,
    StoredRows,
    StoredTable,
    place_rows,
    prepare_peers,
)
from meshes import gpus


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(1, marks=pytest.mark.gpu),
        pytest.param(None, marks=pytest.mark.multigpu),
    ],
)
def mesh(request) -> Mesh:
    """One GPU, which exchanges with itself, and all of them."""
    devices = np.array(jax.devices("gpu")[:1]) if request.param else None
    mesh = gpus() if devices is None else Mesh(devices, ("data",))
    pairs = [(device.id, device.id) for device in mesh.devices]
    members = [Peer(key, ordinal, f"GPU {ordinal}") for key, ordinal in pairs]
    if problem := prepare_peers(members):
        pytest.skip(problem)
    return mesh


def _ids(rng, sizes, shards, room):
    """Numbers, their order, and the ranges of owners, of one device."""
    numbers, begins, ends, first = [], [], [], 0
    n = sum(sizes)
    for size in sizes:
        counts = rng.integers(0, room + 1, shards)
        begin = first + np.cumsum(counts) - counts
        begins.append(begin)
        # Some do not travel: owners have rows of the first ones only.
        ends.append(begin + rng.integers(0, counts + 1))
        distinct = int(counts.sum())
        own = first + rng.integers(0, max(1, distinct), size)
        skewed = rng.random(size) < 0.5
        own[skewed] = first  # half of the positions have one id
        own[rng.random(size) < 0.1] = n  # padding
        numbers.append(own if distinct else np.full(size, n))
        first += distinct
    of_table = np.repeat(np.arange(len(sizes)), sizes)
    numbers = np.concatenate([*numbers, np.zeros(0, int)])
    order = np.lexsort((numbers, of_table))
    as_int = functools.partial(np.asarray, dtype=np.int32)
    return as_int(order), as_int(numbers), as_int(begins), as_int(ends)


def _expected(ids, arrays, me, dims, offsets, spans, result_rows):
    order, numbers, begins, ends = ids
    results = [np.zeros(shape, arrays[0].dtype) for shape in result_rows]
    stops = [*(span.begin for span in spans[1:]), len(order)]
    for span, stop in zip(spans, stops, strict=True):
        dim, offset = dims[span.table], offsets[span.table]
        for position in range(span.begin, stop):
            number = numbers[position]
            for owner, array in enumerate(arrays):
                begin, end = begins[span.table][owner], ends[span.table][owner]
                if begin <= number < end:
                    at = offset + (number - begin) * dim
                    row = span.row + position - span.begin
                    results[span.result][row] = array[me, at : at + dim]
    return results


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("dims", [(16, 16), (1, 3), (20, 128), (300, 7)])
def test_rows_are_those_of_the_owners(mesh, dims, dtype):
    rng, shards, room = np.random.default_rng(sum(dims)), mesh.size, 40
    sizes = (333, 1000)
    offsets = np.cumsum([0, room * dims[0] + 8])  # elements
    width = int(offsets[1]) + room * dims[1]
    shape = (shards, shards, width)
    arrays = jnp.asarray(rng.normal(size=shape), dtype)
    ids = [_ids(rng, sizes, shards, room) for _ in range(shards)]
    itemsize = arrays.dtype.itemsize
    tables = [
        PlacedTable(0, int(offset) * itemsize, dim * itemsize, room)
        for offset, dim in zip(offsets, dims, strict=True)
    ]
    # The rows of the second table go to two results.
    spans = [Span(0, 0, 0, 0), Span(333, 1, 1, 0), Span(833, 1, 2, 5)]
    shapes = [(333, dims[0]), (500, dims[1]), (505, dims[1])]
    placed = Placed([jax.ShapeDtypeStruct(s, dtype) for s in shapes], tables, spans)
    devices = tuple(device.id for device in mesh.devices)

    @jax.jit
    @functools.partial(
        jax.shard_map, mesh=mesh, in_specs=jax.P("data"), out_specs=jax.P("data")
    )
    def run(array, *ids):
        rank = jax.lax.axis_index("data")
        own = PlacedIds(*(each[0] for each in ids))
        return place_rows([array[0]], rank, own, placed, devices=devices)[0]

    for _ in range(3):  # a graph is replayed
        found = run(arrays, *(jnp.stack(each) for each in zip(*ids, strict=True)))
    host = np.asarray(arrays)
    for me in range(shards):
        expected = _expected(ids[me], list(host), me, dims, offsets, spans, shapes)
        for r, want in enumerate(expected):
            rows = np.asarray(found[r]).reshape(shards, *shapes[r])[me]
            begin = 5 if r == 2 else 0  # nothing is written before
            np.testing.assert_array_equal(rows[begin:], want[begin:])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("dims", [(16, 16), (1, 3), (20, 128), (300, 7)])
def test_rows_are_read_out_of_the_tables(mesh, dims, dtype):
    """Those of slots; what the owners send has garbage in their place."""
    rng, shards, room = np.random.default_rng(sum(dims)), mesh.size, 40
    sizes, spans = (333, 1000), [Span(0, 0, 0, 0), Span(333, 1, 1, 0)]
    shapes = [(333, dims[0]), (1000, dims[1])]
    offsets = np.cumsum([0, room * dims[0] + 8])
    shape = (shards, shards, int(offsets[1]) + room * dims[1])
    sent = np.array(jnp.asarray(rng.normal(size=shape), dtype))
    # Of each table 60 rows behind 10 of another one in the same array.
    values = [
        np.asarray(jnp.asarray(rng.normal(size=(shards, 70, dim)), dtype))
        for dim in dims
    ]
    slots = rng.integers(-2, 60, (shards, 2, shards, room)).astype(np.int32)
    slots[:, :, :, ::7] = 60 + rng.integers(0, 9)  # behind the table: as without a slot
    whole = sent.copy()
    for owner, t, me, place in np.ndindex(slots.shape):
        slot, at = slots[owner, t, me, place], int(offsets[t]) + place * dims[t]
        if 0 <= slot < 60:
            whole[owner, me, at : at + dims[t]] = values[t][owner, 10 + slot]
            sent[owner, me, at : at + dims[t]] = np.nan
    ids = [_ids(rng, sizes, shards, room) for _ in range(shards)]
    itemsize = sent.dtype.itemsize
    tables = [
        PlacedTable(0, int(offset) * itemsize, dim * itemsize, room)
        for offset, dim in zip(offsets, dims, strict=True)
    ]
    placed = Placed([jax.ShapeDtypeStruct(s, dtype) for s in shapes], tables, spans)
    devices = tuple(device.id for device in mesh.devices)

    @jax.jit
    @functools.partial(
        jax.shard_map, mesh=mesh, in_specs=jax.P("data"), out_specs=jax.P("data")
    )
    def run(array, slots, values, *ids):
        rank = jax.lax.axis_index("data")
        own = PlacedIds(*(each[0] for each in ids))
        places = [StoredTable(t, t * shards * room, 10, 60) for t in range(2)]
        stored = StoredRows([x[0] for x in values], slots[0].reshape(-1), places)
        rows, read = place_rows([array[0]], rank, own, placed, stored, devices=devices)
        return *rows, read

    given = [jnp.stack(each) for each in zip(*ids, strict=True)]
    found = run(jnp.asarray(sent), slots, [jnp.asarray(x) for x in values], *given)
    for me in range(shards):
        own = ids[me], list(whole), me, dims, offsets, spans, shapes
        for r, want in enumerate(_expected(*own)):
            rows = np.asarray(found[r]).reshape(shards, *shapes[r])[me]
            np.testing.assert_array_equal(rows, want)
    assert not np.asarray(found[2]).any()


def _four_positions(mesh: Mesh) -> tuple[PlacedIds, Placed]:
    """Positions without rows, in a table of two columns with room for three rows."""
    numbers = jnp.zeros(4, jnp.int32)
    limits = jnp.zeros((1, mesh.size), jnp.int32)
    results = [jax.ShapeDtypeStruct((4, 2), jnp.float32)]
    placed = Placed(results, [PlacedTable(0, 0, 8, 3)], [Span(0, 0, 0, 0)])
    return PlacedIds(numbers, numbers, limits, limits), placed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"first_row": 11}, "ends behind its array"),
        ({"first_place": 1}, "more places than slots"),
        ({"array": 1}, "a table of no array"),
    ],
)
def test_tables_that_are_not_there_are_refused(mesh, change, message):
    @jax.jit
    @functools.partial(
        jax.shard_map, mesh=mesh, in_specs=jax.P("data"), out_specs=jax.P("data")
    )
    def run(array):
        ids, placed = _four_positions(mesh)
        table = StoredTable(0, 0, 10, 60)._replace(**change)
        slots = jnp.zeros(3 * mesh.size, jnp.int32)
        stored = StoredRows([jnp.zeros((70, 2))], slots, [table])
        devices = tuple(device.id for device in mesh.devices)
        rank = jax.lax.axis_index("data")
        return place_rows([array], rank, ids, placed, stored, devices=devices)[0][0]

    with pytest.raises(jax.errors.JaxRuntimeError, match=message):
        run(jnp.zeros((mesh.size * mesh.size, 6))).block_until_ready()


def test_links_of_another_mesh_are_refused(mesh):
    links = Links(("data",), mesh.size, tuple(range(90, 90 + mesh.size)))

    @jax.jit
    @functools.partial(
        jax.shard_map, mesh=mesh, in_specs=jax.P("data"), out_specs=jax.P("data")
    )
    def run(array):
        ids, placed = _four_positions(mesh)
        return links.place_rows([array], ids, placed)[0][0]

    with pytest.raises(jax.errors.JaxRuntimeError, match="Trace it again"):
        run(jnp.zeros((mesh.size * mesh.size, 6))).block_until_ready()
