# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The same DLRM on a dense `nnx.Embed`, to compare with.

Every id that will ever be trained is counted beforehand and renumbered. An id that has
not been trained yet reads a row of zeros at test time, as it does in the dynamic table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from .clicks import PADDING, Clicks, Source
from .model import DLRM, loss_fn
from .row_optimizers import row_optimizer
from .settings import Settings


class DenseEmbed(nnx.Module):
    """Mean of the embedding rows of each bag, from one dense table for all features."""

    def __init__(self, rows: int, dim: int, scale: float, rngs: nnx.Rngs):
        """Makes `rows` trained rows; number `rows` stands for zeros."""
        self.table = nnx.Embed(rows, dim, embedding_init=_uniform(scale), rngs=rngs)

    def __call__(
        self, ids: Mapping[str, jax.Array], *, train: bool
    ) -> dict[str, jax.Array]:
        """Looks up row numbers; `train` makes no difference here."""
        del train
        return {name: self._bag(numbers) for name, numbers in ids.items()}

    def _bag(self, numbers: jax.Array) -> jax.Array:
        numbers = numbers.reshape(numbers.shape[0], -1)
        rows = self.table.num_embeddings
        known = (numbers >= 0) & (numbers < rows)
        vectors = self.table(jnp.clip(numbers, 0, rows - 1))
        total = jnp.where(known[..., None], vectors, 0.0).sum(axis=1)
        count = (numbers != PADDING).sum(axis=1, keepdims=True)
        return total / jnp.maximum(count, 1).astype(total.dtype)


class DenseLearner:
    """Trains on row numbers."""

    title = "dense nnx.Embed"

    def __init__(self, source: Source, settings: Settings):
        """Counts the ids of all epochs and makes one row for each."""
        self.vocabulary = _distinct(source)
        self.trained = np.zeros(len(self.vocabulary), bool)
        rngs = nnx.Rngs(settings.seed)
        embed = DenseEmbed(len(self.vocabulary), settings.dim, settings.scale, rngs)
        shape = (len(source.features), source.dense_width, settings.dim)
        self.model = DLRM(embed, *shape, rngs=rngs)
        self.optimizer = nnx.Optimizer(self.model, _transform(settings), wrt=nnx.Param)

    def begin(self, clicks: Clicks) -> None:
        """Marks the ids that this epoch trains."""
        for column in clicks.ids.values():
            self.trained[self._place(column[column != PADDING])] = True

    def train(self, clicks: Clicks) -> jax.Array:
        """Takes one step and returns its loss."""
        return train_step(self.model, self.optimizer, self._encode(clicks))

    def predict(self, clicks: Clicks) -> np.ndarray:
        """Returns the logits of a batch."""
        return np.asarray(predict_step(self.model, self._encode(clicks)))

    def stats(self) -> dict[str, float]:
        """A dense table only has its size to tell."""
        return {"rows": len(self.vocabulary)}

    def _place(self, ids: np.ndarray) -> np.ndarray:
        place = np.searchsorted(self.vocabulary, ids)
        return np.minimum(place, len(self.vocabulary) - 1)

    def number(self, ids: np.ndarray) -> np.ndarray:
        """Turns ids into row numbers; the number of rows stands for zeros."""
        place = self._place(ids)
        known = (self.vocabulary[place] == ids) & self.trained[place]
        numbers = np.where(known, place, len(self.vocabulary))
        return np.where(ids == PADDING, PADDING, numbers).astype(np.int32)

    def _encode(self, clicks: Clicks) -> dict[str, Any]:
        return {
            "ids": {name: self.number(column) for name, column in clicks.ids.items()},
            "dense": clicks.dense,
            "labels": clicks.labels,
            "weights": clicks.weights,
        }


@nnx.jit
def train_step(
    model: DLRM, optimizer: nnx.Optimizer[Any], batch: dict[str, Any]
) -> jax.Array:
    """One step: the gradient and the optimizer walk over the whole table."""
    loss, grads = nnx.value_and_grad(loss_fn)(model, batch)
    optimizer.update(model, grads)
    return loss


@nnx.jit
def predict_step(model: DLRM, batch: dict[str, Any]) -> jax.Array:
    """Logits of a batch."""
    return model(batch["dense"], batch["ids"], train=False)


def _distinct(source: Source) -> np.ndarray:
    columns = [c.ravel() for train, _ in source.parts for c in train.ids.values()]
    ids = np.unique(np.concatenate(columns))
    return ids[ids != PADDING]


def _transform(settings: Settings) -> optax.GradientTransformation:
    rows = row_optimizer(settings.optimizer, settings.learning_rate)
    networks = optax.adam(settings.dense_learning_rate)
    return optax.partition({"rows": rows, "networks": networks}, _labels)


def _labels(params: Any) -> Any:
    def label(path: tuple[Any, ...], _: Any) -> str:
        return "rows" if "embed" in jax.tree_util.keystr(path[:1]) else "networks"

    return jax.tree.map_with_path(label, params)


def _uniform(scale: float) -> nnx.Initializer:
    def initialize(key: jax.Array, shape: Any, dtype: Any = jnp.float32) -> jax.Array:
        return jax.random.uniform(key, shape, dtype, -scale, scale)

    return initialize
