# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Holds what the recipes share: a click log with string ids, a model, and its loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import jax_dynemb as jde

BATCH = 256
FEATURES = ("user", "item")


class Training(NamedTuple):
    """What a recipe leaves behind: the losses in order, and the trained model."""

    losses: list[float]
    model: ClickModel


class ClickModel(nnx.Module):
    """Predicts a click from the rows of a user and an item."""

    def __init__(self, seed: int = 0):
        """Makes one table for each feature, and a layer above."""
        rngs = nnx.Rngs(seed)
        adam = jde.optim.adam(0.02)
        tables = [
            jde.TableConfig(name, dim=8, capacity=4_096, optimizer=adam)
            for name in FEATURES
        ]
        self.sparse = jde.nnx.EmbeddingCollection(tables, rngs=rngs)
        self.top = nnx.Linear(8 * len(FEATURES), 1, rngs=rngs)

    def __call__(self, ids: Mapping[str, Any]):
        """Returns the logits, float32 [batch]."""
        rows = self.sparse(ids)
        return self.top(jnp.concatenate([rows[name] for name in FEATURES], -1))[:, 0]


def click_log(examples: int = 3_000, seed: int = 0) -> dict[str, np.ndarray]:
    """Makes columns of a log: names of users and items, and whether one clicked."""
    random = np.random.default_rng(seed)
    numbers = {name: random.zipf(1.3, examples) % 500 for name in FEATURES}
    clicked = (numbers["user"] + numbers["item"]) % 2 == 0  # parts alone tell nothing
    clicked |= numbers["item"] % 3 == 0
    columns = {
        name: np.array([f"{name}-{number}" for number in numbers[name]])
        for name in FEATURES
    }
    return {**columns, "label": clicked.astype(np.float32)}


def to_batch(columns: Mapping[str, Any], size: int = BATCH) -> dict[str, Any]:
    """Hashes the ids of some examples, and pads them to ``size``.

    A compiled step has one shape, so a short batch is filled up. The id -1 has no row,
    and an example of weight 0 has no gradient.

    Args:
      columns: by feature, strings in anything that ``jde.hash_ids`` takes; and "label".
      size: examples in the batch that is returned.

    Returns:
      NumPy arrays, so that a worker process may make them: "ids" by feature, int64;
      "label" and "weight", float32.
    """
    label = np.asarray(columns["label"], np.float32)
    missing = (0, size - len(label))
    ids = {
        name: np.pad(jde.hash_ids(columns[name]), missing, constant_values=-1)
        for name in FEATURES
    }
    return {
        "ids": ids,
        "label": np.pad(label, missing),
        "weight": np.pad(np.ones_like(label), missing),
    }


def new() -> tuple[ClickModel, jde.nnx.Optimizer]:
    """Makes a model and its optimizer."""
    model = ClickModel()
    return model, jde.nnx.Optimizer(model, optax.adam(0.01))


def train(batches: Iterable[Mapping[str, Any]]) -> Training:
    """Trains a new model on what ``to_batch`` returns, one step a batch."""
    model, optimizer = new()
    losses = [step(model, optimizer, batch) for batch in batches]
    return Training([float(loss) for loss in losses], model)


def train_logged(
    log: Callable[[int, dict[str, float]], None], every: int = 4
) -> Training:
    """Trains one epoch, and logs the loss and the counters of the tables.

    ``stats`` waits for the devices, so it is read every few steps only.

    Args:
      log: takes the number of steps, and numbers by name.
      every: steps between two calls.
    """
    columns, (model, optimizer) = click_log(), new()
    losses = []
    for start in range(0, len(columns["label"]), BATCH):
        rows = slice(start, start + BATCH)
        batch = to_batch({name: column[rows] for name, column in columns.items()})
        losses.append(step(model, optimizer, batch))
        if len(losses) % every == 0:
            stats = {name: float(x) for name, x in model.sparse.stats().items()}
            log(len(losses), {"loss": float(losses[-1])} | stats)
    return Training([float(loss) for loss in losses], model)


def step(model: ClickModel, optimizer: jde.nnx.Optimizer, batch: Mapping[str, Any]):
    """Takes one step in place; returns the mean loss of the examples."""
    ids = {name: jde.ids(values) for name, values in batch["ids"].items()}
    return _step(model, optimizer, ids, batch["label"], batch["weight"])


@jde.nnx.jit
def _step(
    model: ClickModel,
    optimizer: jde.nnx.Optimizer,
    ids: dict[str, jax.Array],
    label: jax.Array,
    weight: jax.Array,
) -> jax.Array:
    def loss_fn(model: ClickModel) -> jax.Array:
        each = optax.sigmoid_binary_cross_entropy(model(ids), label)
        return jnp.sum(each * weight) / jnp.sum(weight)

    loss, grads = jde.nnx.value_and_grad(loss_fn)(model)
    optimizer.update(model, grads)
    return loss
