# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Trains two towers on clicks and finds the nearest candidates of each query.

    python examples/torchrec_two_tower.py

It follows TorchRec's `examples/retrieval` step by step: train, quantize, search. A
query likes the candidates of its own kind, so the truth is known. `# JAX` marks the
lines that JAX forces.
"""

from __future__ import annotations

from collections.abc import Iterator

import jax
import numpy as np
import optax
from flax import nnx

import jax_dynemb as jde
from jax_dynemb.torchrec import (
    DistributedModelParallel,
    EmbeddingBagCollection,
    EmbeddingBagConfig,
    KeyedJaggedTensor,
    TrainPipelineSparseDist,
    from_fused_params,
    quantize_embeddings,
    with_optimizer,
)
from torchrec_dlrm import MLP, Batch

FEATURES = ["userId", "movieId"]
KINDS = 4  # ids are of a kind by their remainder
FIRST_ID = 2**40  # ids need not begin at 0


def projection(in_size: int, layer_sizes: list[int], *, rngs: nnx.Rngs) -> nnx.Module:
    """Makes the layers of a tower; the last one is linear, so that vectors differ."""
    *hidden, last = layer_sizes
    mlp = MLP(in_size, hidden, rngs=rngs)  # JAX
    return nnx.Sequential(mlp, nnx.Linear(hidden[-1], last, rngs=rngs))  # JAX


class TwoTower(nnx.Module):
    """Embeds queries and candidates in one space."""

    def __init__(
        self,
        embedding_bag_collection: EmbeddingBagCollection,
        layer_sizes: list[int],
        device: str | None = None,
        *,
        rngs: nnx.Rngs,  # JAX
    ):
        """Makes a projection for each of the two tables."""
        query, candidate = embedding_bag_collection.embedding_bag_configs()
        if query.embedding_dim != candidate.embedding_dim:
            raise ValueError("Both EmbeddingBagConfigs must have the same dimension")
        self.query_features = nnx.static(query.feature_names)  # JAX
        self.candidate_features = nnx.static(candidate.feature_names)  # JAX
        self.ebc = embedding_bag_collection
        dim = query.embedding_dim
        self.query_proj = projection(dim, layer_sizes, rngs=rngs)  # JAX
        self.candidate_proj = projection(dim, layer_sizes, rngs=rngs)  # JAX

    def __call__(self, kjt: KeyedJaggedTensor) -> tuple[jax.Array, jax.Array]:
        """Returns the vectors of both towers, [B, last layer size] each."""
        pooled = self.ebc(kjt)
        query = [pooled[feature] for feature in self.query_features]
        candidate = [pooled[feature] for feature in self.candidate_features]
        return (
            self.query_proj(jax.numpy.concatenate(query, axis=1)),
            self.candidate_proj(jax.numpy.concatenate(candidate, axis=1)),
        )


class TwoTowerTrainTask(nnx.Module):
    """Adds the loss."""

    def __init__(self, two_tower: TwoTower):
        """Keeps the towers."""
        self.two_tower = two_tower

    def __call__(
        self, batch: Batch
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array, jax.Array]]:
        """Returns the loss; and the loss, logits [B] and labels."""
        query, candidate = self.two_tower(batch.sparse_features)
        logits = (query * candidate).sum(axis=1)
        losses = optax.sigmoid_binary_cross_entropy(logits, batch.labels)  # JAX
        return losses.mean(), (losses.mean(), logits, batch.labels)


def clicks(num_ids: int, batch_size: int, seed: int = 0) -> Iterator[Batch]:
    """Yields pairs of ids, of which those of one kind are clicks."""
    draw = np.random.default_rng(seed)
    while True:
        pairs = draw.integers(0, num_ids, (2, batch_size))
        labels = (pairs[0] % KINDS == pairs[1] % KINDS).astype(np.float32)
        kjt = KeyedJaggedTensor(
            FEATURES,
            (pairs + FIRST_ID).reshape(-1),
            lengths=np.ones(2 * batch_size, int),
        )
        yield Batch(np.zeros((batch_size, 0), np.float32), kjt, labels)


def train(
    num_embeddings: int = 400,
    embedding_dim: int = 16,
    layer_sizes: tuple[int, ...] = (16, 8),
    learning_rate: float = 0.05,
    num_iterations: int = 300,
) -> TwoTower:
    """Trains the towers and returns them."""
    device = "cuda"  # ignored: JAX's default device
    rngs = nnx.Rngs(0)  # JAX
    eb_configs = [
        EmbeddingBagConfig(
            name=f"t_{feature_name}",
            embedding_dim=embedding_dim,
            num_embeddings=num_embeddings,
            feature_names=[feature_name],
        )
        for feature_name in FEATURES
    ]
    fused_params = {
        "learning_rate": learning_rate,
        "optimizer": "ROWWISE_ADAGRAD",
    }
    optimizer, _ = from_fused_params(fused_params)  # JAX
    eb_configs = with_optimizer(eb_configs, {"*": optimizer})  # JAX
    ebc = EmbeddingBagCollection(tables=eb_configs, device="meta", rngs=rngs)  # JAX
    two_tower = TwoTower(ebc, list(layer_sizes), device, rngs=rngs)  # JAX
    model = DistributedModelParallel(module=TwoTowerTrainTask(two_tower), device=device)
    dense = jde.nnx.Optimizer(model, optax.adam(0.01))  # JAX
    train_pipeline = TrainPipelineSparseDist(model, dense, device)
    dl_iterator = clicks(num_embeddings, batch_size=512)
    for _ in range(num_iterations):
        train_pipeline.progress(dl_iterator)
    return two_tower


def recall(two_tower: TwoTower, num_ids: int, k: int = 20) -> float:
    """Returns which share of the k nearest candidates a query really likes."""
    everyone = np.arange(num_ids) + FIRST_ID
    kjt = KeyedJaggedTensor(
        FEATURES, np.tile(everyone, 2), lengths=np.ones(2 * num_ids, int)
    )
    query, candidate = two_tower(kjt)
    nearest = jax.lax.top_k(query @ candidate.T, k)[1]
    return float((nearest % KINDS == np.arange(num_ids)[:, None] % KINDS).mean())


def main() -> tuple[float, float]:
    """Trains, and prints the recall of float32 and of int8 rows."""
    num_ids = 400
    two_tower = train(num_ids)
    two_tower.eval()
    packed = quantize_embeddings(two_tower, "int8", inplace=False)
    found = recall(two_tower, num_ids), recall(packed, num_ids)
    print(f"of the 20 nearest, liked: float32 {found[0]:.3f}, int8 {found[1]:.3f}")
    return found


if __name__ == "__main__":
    main()
