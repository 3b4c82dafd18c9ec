# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A replica that took deltas goes on with the bits of the original."""

import dataclasses
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jax_dynemb as jde
from keys import keys_of_bucket
from meshes import mesh_of
from support import compiled, export, gradients

# So many that two buckets of 128 can not hold them.
CROWD = np.array(keys_of_bucket(0, 2, 150) + keys_of_bucket(1, 2, 150), np.int64)
OPTIMIZERS = {
    "adam": jde.optim.adam(optax.exponential_decay(0.1, 4, 0.5)),
    "counter": jde.optim.rowwise_adagrad(
        0.1, weight_decay=0.1, counter=jde.optim.Counter(3.0, "l2")
    ),
    "optax": optax.adam(0.1),
}


def tables(kind: str, mesh=None, **options) -> jde.Tables:
    config = jde.TableConfig(
        "t", dim=4, capacity=256, optimizer=OPTIMIZERS[kind], log_removed=800
    )
    return jde.Tables([dataclasses.replace(config, **options)], mesh=mesh)


def step(coll: jde.Tables, state, seed: int):
    jit, ids = compiled(coll), np.random.default_rng(seed).choice(CROWD, 96)
    rows, residual, state = jit.lookup(state, {"t": jde.ids(ids)}, None, None)
    d_rows = {"t": jnp.asarray(gradients(rows["t"].shape, seed))}
    return jit.apply_gradients(state, residual, d_rows, None)


def shipped(delta: jde.Delta) -> jde.Delta:
    """Returns what another process reads."""
    return pickle.loads(pickle.dumps(dataclasses.replace(delta, chunks=list(delta))))


def assert_same_bits(coll, state, replica):
    assert coll.get_score(state) == coll.get_score(replica)
    for name in ("step", "lookups"):
        assert coll.stats(state)[f"t/{name}"] == coll.stats(replica)[f"t/{name}"]
    want, got = export(coll, state, "t"), export(coll, replica, "t")
    assert want.keys() == got.keys()
    jax.tree.map(
        np.testing.assert_array_equal,
        {key: dataclasses.asdict(row) for key, row in want.items()},
        {key: dataclasses.asdict(row) for key, row in got.items()},
    )


def follow(coll: jde.Tables, steps: int = 3) -> None:
    state, replica, marks, at = coll.init(0), coll.init(7), {}, None
    for seed in range(3):
        state = step(coll, step(coll, state, seed), seed + 10)
        deltas, marks = coll.export_delta(state, marks)
        replica = coll.apply_delta(replica, "t", shipped(deltas["t"]), at=at)
        at = marks["t"]
    for seed in range(20, 20 + steps):
        state, replica = step(coll, state, seed), step(coll, replica, seed)
        assert_same_bits(coll, state, replica)
    assert coll.stats(state)["t/evicted"] > 0


@pytest.mark.parametrize("kind", sorted(OPTIMIZERS))
def test_a_replica_trains_on(kind):
    follow(tables(kind))


def test_rows_that_are_rounded_at_random():
    follow(tables("adam", param_dtype="bfloat16", rounding="stochastic"))


@pytest.mark.parametrize("kind", ["counter", "optax"])
def test_on_a_mesh(kind):
    follow(tables(kind, mesh=mesh_of(2)), steps=1)


def test_another_optimizer_begins_anew():
    coll, other = tables("optax"), tables("adam")
    state = step(coll, coll.init(0), 0)
    deltas, _ = coll.export_delta(state)
    replica = other.apply_delta(other.init(0), "t", deltas["t"])
    assert other.stats(replica)["t/rows"] == coll.stats(state)["t/rows"]


def test_a_delta_of_an_older_version_has_rows_only():
    coll = tables("adam")
    state = step(coll, coll.init(0), 0)
    delta = shipped(coll.export_delta(state)[0]["t"])
    old = object.__new__(jde.Delta)
    for name in ("table", "since", "until", "chunks"):
        object.__setattr__(old, name, getattr(delta, name))
    replica = coll.apply_delta(coll.init(0), "t", old)
    assert coll.stats(replica)["t/rows"] == coll.stats(state)["t/rows"]
