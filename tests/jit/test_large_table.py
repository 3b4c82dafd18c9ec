# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A table of 20 GiB on one GPU: every way to step leaves it where it is."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import jax_dynemb as jde

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

CAPACITY = 41_943_040  # rows of 128 float32: 20 GiB
TABLE = jde.TableConfig("big", 128, CAPACITY, optimizer=jde.optim.sgd(0.1))
COLL = jde.Tables([TABLE])
BATCH = 65_536


def batches(count: int) -> jax.Array:
    draw = np.random.default_rng(0)
    return jde.ids(draw.integers(0, 2**62, size=(count, BATCH)))


def train(state, ids):
    rows, residual, state = COLL.lookup(state, {"big": ids})
    return COLL.apply_gradients(state, residual, {"big": jnp.ones_like(rows["big"])})


@functools.partial(jax.jit, donate_argnums=0)
def step(state, ids):
    return train(state, ids[0])


@functools.partial(jax.jit, donate_argnums=0)
def scanned(state, ids):
    return jax.lax.scan(lambda s, x: (train(s, x), None), state, ids)[0]


@pytest.fixture
def device():
    return jax.devices("cuda")[0]


def peak_bytes(device) -> int:
    return device.memory_stats()["peak_bytes_in_use"]


@pytest.mark.parametrize("run", [step, scanned])
def test_jit_and_scan(run, device):
    ids = batches(4)
    state = COLL.init(0)
    state = jax.block_until_ready(run(state, ids))
    table = state["big"].values
    assert table.nbytes == 20 * 2**30
    pointer, before = table.unsafe_buffer_pointer(), peak_bytes(device)
    del table
    jde.testing.assert_in_place(run, state, ids)
    state = jax.block_until_ready(run(state, ids))
    assert state["big"].values.unsafe_buffer_pointer() == pointer
    assert peak_bytes(device) - before < 2**30
    assert COLL.stats(state)["big/step"] == (2 if run is step else 8)


class Model(nnx.Module):
    def __init__(self, rngs):
        self.sparse = jde.nnx.EmbeddingBagCollection([TABLE], rngs=rngs)
        self.out = nnx.Linear(128, 1, rngs=rngs)

    def __call__(self, ids):
        return self.out(self.sparse({"big": ids})["big"])


@jde.nnx.jit
def nnx_step(model, optimizer, ids):
    def loss(model):
        return jnp.mean(model(ids) ** 2)

    value, grads = jde.nnx.value_and_grad(loss)(model)
    optimizer.update(model, grads)
    return value


def test_nnx_jit(device):
    ids = batches(1)[0]
    model = Model(nnx.Rngs(0))
    optimizer = jde.nnx.Optimizer(model, optax.sgd(0.1))
    first = float(nnx_step(model, optimizer, ids))
    values = nnx.state(model, jde.nnx.Table)
    arrays = [x for x in jax.tree.leaves(values) if x.nbytes == 20 * 2**30]
    pointer, before = arrays[0].unsafe_buffer_pointer(), peak_bytes(device)
    del values, arrays
    second = float(nnx_step(model, optimizer, ids))
    arrays = jax.tree.leaves(nnx.state(model, jde.nnx.Table))
    assert pointer in [x.unsafe_buffer_pointer() for x in arrays]
    assert peak_bytes(device) - before < 2**30
    assert second < first
