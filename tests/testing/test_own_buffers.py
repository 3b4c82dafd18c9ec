# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""No two arrays of a state share memory, so that a step may donate all of them."""

import collections
import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jax_dynemb as jde
from meshes import mesh_of

Config, Train = jde.TableConfig, jde.TTConfig
SGD, ADAM = jde.optim.sgd(0.1), jde.optim.adam(0.1)
HOST = jde.tiers.host(hbm_fraction=0.5)
EXACT = jde.admission.Frequency(2, jde.admission.Exact(2048))


def train(name: str, optimizer, **options) -> jde.TTConfig:
    return Train(name, 8, 1000, 4, pooling="sum", optimizer=optimizer, **options)


MIXES = {
    "trains": [train("user", SGD), train("item", SGD)],
    "trains with states": [
        train("user", ADAM),
        train("item", optax.adam(0.1)),
        train("shop", optax.contrib.schedule_free_sgd(0.1)),
    ],
    "trains with residuals": [
        train("user", SGD, residual=1024),
        train("item", SGD, residual=1024),
        Config("word", 8, 1024, optimizer=SGD),
    ],
    "shared arrays": [Config(name, 8, 1024) for name in ("user", "item", "shop")],
    "what optax stores once": [
        Config(name, 8, 1024, optimizer=optax.adam(0.1)) for name in ("user", "item")
    ],
    "layouts": [
        *(Config(f"copied{i}", 8, 1024, sharding="replicated") for i in range(2)),
        *(Config(f"whole{i}", 8, 1024, sharding="table_wise") for i in range(2)),
        Config("columns", 32, 1024, sharding="column_wise"),
    ],
    "tiers": [Config("user", 8, 1024, tier=HOST), Config("item", 8, 1024, tier=HOST)],
    "logs and counts": [
        Config("user", 8, 1024, log_removed=100, admission=EXACT),
        Config("item", 8, 1024, log_removed=100, admission=EXACT),
    ],
}
DYNAMIC = [name for name in MIXES if name[:6] != "trains"]


def collection(mix: str, place: str) -> jde.Tables:
    mesh = None if place == "one device" else mesh_of(8)
    return jde.Tables(MIXES[mix], mesh=mesh)


def assert_own_buffers(state) -> None:
    """No buffer is that of two leaves."""
    owners = collections.defaultdict(set)
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        if leaf.nbytes:
            for shard in leaf.addressable_shards:
                start = shard.data.unsafe_buffer_pointer()
                owners[start].add(jax.tree_util.keystr(path))
    assert owners
    assert [names for names in owners.values() if len(names) > 1] == []


def states_of(coll: jde.Tables, folder):
    """Yields a state from each call that makes one, and the tables it is of."""
    yield "init", coll, coll.init(0)
    yield "init in jit", coll, jax.jit(coll.init)(jnp.uint32(3))
    yield "clear", coll, coll.clear(coll.init(0))
    grown = {name: 2 * c.num_slots for name, c in coll.engine.catalog.dynamic.items()}
    if grown:
        yield "grow", *coll.grow(coll.init(0), grown)
    jde.checkpoint.save(folder, 1, {"tables": coll.init(0)}, tables=coll, wait=True)
    for like in ({"tables": coll.init(1)}, {"tables": jax.eval_shape(coll.init)}):
        restored = jde.checkpoint.restore(folder, like, tables=coll)
        yield "restore", coll, restored.tree["tables"]


@pytest.mark.slow
@pytest.mark.parametrize("place", ["one device", "mesh"])
@pytest.mark.parametrize("mix", MIXES)
def test_every_array_has_memory_of_its_own(mix, place, tmp_path):
    calls = set()
    for call, coll, state in states_of(collection(mix, place), tmp_path):
        assert_own_buffers(state)
        new = donated(coll, state)
        assert all(leaf.is_deleted() for leaf in jax.tree.leaves(state)), call
        assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(new)), call
        calls.add(call)
    assert {"init", "init in jit", "clear", "restore"} <= calls


def test_tables_above_stores():
    configs = [Config(name, 8, 1024) for name in ("user", "item")]
    stores = {config.name: jde.stores.Memory(config) for config in configs}
    tiers = {n: jde.tiers.external(stores[n], hbm_fraction=0.5) for n in stores}
    above = [dataclasses.replace(c, tier=tiers[c.name]) for c in configs]
    coll = jde.Tables(above)
    filled = jde.import_.from_store(jde.Tables(configs), stores).state
    larger, grown = coll.grow(coll.init(0), {"user": 2048})
    states = [(coll, coll.init(0)), (coll, coll.clear(coll.init(0))), (larger, grown)]
    for tables, state in [*states, (jde.Tables(configs), filled)]:
        assert_own_buffers(state)
        donated(tables, state)
        assert all(leaf.is_deleted() for leaf in jax.tree.leaves(state))


@functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
def donated(coll: jde.Tables, state):
    """Makes arguments as any donated call requires them."""
    del coll
    return jax.tree.map(jnp.copy, state)


def donating_step(coll: jde.Tables):
    @functools.partial(jax.jit, donate_argnums=0)
    def step(state, ids):
        rows, residual, state = coll.lookup(state, ids)
        return coll.apply_gradients(state, residual, rows)

    return step


@pytest.mark.parametrize("name", DYNAMIC)
def test_imports_and_exports_leave_arrays_of_their_own(name, tmp_path):
    coll = collection(name, "one device")
    ids = {name: jde.ids(np.arange(64)) for name in coll.features}
    state = coll.lookup(coll.init(0), ids)[2]
    jde.export.safetensors(tmp_path / "out", coll, state)
    assert_own_buffers(jde.import_.safetensors(tmp_path / "out", coll).state)


def test_the_documented_step_trains_two_tensor_trains():
    coll = collection("trains", "one device")
    ids = {name: jde.ids(np.array([[1, 2]])) for name in coll.features}
    before = coll.find(coll.init(0), ids)[0]
    state = donating_step(coll)(coll.init(0), ids)
    after = coll.find(state, ids)[0]
    for name in coll.features:  # a step of SGD moves rows against themselves
        assert float(jnp.sum(after[name] ** 2)) < float(jnp.sum(before[name] ** 2))
