# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A small DLRM: embeddings, their pairwise products, and a network on top."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx


class DLRM(nnx.Module):
    """Scores clicks from id features and plain numbers.

    Args:
      embed: module that turns a dict of ids into a dict of `float32[batch, dim]`.
      num_features: id features that `embed` returns.
      dense_width: plain numbers of a row; 0 if there are none.
      dim: width of an embedding.
      hidden: width of the hidden layer.
      rngs: where initial weights come from.
    """

    def __init__(
        self,
        embed: nnx.Module,
        num_features: int,
        dense_width: int,
        dim: int,
        *,
        hidden: int = 64,
        rngs: nnx.Rngs,
    ):
        """Makes the networks around `embed`."""
        vectors = num_features + (dense_width > 0)
        width = vectors * dim + vectors * (vectors - 1) // 2
        self.embed = embed
        self.bottom = nnx.Linear(dense_width, dim, rngs=rngs) if dense_width else None
        self.hidden = nnx.Linear(width, hidden, rngs=rngs)
        self.top = nnx.Linear(hidden, 1, rngs=rngs)

    def __call__(
        self, dense: jax.Array, ids: Mapping[str, jax.Array], *, train: bool
    ) -> jax.Array:
        """Returns one logit a row, `float32[batch]`."""
        vectors = list(self.embed(ids, train=train).values())
        if self.bottom is not None:
            vectors.append(nnx.relu(self.bottom(dense)))
        x = jnp.stack(vectors, axis=1)
        flat = x.reshape(x.shape[0], -1)
        inputs = jnp.concatenate([flat, pair_products(x)], axis=-1)
        return self.top(nnx.relu(self.hidden(inputs)))[:, 0]


def pair_products(x: jax.Array) -> jax.Array:
    """Dot products of all pairs of `[batch, n, dim]`: `[batch, n * (n - 1) / 2]`."""
    left, right = jnp.triu_indices(x.shape[1], 1)
    return (x @ x.mT)[:, left, right]


def loss_fn(model: DLRM, batch: Mapping[str, Any]) -> jax.Array:
    """Mean cross entropy over the rows of weight 1."""
    logits = model(batch["dense"], batch["ids"], train=True)
    losses = optax.sigmoid_binary_cross_entropy(logits, batch["labels"])
    return (losses * batch["weights"]).sum() / batch["weights"].sum()
