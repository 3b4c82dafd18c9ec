# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Loops are recorded where all loops of a step are between peers, and nowhere else."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax.sharding import PartitionSpec

import jax_dynemb as jde
import peers
from jax_dynemb._src.engines.hash.links import Links
from jax_dynemb._src.nnx.fast_path import program, recorded_loops
from jax_dynemb._src.nnx.fast_path.recorded_loops import has_recordable_loops
from meshes import mesh_of

IDS = {"t": jde.ids(np.arange(64) % 40)}


class Model(nnx.Module):
    def __init__(self):
        table = jde.TableConfig("t", dim=4, capacity=512)
        # Little room, so that there may be further rounds.
        self.tables = jde.nnx.EmbeddingCollection(
            [table], rngs=nnx.Rngs(0), mesh=mesh_of(2), exchange_factor=0.1
        )

    def __call__(self, ids):
        return self.tables(ids)["t"].sum(axis=1)


def made_step(extra=lambda x: x):
    @jde.nnx.jit
    def step(model, optimizer, ids):
        def loss_of(model, ids):
            return extra(model(ids)).mean()

        loss, grads = jde.nnx.value_and_grad(loss_of)(model, ids)
        optimizer.update(model, grads)
        return loss

    return step


def bare_loop(x):
    """Runs a loop whose condition only returns an operand."""
    more, total = jax.lax.while_loop(
        lambda carry: carry[0],
        lambda carry: (carry[1] < 3, carry[1] + 1),
        (jax.lax.stop_gradient(x).sum() > 1e9, jnp.float32(0)),
    )
    return x + total


def emulates_exchange(loop):
    return "all_to_all" in str(loop)


@pytest.fixture
def chosen(monkeypatch):
    """Lists, for each compiled program, whether its loops are recorded.

    A CPU takes the options too, and does nothing with them.
    """
    peers.emulate(monkeypatch)
    monkeypatch.setattr(program, "may_gain", lambda arrays: True)
    monkeypatch.setattr(recorded_loops, "_exchanges", emulates_exchange)
    looks = []

    def look(jaxpr):
        looks.append(has_recordable_loops(jaxpr))
        return looks[-1]

    monkeypatch.setattr(program, "has_recordable_loops", look)
    return looks


def train(step, batches):
    model = Model()
    optimizer = jde.nnx.Optimizer(model, optax.sgd(0.1))
    return [float(step(model, optimizer, ids)) for ids in batches]


def test_a_step_between_peers_has_recorded_loops(chosen):
    losses = train(made_step(), [IDS] * 3)
    assert chosen and all(chosen)
    assert losses[2] < losses[0]


def test_a_loop_that_xla_would_misread_is_not_recorded(chosen):
    losses = train(made_step(bare_loop), [IDS] * 3)
    assert chosen and not any(chosen)
    assert losses[2] < losses[0]


def test_loops_of_others_are_not_recorded(chosen):
    def scanned(x):
        return jax.lax.scan(lambda carry, y: (carry + y, carry), 0.0, x)[1]

    losses = train(made_step(scanned), [IDS] * 3)
    assert chosen and not any(chosen)
    assert losses[2] < losses[0]


def test_each_shape_is_looked_at(chosen):
    """A batch of another shape may bring a loop that the first one did not have."""

    def some(x):
        return bare_loop(x) if x.shape[0] == 32 else x

    small = {"t": IDS["t"][:32]}
    train(made_step(some), [IDS, small, IDS, small])
    assert chosen[0] and not chosen[-1]


@pytest.mark.parametrize("bare", [False, True])
def test_a_loop_between_peers_is_found(bare):
    """The call as it is, which is traced but not compiled without GPUs."""
    links = Links(("data",), 2, peers=(0, 1))

    def one(carry):
        return links.most(carry[0]), carry[1] + 1

    def most(count):
        condition = (lambda c: c[0]) if bare else (lambda c: c[0] & (c[1] < 3))
        return jax.lax.while_loop(condition, one, (count[0] > 0, jnp.int32(0)))[1][None]

    split = PartitionSpec("data")
    specs = {"in_specs": split, "out_specs": split, "check_vma": False}
    body = jax.shard_map(most, mesh=mesh_of(2), **specs)
    jaxpr = jax.make_jaxpr(jax.jit(body))(jnp.arange(2)).jaxpr
    assert has_recordable_loops(jaxpr) is not bare


def test_loops_are_recorded_for_gpus_alone(monkeypatch):
    peers.emulate(monkeypatch)
    assert not recorded_loops.may_gain(nnx.state(Model()))


def test_jit_takes_the_option():
    step = jax.jit(lambda x: x + 1, compiler_options=jde.compiler_options(loops=True))
    assert step(1) == 2
