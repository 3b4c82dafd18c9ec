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
    place_rows,
    prepare_peers,
)
from meshes import gpus

pytestmark = pytest.mark.multigpu


@pytest.fixture(scope="module")
def mesh() -> Mesh:
    mesh = gpus()
    pairs = [(device.id, device.local_hardware_id) for device in mesh.devices]
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
        return place_rows([array[0]], rank, own, placed, devices=devices)

    for _ in range(3):  # a graph is replayed
        found = run(arrays, *(jnp.stack(each) for each in zip(*ids, strict=True)))
    host = np.asarray(arrays)
    for me in range(shards):
        expected = _expected(ids[me], list(host), me, dims, offsets, spans, shapes)
        for r, want in enumerate(expected):
            rows = np.asarray(found[r]).reshape(shards, *shapes[r])[me]
            begin = 5 if r == 2 else 0  # nothing is written before
            np.testing.assert_array_equal(rows[begin:], want[begin:])


def test_links_of_another_mesh_are_refused(mesh):
    links = Links(("data",), mesh.size, tuple(range(90, 90 + mesh.size)))

    @jax.jit
    @functools.partial(
        jax.shard_map, mesh=mesh, in_specs=jax.P("data"), out_specs=jax.P("data")
    )
    def run(array):
        numbers = jnp.zeros(4, jnp.int32)
        limits = jnp.zeros((1, mesh.size), jnp.int32)
        ids = PlacedIds(numbers, numbers, limits, limits)
        results = [jax.ShapeDtypeStruct((4, 2), jnp.float32)]
        placed = Placed(results, [PlacedTable(0, 0, 8, 3)], [Span(0, 0, 0, 0)])
        return links.place_rows([array], ids, placed)[0]

    with pytest.raises(jax.errors.JaxRuntimeError, match="Trace it again"):
        run(jnp.zeros((mesh.size * mesh.size, 6))).block_until_ready()
