# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tiered tables grow as others do; their rows move to the homes of the larger table."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import jax_dynemb as jde
from growth import grow
from jax_dynemb._src.engines.shard import grow_tier as _grow_tier
from meshes import mesh_of
from support import Twins, assert_same_rows, export, gradients
from tiered import ADAM, TIER, Both, batch
from walks import BELOW, PLAIN, Walk, cold_batches

TABLE = jde.TableConfig("t", 5, 512, optimizer=ADAM)


@pytest.mark.parametrize("strategy", ["step", "lfu"])
def test_the_reference_grows_alike(platform, strategy):
    config = dataclasses.replace(TABLE, tier=TIER, score_strategy=strategy)
    twins = Twins(config)
    for seed in range(4):
        twins.train({"t": batch(120, seed)}, seed=seed)
    grow(twins, t=2048)
    twins.check()
    for seed in range(4, 7):
        twins.train({"t": batch(120, seed)}, seed=seed)
    twins.check()


@pytest.mark.parametrize(
    "tier", [TIER, jde.tiers.host(hbm_rows=64)], ids=["a fraction", "a number of rows"]
)
def test_rows_move_in_chunks(platform, monkeypatch, tier):
    """The last chunk begins before the end of the one before."""
    monkeypatch.setattr(_grow_tier, "_CHUNK_BYTES", 3 * 128 * 80)
    config = dataclasses.replace(TABLE, tier=tier)
    coll = jde.Tables([config])
    state = coll.init(0)
    for seed in range(3):
        given = {"t": jde.ids(batch(200, seed))}
        rows, residual, state = coll.lookup(state, given)
        state = coll.apply_gradients(state, residual, rows)
    before, kept = export(coll, state, "t"), coll.stats(state)
    larger, grown = coll.grow(state, {"t": 1024})
    assert_same_rows(export(larger, grown, "t"), before)
    assert_same_rows(export(coll, state, "t"), before)  # the old one is as it was
    after = larger.stats(grown)
    assert after["t/capacity"] == 1024 and after["t/misses"] == kept["t/misses"]
    assert after["t/written_back"] == kept["t/written_back"] > 0
    record = 4 * grown["t"].tier.homes.shape[1]  # bytes
    assert after["t/bus_gigabytes_out"] == pytest.approx(
        1e-9 * record * after["t/written_back"]
    )
    homes = grown["t"].tier.homes
    assert homes.shape[0] == 1024 and homes.sharding.memory_kind == "pinned_host"


# Shardy crashes there on the loop of rounds within shard_map (concepts/tiers.md).
@pytest.mark.slow
@pytest.mark.skipif(
    jax.__version_info__[:2] == (0, 11), reason="the compiler of jaxlib 0.11 crashes"
)
def test_a_stack_on_a_mesh_grows_together():
    fields = {"optimizer": ADAM, "sharding": "table_wise"}
    both = Both(*(jde.TableConfig(n, 4, 512, **fields) for n in "ab"), mesh=mesh_of(4))
    for seed in range(2):
        if seed == 1:
            pairs = zip(both.colls, both.states, strict=True)
            both.colls, both.states = map(
                list,
                zip(*(c.grow(s, {"a": 2048}) for c, s in pairs), strict=True),
            )
            both.steps = [both.compile(coll) for coll in both.colls]
        ids = {n: batch(120, seed + i) for i, n in enumerate("ab")}
        both.train(ids, {n: jnp.asarray(gradients((120, 4), seed)) for n in "ab"})
    both.check()


def test_rings_and_holds_stay(platform):
    """Rows that have departed stay in the ring, and held ones stay held."""
    walk = Walk(jde.stores.Memory(PLAIN))
    batches = cold_batches(1, 90)
    with walk.prefetcher(batches) as prefetcher:
        walk.run(prefetcher, batches[:30])
        waiting = len(walk.coll.departed(walk.state).exported("cat").keys)
        held = int(np.count_nonzero(walk.state["cat"].tier.held))
        rows = walk.coll.tables["cat"].num_slots
        walk.coll, walk.state = walk.coll.grow(walk.state, {"cat": 2 * rows})
        assert len(walk.coll.departed(walk.state).exported("cat").keys) == waiting > 0
        assert np.count_nonzero(walk.state["cat"].tier.held) == 2 * held > 0
        prefetcher.use(walk.coll)
        walk.run(prefetcher, batches[30:])
        walk.check(prefetcher)
    assert walk.coll.tables["cat"].tier.host_rows == 2 * rows
    assert walk.coll.tables["cat"].capacity == PLAIN.capacity


def test_a_prefetcher_of_other_tables_is_refused():
    walk = Walk(jde.stores.Memory(PLAIN))
    other = jde.Tables([dataclasses.replace(BELOW, dim=7)])
    with (
        walk.prefetcher([]) as prefetcher,
        pytest.raises(ValueError, match="dim 3 there"),
    ):
        prefetcher.use(other)


def test_too_few_frames_are_named_before_anything_moves(platform):
    coll = jde.Tables([dataclasses.replace(TABLE, tier=jde.tiers.host(hbm_rows=4))])
    state = coll.init(0)
    with pytest.raises(ValueError, match="hbm_rows of 16 or more"):
        coll.grow(state, {"t": 2048})
    coll.lookup(state, {"t": jde.ids([1])})


def test_the_next_size_is_compiled_ahead():
    fields = {"score_strategy": "no_eviction", "on_full": "refuse", "grow_at": 0.5}
    config = dataclasses.replace(TABLE, tier=TIER, **fields)

    def make_step(coll):
        @functools.partial(jax.jit, donate_argnums=0)
        def step(state, ids):
            rows, residual, state = coll.lookup(state, {"t": ids})
            return coll.apply_gradients(state, residual, rows)

        return step

    small = jde.Tables([config])
    large = jde.Tables([dataclasses.replace(config, capacity=4096)])
    grower = jde.lifecycle.Grower(make_step, small, every=1)
    state, expected = small.init(0), large.init(0)
    for step in range(12):
        ids = jde.ids(np.arange(40 * step, 40 * step + 80))
        state, expected = grower.step(state, ids), make_step(large)(expected, ids)
        coming = grower._next
        if coming is not None and coming.ready is not None:
            coming.ready.result(120)
        state = grower.maybe_grow(state)
    assert grower.coll.tables["t"].num_slots > 512
    assert_same_rows(export(grower.coll, state, "t"), export(large, expected, "t"))


def test_a_module_grows(platform):
    def trained(capacity: int):
        config = dataclasses.replace(TABLE, capacity=capacity, tier=TIER)
        sparse = jde.nnx.EmbeddingCollection([config], rngs=nnx.Rngs(0))
        optimizer = jde.nnx.Optimizer(sparse, optax.sgd(0.1))

        @jde.nnx.jit
        def step(model, optimizer, ids):
            loss, grads = jde.nnx.value_and_grad(lambda m: (m(ids)["t"] ** 2).mean())(
                model
            )
            optimizer.update(model, grads)
            return loss

        losses = []
        for seed in range(6):
            if seed == 3 and capacity == 512:
                sparse.grow({"t": 4096})
            ids = {"t": jde.ids(batch(60, seed))}
            losses.append(float(step(sparse, optimizer, ids)))
        return losses, export(sparse.coll, sparse.get_state(), "t")

    (losses, rows), (expected, same) = trained(512), trained(4096)
    assert losses == expected
    assert rows.keys() == same.keys()
