# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Trains a DLRM as a TorchRec user writes it: KeyedJaggedTensor in, KeyedTensor on.

    python examples/train_torchrec.py                        # a synthetic stream
    python examples/train_torchrec.py --data path/ml-100k    # MovieLens
    python examples/train_torchrec.py --mesh 8               # over eight devices

Compare with `train_ctr.py`, which trains the same model on `jde.nnx` and plain dicts.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import jax_dynemb as jde
from ctr import movielens, report, synthetic
from ctr.clicks import PADDING, Clicks, Source
from ctr.fit import Epoch, fit
from ctr.settings import LEARNING_RATES, Settings
from jax_dynemb.torchrec import (
    Capacity,
    EmbeddingBagCollection,
    EmbeddingBagConfig,
    KeyedJaggedTensor,
    PoolingType,
    from_fused_params,
)


class SparseArch(nnx.Module):
    """Looks up and pools every feature: [B, features, dim]."""

    def __init__(self, embedding_bag_collection: EmbeddingBagCollection):
        """Keeps the collection."""
        self.embedding_bag_collection = embedding_bag_collection

    def __call__(self, features: KeyedJaggedTensor) -> jax.Array:
        """Returns one vector a feature of each example."""
        pooled = self.embedding_bag_collection(features)
        batch = features.stride()
        return pooled.values().reshape(batch, len(pooled.keys()), -1)


class DenseArch(nnx.Module):
    """Turns plain numbers into a vector of the width of an embedding."""

    def __init__(self, in_features: int, out_features: int, *, rngs: nnx.Rngs):
        """Makes one layer."""
        self.linear = nnx.Linear(in_features, out_features, rngs=rngs)

    def __call__(self, features: jax.Array) -> jax.Array:
        """Returns [B, out_features]."""
        return nnx.relu(self.linear(features))


class InteractionArch:
    """Puts vectors and the dot products of all their pairs side by side."""

    def __call__(self, vectors: jax.Array) -> jax.Array:
        """Returns [B, n * dim + n * (n - 1) / 2]."""
        left, right = jnp.triu_indices(vectors.shape[1], 1)
        products = (vectors @ vectors.mT)[:, left, right]
        flat = vectors.reshape(vectors.shape[0], -1)
        return jnp.concatenate([flat, products], axis=-1)


class OverArch(nnx.Module):
    """Scores an example from its interactions."""

    def __init__(self, in_features: int, hidden: int, *, rngs: nnx.Rngs):
        """Makes two layers."""
        self.hidden = nnx.Linear(in_features, hidden, rngs=rngs)
        self.out = nnx.Linear(hidden, 1, rngs=rngs)

    def __call__(self, features: jax.Array) -> jax.Array:
        """Returns one logit an example, [B]."""
        return self.out(nnx.relu(self.hidden(features)))[:, 0]


class DLRM(nnx.Module):
    """Scores clicks as Naumov et al. (2019) do, small."""

    def __init__(
        self,
        embedding_bag_collection: EmbeddingBagCollection,
        dense_in_features: int,
        *,
        hidden: int = 64,
        rngs: nnx.Rngs,
    ):
        """Makes the networks around the collection."""
        configs = embedding_bag_collection.embedding_bag_configs()
        dim = configs[0].embedding_dim
        features = sum(len(config.feature_names) for config in configs)
        vectors = features + (dense_in_features > 0)
        width = vectors * dim + vectors * (vectors - 1) // 2
        self.sparse_arch = SparseArch(embedding_bag_collection)
        self.dense_arch = (
            DenseArch(dense_in_features, dim, rngs=rngs) if dense_in_features else None
        )
        self.inter_arch = InteractionArch()
        self.over_arch = OverArch(width, hidden, rngs=rngs)

    def __call__(
        self, dense_features: jax.Array, sparse_features: KeyedJaggedTensor
    ) -> jax.Array:
        """Returns one logit an example, [B]."""
        vectors = self.sparse_arch(sparse_features)
        if self.dense_arch is not None:
            dense = self.dense_arch(dense_features)
            vectors = jnp.concatenate([vectors, dense[:, None]], axis=1)
        return self.over_arch(self.inter_arch(vectors))


def loss_fn(model: DLRM, batch: dict[str, Any]) -> jax.Array:
    """Mean cross entropy over the rows of weight 1."""
    logits = model(batch["dense"], batch["sparse"])
    losses = optax.sigmoid_binary_cross_entropy(logits, batch["labels"])
    return (losses * batch["weights"]).sum() / batch["weights"].sum()


@jde.nnx.jit
def train_step(model: DLRM, optimizer: Any, batch: dict[str, Any]) -> jax.Array:
    """One step: networks by optax, touched rows by the table's own optimizer."""
    loss, grads = jde.nnx.value_and_grad(loss_fn)(model, batch)
    optimizer.update(model, grads)
    return loss


@jde.nnx.jit
def predict_step(model: DLRM, batch: dict[str, Any]) -> jax.Array:
    """Logits; after `model.eval()` unseen ids read zeros and get no row."""
    return model(batch["dense"], batch["sparse"])


class TorchRecLearner:
    """The DLRM, its tables and optimizers, trained batch by batch."""

    title = "TorchRec names"

    def __init__(
        self, source: Source, settings: Settings, mesh: jax.sharding.Mesh | None = None
    ):
        """Makes one table that all features share (their hashes differ)."""
        optimizer, fields = from_fused_params(
            {
                "optimizer": settings.optimizer,
                "learning_rate": settings.learning_rate,
            }
        )
        config = EmbeddingBagConfig(
            name="rows",
            embedding_dim=settings.dim,
            num_embeddings=settings.capacity,
            feature_names=source.features,
            pooling=PoolingType.MEAN,
            weight_init_min=-settings.scale,
            weight_init_max=settings.scale,
            optimizer=optimizer,
        )
        rngs = nnx.Rngs(settings.seed)
        # As many slots as the other examples have; without it about twice as many.
        tables = [config.to_table(capacity=settings.capacity, **fields)]
        self.ebc = EmbeddingBagCollection(tables=tables, rngs=rngs, mesh=mesh)
        self.model = DLRM(self.ebc, source.dense_width, rngs=rngs)
        dense = optax.adam(settings.dense_learning_rate)
        self.optimizer = jde.nnx.Optimizer(self.model, dense)
        self.capacity = Capacity()  # few programs, whatever batches bring

    def begin(self, clicks: Clicks) -> None:
        """Nothing to prepare: unseen ids find their rows in the first lookup."""

    def train(self, clicks: Clicks) -> jax.Array:
        """Takes one step and returns its loss."""
        self.model.train()
        batch = to_batch(clicks, self.capacity)
        return train_step(self.model, self.optimizer, batch)

    def predict(self, clicks: Clicks) -> np.ndarray:
        """Returns the logits of a batch and leaves the table as it is."""
        self.model.eval()
        return np.asarray(predict_step(self.model, to_batch(clicks, self.capacity)))

    def stats(self) -> dict[str, float]:
        """Counters of the table, without its name in front."""
        return {name.split("/")[1]: value for name, value in self.ebc.stats().items()}


def to_batch(clicks: Clicks, capacity: Capacity) -> dict[str, Any]:
    """Puts the ids of a batch into one KeyedJaggedTensor, without padding."""
    columns = [ids.reshape(len(clicks), -1) for ids in clicks.ids.values()]
    kept = [column != PADDING for column in columns]
    pairs = zip(columns, kept, strict=True)
    values = np.concatenate([column[live] for column, live in pairs])
    lengths = np.concatenate([live.sum(axis=1) for live in kept])
    sparse = KeyedJaggedTensor.from_lengths_sync(
        list(clicks.ids), values, lengths, capacity=capacity
    )
    return {
        "sparse": sparse,
        "dense": clicks.dense,
        "labels": clicks.labels,
        "weights": clicks.weights,
    }


def main(arguments: Sequence[str] | None = None) -> list[Epoch]:
    """Trains and returns what each epoch led to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--data", type=Path, help="MovieLens folder; default: a synthetic stream")
    add("--rows", type=int, help="rows to draw of the stream")
    add("--epochs", type=int)
    add("--batch-size", type=int)
    add("--capacity", type=int, help="rows of the table")
    add("--optimizer", choices=sorted(LEARNING_RATES), default=Settings.optimizer)
    add("--mesh", type=int, help="devices that share the table and the batch")
    options = parser.parse_args(arguments)
    if options.mesh is not None:
        with contextlib.suppress(RuntimeError):  # the devices are known already
            jax.config.update("jax_num_cpu_devices", options.mesh)
    source = _load(options)
    given = {
        name: getattr(options, name)
        for name in ("epochs", "batch_size", "capacity", "optimizer")
        if getattr(options, name) is not None
    }
    rate = LEARNING_RATES[options.optimizer] * source.haste
    chosen: dict[str, Any] = {"learning_rate": rate, **source.defaults, **given}
    settings = Settings(**chosen)
    mesh = None
    if options.mesh is not None:
        kind = (jax.sharding.AxisType.Auto,)
        mesh = jax.make_mesh((options.mesh,), ("data",), axis_types=kind)
    print(source.title)
    return fit(
        TorchRecLearner(source, settings, mesh),
        source,
        settings,
        on_epoch=lambda epoch: print(report.epoch_line(epoch, settings.epochs)),
    )


def _load(options: argparse.Namespace) -> Source:
    if options.data is not None:
        if not options.data.is_dir():
            raise SystemExit(f"--data {options.data}: no such folder.")
        return movielens.load(options.data)
    stream = synthetic.Stream()
    if options.rows is not None:
        stream = dataclasses.replace(stream, rows=options.rows)
    return synthetic.load(stream, 0)


if __name__ == "__main__":
    main()
