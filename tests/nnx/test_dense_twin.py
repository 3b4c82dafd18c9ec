# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Training with tables equals training with nnx.Embed on re-numbered ids."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import jax_dynemb as jde

VOCABULARY = np.array([2**40, -9, 17, 10**12, 3, 2**63 - 1])
DIM, BATCH, STEPS = 4, 16, 5


class Model(nnx.Module):
    """Looks one embedding up twice, in different shapes."""

    def __init__(self, embed: Any):
        self.embed = embed
        self.top = nnx.Linear(2 * DIM, 1, rngs=nnx.Rngs(7))

    def __call__(self, item, history):
        rows = self.embed(item)
        past = self.embed(history).mean(axis=1)
        return self.top(jnp.concatenate([rows, past], axis=-1))[:, 0]


def loss_fn(model, item, history, label):
    return optax.sigmoid_binary_cross_entropy(model(item, history), label).mean()


def batches():
    """Every id in every step: dense Adam also moves rows that no id touched."""
    draw = np.random.default_rng(0)
    for _ in range(STEPS):
        item = draw.permutation(np.resize(np.arange(len(VOCABULARY)), BATCH))
        history = draw.integers(0, len(VOCABULARY), (BATCH, 3))
        yield item, history, jnp.asarray(item % 2, jnp.float32)


def twins(optimizer):
    embed = jde.nnx.DynamicEmbed(
        features=DIM,
        capacity=256,
        initializer=jde.initializers.normal(0.5),
        optimizer=optimizer,
        rngs=nnx.Rngs(0),
    )
    dense = nnx.Embed(len(VOCABULARY), DIM, rngs=nnx.Rngs(0))
    dense.embedding[...] = embed(jde.ids(VOCABULARY))
    return Model(embed), Model(dense)


@pytest.mark.parametrize(
    ("optimizer", "tx"),
    [
        (jde.optim.sgd(0.5), optax.sgd(0.5)),
        (jde.optim.adam(0.05), optax.adam(0.05)),
    ],
    ids=["sgd", "adam"],
)
def test_same_losses_and_rows(platform, optimizer, tx):
    dynamic, dense = twins(optimizer)
    ours, theirs = (
        jde.nnx.Optimizer(dynamic, tx),
        nnx.Optimizer(dense, tx, wrt=nnx.Param),
    )

    @jde.nnx.jit
    def dynamic_step(model, optimizer, *batch):
        loss, grads = jde.nnx.value_and_grad(loss_fn)(model, *batch)
        optimizer.update(model, grads)
        return loss

    @nnx.jit
    def dense_step(model, optimizer, *batch):
        loss, grads = nnx.value_and_grad(loss_fn)(model, *batch)
        with jax.numpy_dtype_promotion("standard"):
            optimizer.update(model, grads)
        return loss

    to_ids = functools.partial(np.take, VOCABULARY)
    for item, history, label in batches():
        batch = jde.ids(to_ids(item)), jde.ids(to_ids(history)), label
        one = dynamic_step(dynamic, ours, *batch)
        two = dense_step(dense, theirs, jnp.asarray(item), jnp.asarray(history), label)
        np.testing.assert_allclose(one, two, rtol=1e-5)
    rows = dynamic.embed(jde.ids(VOCABULARY), train=False)
    np.testing.assert_allclose(rows, dense.embed.embedding[...], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        dynamic.top.kernel[...], dense.top.kernel[...], rtol=1e-4, atol=1e-5
    )
    assert dynamic.embed.stats()["embedding/step"] == STEPS
