# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Counters that a training loop reads without a wait."""

import jax
import optax
from flax import nnx

import jax_dynemb as jde


def test_the_last_known_numbers(kit):
    model = kit.model()
    optimizer = jde.nnx.Optimizer(model, optax.adam(0.1))
    assert model.sparse.stats(wait=False) == {}
    for n in range(4):
        kit.step(model, optimizer, kit.batch(n))
        jax.block_until_ready(nnx.state(model))
        before = model.sparse.stats()
        # What was copied at the call before this one.
        assert model.sparse.stats(wait=False)["cat/step"] == n
    assert model.sparse.stats(wait=False) == before
    assert before["cat/step"] == 4 and before["cat/rows"] > 0


def test_each_module_has_its_own(kit):
    one, two = kit.model(), kit.model(seed=1)
    one.sparse(kit.batch(0)["ids"])
    for model in (one, two):
        model.sparse.stats(wait=False)
        jax.block_until_ready(model.sparse.get_state())
    assert one.sparse.stats(wait=False)["cat/lookups"] == 1
    assert two.sparse.stats(wait=False)["cat/lookups"] == 0


def test_a_read_compiles_no_step_again(kit):
    model = kit.model()
    optimizer, traces = jde.nnx.Optimizer(model, optax.adam(0.1)), []

    @jde.nnx.jit
    def step(model, optimizer, batch):
        traces.append(1)
        loss, grads = jde.nnx.value_and_grad(kit.loss)(model, batch)
        optimizer.update(model, grads)
        return loss

    for n in range(3):
        step(model, optimizer, kit.batch(n))
        model.sparse.stats(wait=False)
    assert len(traces) == 1
