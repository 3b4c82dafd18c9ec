# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A small click model on three features of two tables, and its batches."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import jax_dynemb as jde

BATCH = 12


class Clicks(nnx.Module):
    """Two tables; C1 and C2 share the first one."""

    def __init__(self, rngs: nnx.Rngs, tables: list[jde.TableConfig]):
        self.sparse = jde.nnx.EmbeddingBagCollection(tables, rngs=rngs)
        width = 2 * tables[0].dim + tables[1].dim
        self.top = nnx.Sequential(
            nnx.Linear(width, 8, rngs=rngs), nnx.relu, nnx.Linear(8, 1, rngs=rngs)
        )

    def __call__(self, ids: dict[str, Any], **options: Any):
        rows = self.sparse(ids, **options)
        return self.top(jnp.concatenate(list(rows.values()), axis=-1))[:, 0]


def log_loss(model: Any, batch: dict[str, Any]):
    logits = model(batch["ids"])
    return optax.sigmoid_binary_cross_entropy(logits, batch["label"]).mean()


def make_tables(optimizer: Any = None, **options: Any) -> list[jde.TableConfig]:
    optimizer = optimizer or jde.optim.adagrad(0.1)
    shared = {"optimizer": optimizer, **options}
    return [
        jde.TableConfig("cat", 4, 256, feature_names=("C1", "C2"), **shared),
        jde.TableConfig("dog", 2, 256, **shared),
    ]


def make_batch(step: int, vocabulary: int = 30) -> dict[str, Any]:
    draw = np.random.default_rng(step)
    first = draw.integers(0, vocabulary, BATCH)
    ids = {
        "C1": jde.ids(first + 2**40),
        "C2": jde.ids(draw.integers(-1, vocabulary, (BATCH, 3))),
        "dog": jde.ids(-5 - first % 7),
    }
    return {"ids": ids, "label": jnp.asarray(first % 2, jnp.float32)}


def assert_close(a: Any, b: Any) -> None:
    """Equal leaves, whatever the trees around them are."""
    for x, y in zip(*map(jax.tree.leaves, (a, b)), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-7)


@jde.nnx.jit
def train_step(model: Any, optimizer: Any, batch: dict[str, Any]):
    loss, grads = jde.nnx.value_and_grad(log_loss)(model, batch)
    optimizer.update(model, grads)
    return loss


@jde.nnx.jit
def gradient(model: Any, batch: dict[str, Any]) -> jde.nnx.Grads:
    return jde.nnx.value_and_grad(log_loss)(model, batch)[1]


class Kit:
    """Holds what the tests of this folder start from."""

    tables = staticmethod(make_tables)
    batch = staticmethod(make_batch)
    loss = staticmethod(log_loss)
    step = train_step
    gradient = gradient
    assert_close = staticmethod(assert_close)
    Clicks = Clicks

    @staticmethod
    def model(seed: int = 0, **options: Any) -> Clicks:
        return Clicks(nnx.Rngs(seed), make_tables(**options))


@pytest.fixture
def kit() -> type[Kit]:
    return Kit
