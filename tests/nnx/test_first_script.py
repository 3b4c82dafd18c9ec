# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the script that most people type first."""

import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import jax_dynemb as jde

CATEGORICAL = [f"C{i}" for i in range(1, 9)]
tables = [
    jde.TableConfig(
        name="cat",
        dim=8,
        capacity=20_000,
        feature_names=tuple(CATEGORICAL),
        initializer=jde.initializers.uniform(-0.05, 0.05),
        optimizer=jde.optim.adagrad(0.05),
    )
]


class DLRM(nnx.Module):
    def __init__(self, rngs):
        self.sparse = jde.nnx.EmbeddingBagCollection(tables, rngs=rngs)
        self.bottom = nnx.Sequential(
            nnx.Linear(13, 16, rngs=rngs), nnx.relu, nnx.Linear(16, 8, rngs=rngs)
        )
        pairs = (len(CATEGORICAL) + 1) * len(CATEGORICAL) // 2
        self.top = nnx.Sequential(
            nnx.Linear(8 + pairs, 16, rngs=rngs), nnx.relu, nnx.Linear(16, 1, rngs=rngs)
        )

    def __call__(self, dense, ids):
        d = self.bottom(dense)
        x = jnp.stack([d, *self.sparse(ids).values()], axis=1)
        i, j = jnp.triu_indices(x.shape[1], 1)
        return self.top(jnp.concatenate([d, (x @ x.mT)[:, i, j]], -1))[:, 0]


def loss_fn(model, batch):
    logits = model(batch["dense"], batch["ids"])
    return optax.sigmoid_binary_cross_entropy(logits, batch["label"]).mean()


@jde.nnx.jit  # nnx.jit that donates the module's tables
def train_step(model, optimizer, batch):
    loss, grads = jde.nnx.value_and_grad(loss_fn)(model, batch)
    optimizer.update(model, grads)
    return loss


def batches(steps, size=64):
    """Ids of any value; the label hangs on two of them."""
    draw = np.random.default_rng(0)
    meaning = draw.normal(size=50)
    for _ in range(steps):
        raw = draw.zipf(1.3, (size, len(CATEGORICAL))) % 50
        score = meaning[raw[:, 0]] + meaning[raw[:, 1]]
        ids = {c: jde.ids(raw[:, k] * 2**33 + k) for k, c in enumerate(CATEGORICAL)}
        ids["C8"] = jde.ids(np.stack([raw[:, 7], -np.ones(size, np.int64)], 1))
        dense = jnp.asarray(draw.normal(size=(size, 13)), jnp.float32)
        yield {
            "dense": dense,
            "label": jnp.asarray(score > 0, jnp.float32),
            "ids": ids,
        }


def test_it_learns():
    model = DLRM(nnx.Rngs(0))
    optimizer = jde.nnx.Optimizer(model, optax.adam(1e-2))
    losses = [float(train_step(model, optimizer, b)) for b in batches(60)]
    assert np.mean(losses[-10:]) < 0.7 * np.mean(losses[:5])
    stats = model.sparse.stats()
    assert 0 < stats["cat/rows"] <= 50 * len(CATEGORICAL)
    assert stats["cat/evicted"] == 0 and stats["cat/refused"] == 0
