# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Where rows lie on the wire, and exchanges in two waves."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

import jax_dynemb as jde
import peers
from jax_dynemb._src.engines.hash.exchange import buffers as _buffers
from jax_dynemb._src.engines.hash.exchange.buffers import BufferField, ExchangeBuffers
from jax_dynemb._src.engines.hash.exchange.places import Places
from jax_dynemb._src.engines.hash.links import Links
from jax_dynemb.testing import assert_in_place
from meshes import collectives, mesh_of
from support import Twins

PIECES = (
    BufferField("a", 5, 6, "float32"),
    BufferField("b", 3, 4, "bfloat16"),
    BufferField("b", 2, 4, "bfloat16"),
    BufferField("c", 0, 6, "float32"),
    BufferField("d", 7, 9, "float32"),
    BufferField("e", 4, 6, "float32"),
)
SHARDS = 2


@pytest.fixture
def two_waves(monkeypatch):
    """As large exchanges are made."""
    monkeypatch.setattr(_buffers, "WAVE_BYTES", 0)


@pytest.fixture(params=[1, 2])
def wire(request):
    """In one wave and in two."""
    if request.param == 2:
        request.getfixturevalue("two_waves")
    return ExchangeBuffers(PIECES, Links(("data",), SHARDS))


def parts() -> dict[int, jax.Array]:
    """Whole numbers, all different where there are few: exact in any dtype."""
    rng = np.random.default_rng(0)
    return {
        n: jnp.asarray(rng.integers(-128, 128, (SHARDS, p.rows, p.dim)), p.dtype)
        for n, p in enumerate(PIECES)
    }


def test_pieces_have_places_of_their_own(wire):
    """Aligned for vectors, in few arrays, whatever the dims."""
    taken = {}
    for piece, where in zip(PIECES, wire.views, strict=True):
        bytes_of = jnp.dtype(piece.dtype).itemsize
        assert where.offset * bytes_of % 16 == where.stride * bytes_of % 16 == 0
        whole = taken.setdefault(where.array, np.zeros(where.size, int))
        for row in range(SHARDS * piece.rows):
            begin = where.offset + row // where.group * where.stride
            begin += row % where.group * piece.dim
            whole[begin : begin + piece.dim] += 1
    assert all(whole.max() == 1 for whole in taken.values())
    waves = {where.wave for where in wire.views}
    assert len(taken) == 1 + len(waves) if waves == {0} else waves == {0, 1}
    tables = {(p.table, w.wave) for p, w in zip(PIECES, wire.views, strict=True)}
    assert len(tables) == len({p.table for p in PIECES})


def test_rows_are_where_they_were_put(wire):
    given = parts()
    arrays = wire.filled([given[n] for n in range(len(PIECES))])
    for n, (piece, array) in enumerate(zip(PIECES, arrays, strict=True)):
        np.testing.assert_array_equal(wire.part(n, array), given[n])
        rows = np.asarray(given[n], np.float32).reshape(-1, piece.dim)
        numbers = [*range(len(rows))][::-1] + [SHARDS * 7]  # the last is nowhere
        owner, number = np.divmod(np.array(numbers, np.int32), max(1, piece.rows))
        live = owner < SHARDS
        table = np.full_like(owner, n)
        places = Places(*map(jnp.asarray, (owner, table, number, live)))
        got = wire.rows_at([(n, len(numbers))], arrays, places)
        assert got.dtype == piece.dtype
        expected = np.concatenate([rows[::-1], np.zeros((1, piece.dim))])
        np.testing.assert_array_equal(np.asarray(got, np.float32), expected)


def test_an_exchange_hands_each_device_its_part(wire):
    here = jnp.arange(SHARDS, dtype=jnp.float32)

    def body(me):
        mine = {n: 10 * me[0].astype(x.dtype) + x for n, x in parts().items()}
        arrived = wire.exchange(wire.filled([mine[n] for n in range(len(PIECES))]))
        return {n: wire.part(n, arrived[n]) for n, p in enumerate(PIECES) if p.rows}

    spec = PartitionSpec("data")
    run = jax.shard_map(body, mesh=mesh_of(SHARDS), in_specs=spec, out_specs=spec)
    for n, got in jax.jit(run)(here).items():
        piece = PIECES[n]
        got = np.asarray(got, np.float32).reshape(SHARDS, SHARDS, piece.rows, piece.dim)
        for device, sender in np.ndindex(SHARDS, SHARDS):
            sent = parts()[n] + jnp.asarray(10 * sender, piece.dtype)
            np.testing.assert_array_equal(got[device, sender], sent[device])


@pytest.mark.parametrize("by_peers", [False, True])
def test_all_devices_get_what_one_gathers(wire, by_peers, monkeypatch):
    if by_peers:
        peers.emulate(monkeypatch)
        links = dataclasses.replace(wire.links, peers=tuple(range(SHARDS)))
        wire = dataclasses.replace(wire, links=links)
    here = jnp.arange(SHARDS, dtype=jnp.float32)

    def body(me):
        # A kernel writes gradients as float32, and they travel in the dtype of a piece.
        mine = [
            10 * me[0] + parts()[n][0].astype(jnp.float32) for n in range(len(PIECES))
        ]
        arrived, views = wire.gather(mine)
        assert [view.array for view in views] == list(range(len(PIECES)))
        for piece, view, array in zip(PIECES, views, arrived, strict=True):
            assert (view.size, view.dtype) == (array.size, piece.dtype)
            assert view.stride * array.dtype.itemsize % 16 == 0
        return {
            n: wire.part(n, arrived[n], views[n])
            for n, piece in enumerate(PIECES)
            if piece.rows
        }

    spec = PartitionSpec("data")
    run = jax.shard_map(body, mesh=mesh_of(SHARDS), in_specs=spec, out_specs=spec)
    for n, got in jax.jit(run)(here).items():
        sent = [
            (parts()[n][0].astype(jnp.float32) + 10 * sender).astype(PIECES[n].dtype)
            for sender in range(SHARDS)
        ]
        for device in np.split(np.asarray(got, np.float32), SHARDS):
            np.testing.assert_array_equal(device, np.asarray(sent, np.float32))


TABLES = [
    jde.TableConfig("seq", 3, 1024, optimizer=jde.optim.adam(0.1)),
    jde.TableConfig("half", 8, 1024, param_dtype="bfloat16", score_strategy="lfu"),
    jde.TableConfig("bag", 5, 1024, pooling="mean", pooling_factors=(4,)),
    jde.TableConfig("more", 4, 1024, optimizer=jde.optim.adagrad(0.1)),
]


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0.02, 0.5])
def test_training_in_two_waves_equals_one_device(two_waves, factor):
    """Several dims and dtypes travel, and sums of one; with and without room."""
    twins = Twins(*TABLES, mesh=mesh_of(4), exchange_factor=factor)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        ids = {t.name: rng.integers(-1, 200, 96) for t in TABLES}
        ids["bag"] = rng.integers(-1, 200, (12, 4))
        twins.train(ids, seed=seed)
    twins.find(ids)
    twins.check({"rtol": 1e-5, "atol": 1e-5})
    overflows = twins.coll.stats(twins.state)["seq/exchange_overflows"]
    assert (overflows > 0) == (factor < 0.1)


@pytest.mark.collectives
def test_two_waves_are_in_place_and_two_exchanges_each(two_waves):
    table = functools.partial(jde.TableConfig, dim=8, capacity=65_536)
    coll = jde.Tables([table("a"), table("b"), table("c")], mesh=mesh_of(4))

    def step(state, ids):
        rows, residual, state = coll.lookup(state, ids)
        return coll.apply_gradients(state, residual, rows)

    step = jax.jit(step, donate_argnums=0)
    rng = np.random.default_rng(0)
    ids = {name: jde.ids(rng.integers(0, 10**9, 64)) for name in "abc"}
    assert_in_place(step, coll.init(0), ids)
    entry, _ = collectives(step.lower(coll.init(0), ids).compile().as_text())
    assert entry == {"all-to-all": 1 + 2 + 2}
