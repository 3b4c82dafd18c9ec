# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The DLRM on a dynamic table: rows appear when an id is first seen."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import optax
from flax import nnx

import jax_dynemb as jde

from .clicks import Clicks, Source
from .model import DLRM, loss_fn
from .settings import Settings

TABLE = "rows"


class DynamicLearner:
    """Trains on raw 64-bit ids; nobody counts or renumbers them."""

    title = "dynamic table"

    def __init__(
        self, source: Source, settings: Settings, mesh: jax.sharding.Mesh | None = None
    ):
        """Makes one table that all features share (their hashes differ)."""
        table = jde.TableConfig(
            TABLE,
            settings.dim,
            settings.capacity,
            feature_names=source.features,
            initializer=jde.initializers.uniform(-settings.scale, settings.scale),
            optimizer=getattr(jde.optim, settings.optimizer)(settings.learning_rate),
            pooling="mean",
            param_dtype=settings.param_dtype,
            rounding=settings.rounding,
        )
        rngs = nnx.Rngs(settings.seed)
        self.embed = jde.nnx.EmbeddingBagCollection([table], rngs=rngs, mesh=mesh)
        shape = (len(source.features), source.dense_width, settings.dim)
        self.model = DLRM(self.embed, *shape, rngs=rngs)
        dense = optax.adam(settings.dense_learning_rate)
        self.optimizer = jde.nnx.Optimizer(self.model, dense)

    def begin(self, clicks: Clicks) -> None:
        """Nothing to prepare: unseen ids find their rows in the first lookup."""

    def train(self, clicks: Clicks) -> jax.Array:
        """Takes one step and returns its loss."""
        return train_step(self.model, self.optimizer, to_device(clicks))

    def predict(self, clicks: Clicks) -> np.ndarray:
        """Returns the logits of a batch and leaves the table as it is."""
        return np.asarray(predict_step(self.model, to_device(clicks)))

    def stats(self) -> dict[str, float]:
        """Counters of the table, without its name in front."""
        found = self.embed.stats()
        return {name.split("/")[1]: value for name, value in found.items()}


def to_device(clicks: Clicks) -> dict[str, Any]:
    """Moves a batch to the device; ids travel as pairs of 32-bit words."""
    return {
        "ids": {name: jde.ids(column) for name, column in clicks.ids.items()},
        "dense": clicks.dense,
        "labels": clicks.labels,
        "weights": clicks.weights,
    }


@jde.nnx.jit
def train_step(model: DLRM, optimizer: Any, batch: dict[str, Any]) -> jax.Array:
    """One step: networks by optax, touched rows by the table's own optimizer."""
    loss, grads = jde.nnx.value_and_grad(loss_fn)(model, batch)
    optimizer.update(model, grads)
    return loss


@jde.nnx.jit
def predict_step(model: DLRM, batch: dict[str, Any]) -> jax.Array:
    """Logits with the rows as they are; an unseen id reads zeros."""
    return model(batch["dense"], batch["ids"], train=False)
