# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The DLRM of Naumov et al. (2019) with TorchRec's classes and arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from jax_dynemb.torchrec import EmbeddingBagCollection, KeyedJaggedTensor
from torchrec_dlrm.batches import Batch


class MLP(nnx.Module):
    """Stacks linear layers, each with a ReLU."""

    def __init__(self, in_size: int, layer_sizes: Sequence[int], *, rngs: nnx.Rngs):
        """Makes the layers."""
        sizes = [in_size, *layer_sizes]
        pairs = zip(sizes, sizes[1:], strict=False)
        layers = [nnx.Linear(inner, outer, rngs=rngs) for inner, outer in pairs]
        self.layers = nnx.Sequential(
            *(x for layer in layers for x in (layer, nnx.relu))
        )

    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns [B, the last size]."""
        return self.layers(x)


class SparseArch(nnx.Module):
    """Looks up and pools every feature: [B, F, D]."""

    def __init__(self, embedding_bag_collection: EmbeddingBagCollection):
        """Keeps the collection, whose tables have one dim."""
        configs = embedding_bag_collection.embedding_bag_configs()
        if len({config.embedding_dim for config in configs}) != 1:
            raise ValueError("All EmbeddingBagConfigs must have the same dimension.")
        self.embedding_bag_collection = embedding_bag_collection
        self.D = configs[0].embedding_dim
        self.F = sum(len(config.feature_names) for config in configs)

    def __call__(self, features: KeyedJaggedTensor) -> jax.Array:
        """Returns one vector a feature of each example."""
        pooled = self.embedding_bag_collection(features).values()
        return pooled.reshape(-1, self.F, self.D)


class DenseArch(MLP):
    """Turns dense numbers into a vector of the width of an embedding."""


class InteractionArch:
    """Puts the dense vector beside the dot products of all pairs of vectors."""

    def __init__(self, num_sparse_features: int):
        """Keeps the number of features."""
        self.F = num_sparse_features

    def __call__(self, dense_features: Any, sparse_features: Any) -> jax.Array:
        """Returns [B, D + F + F * (F - 1) / 2]; [B, D] without features."""
        if self.F <= 0:
            return dense_features
        dense = dense_features[:, None]
        vectors = jnp.concatenate([dense, sparse_features], axis=1)
        left, right = jnp.triu_indices(self.F + 1, 1)
        products = (vectors @ vectors.mT)[:, left, right]
        return jnp.concatenate([dense_features, products], axis=1)


class OverArch(nnx.Module):
    """Scores an example from its interactions: [B, the last size]."""

    def __init__(self, in_features: int, layer_sizes: Sequence[int], *, rngs: nnx.Rngs):
        """Makes the layers, of which the last one is linear."""
        if len(layer_sizes) <= 1:
            raise ValueError("OverArch must have multiple layers.")
        self.hidden = MLP(in_features, layer_sizes[:-1], rngs=rngs)
        self.out = nnx.Linear(layer_sizes[-2], layer_sizes[-1], rngs=rngs)

    def __call__(self, features: jax.Array) -> jax.Array:
        """Returns logits."""
        return self.out(self.hidden(features))


class DLRM(nnx.Module):
    """Scores clicks from dense numbers and bags of ids."""

    def __init__(
        self,
        embedding_bag_collection: EmbeddingBagCollection,
        dense_in_features: int,
        dense_arch_layer_sizes: Sequence[int],
        over_arch_layer_sizes: Sequence[int],
        dense_device: Any = None,
        *,
        rngs: nnx.Rngs,
    ):
        """Makes the networks around the collection."""
        self.sparse_arch = SparseArch(embedding_bag_collection)
        dim, features = self.sparse_arch.D, self.sparse_arch.F
        if dense_arch_layer_sizes[-1] != dim:
            raise ValueError(
                f"dense_arch_layer_sizes end with {dense_arch_layer_sizes[-1]}, but "
                f"embeddings have {dim} columns: end with {dim}."
            )
        self.dense_arch = DenseArch(
            dense_in_features, dense_arch_layer_sizes, rngs=rngs
        )
        self.inter_arch = InteractionArch(features)
        width = dim + features + features * (features - 1) // 2
        self.over_arch = OverArch(width, over_arch_layer_sizes, rngs=rngs)

    def __call__(
        self, dense_features: jax.Array, sparse_features: KeyedJaggedTensor
    ) -> jax.Array:
        """Returns logits, [B, 1]."""
        dense = self.dense_arch(dense_features)
        sparse = self.sparse_arch(sparse_features)
        return self.over_arch(self.inter_arch(dense, sparse))


class DLRMTrain(nnx.Module):
    """Adds the loss: a batch in, and out what a pipeline takes."""

    def __init__(self, dlrm_module: DLRM):
        """Keeps the model."""
        self.model = dlrm_module

    def __call__(self, batch: Batch) -> tuple[jax.Array, tuple[Any, ...]]:
        """Returns the loss; and the loss, logits [B] and labels."""
        logits = self.model(batch.dense_features, batch.sparse_features)[:, 0]
        labels = batch.labels.astype(jnp.float32)
        loss = optax.sigmoid_binary_cross_entropy(logits, labels).mean()
        return loss, (loss, logits, batch.labels)
