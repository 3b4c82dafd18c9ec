# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Programs in the form of TorchRec's examples; ``# JAX`` marks what JAX forces.

A model of two towers is trained by a pipeline and served with packed rows. A sparse
arch with managed collision keeps ids of any size in tables of fixed size.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax_dynemb.torchrec.distributed.model_parallel import DistributedModelParallel
from jax_dynemb.torchrec.inference.modules import quantize_embeddings
from jax_dynemb.torchrec.modules.embedding_configs import (
    EmbeddingBagConfig,
    EmbeddingConfig,
)
from jax_dynemb.torchrec.modules.embedding_modules import (
    EmbeddingBagCollection,
    EmbeddingCollection,
)
from jax_dynemb.torchrec.sparse.jagged_tensor import KeyedJaggedTensor

import jax_dynemb as jde
from jax_dynemb._src.torchrec.distributed import TrainPipelineSparseDist
from jax_dynemb.torchrec import from_managed_collision, with_optimizer

KINDS = 4  # a query likes the candidates of its own kind


@jax.tree_util.register_dataclass  # JAX
@dataclasses.dataclass
class Batch:
    sparse_features: KeyedJaggedTensor
    labels: Any


class TwoTower(nnx.Module):
    def __init__(self, embedding_bag_collection, layer_sizes, device=None, *, rngs):
        configs = embedding_bag_collection.embedding_bag_configs()
        assert len(configs) == 2 and configs[0].embedding_dim == layer_sizes[0]
        self.ebc = embedding_bag_collection
        self.query_proj = nnx.Linear(*layer_sizes, rngs=rngs)  # JAX
        self.candidate_proj = nnx.Linear(*layer_sizes, rngs=rngs)  # JAX
        self.names = [config.feature_names[0] for config in configs]

    def __call__(self, kjt):
        pooled = self.ebc(kjt)
        query = self.query_proj(pooled[self.names[0]])
        return query, self.candidate_proj(pooled[self.names[1]])


class TwoTowerTrainTask(nnx.Module):
    def __init__(self, two_tower):
        self.two_tower = two_tower

    def __call__(self, batch):
        query, candidate = self.two_tower(batch.sparse_features)
        logits = (query * candidate).sum(axis=1)
        loss = optax.sigmoid_binary_cross_entropy(logits, batch.labels).mean()  # JAX
        return loss, (loss, logits, batch.labels)


def clicks(seed, size=256):
    """Draws pairs of large ids, of which those of one kind are clicks."""
    pairs = np.random.default_rng(seed).integers(0, 40, (2, size))
    labels = (pairs[0] % KINDS == pairs[1] % KINDS).astype(np.float32)
    ids = (pairs + 2**40).reshape(-1)
    kjt = KeyedJaggedTensor(["query", "candidate"], ids, lengths=np.ones(2 * size, int))
    return Batch(kjt, labels)


def test_two_towers_learn_who_likes_what_and_are_served_with_packed_rows():
    rngs = nnx.Rngs(0)  # JAX
    tables = [
        EmbeddingBagConfig(
            name=f"t_{feature}",
            embedding_dim=8,
            num_embeddings=100,
            feature_names=[feature],
        )
        for feature in ("query", "candidate")
    ]
    tables = with_optimizer(tables, {"*": jde.optim.adam(0.05)})  # JAX
    ebc = EmbeddingBagCollection(tables=tables, device="meta", rngs=rngs)
    two_tower = TwoTower(ebc, [8, 8], "cuda", rngs=rngs)
    model = DistributedModelParallel(TwoTowerTrainTask(two_tower), device="cuda")
    optimizer = jde.nnx.Optimizer(model, optax.adam(0.01))  # JAX
    pipeline = TrainPipelineSparseDist(model, optimizer, "cuda")
    batches, losses = iter([clicks(seed) for seed in range(120)]), []
    for _ in range(120):
        loss, _, _ = pipeline.progress(batches)
        losses.append(float(loss))
    assert np.mean(losses[:5]) > 0.5 and np.mean(losses[-5:]) < 0.05
    served = quantize_embeddings(model, "int8", inplace=False)
    everyone = np.arange(40) + 2**40
    ids = np.concatenate([everyone, everyone])
    kjt = KeyedJaggedTensor(["query", "candidate"], ids, lengths=np.ones(80, int))
    query, candidate = served.two_tower(kjt)
    nearest = jax.lax.top_k(query @ candidate.T, 40 // KINDS)[1]
    np.testing.assert_array_equal(
        np.asarray(nearest) % KINDS, np.repeat(np.arange(40)[:, None] % KINDS, 10, 1)
    )


class SparseArch(nnx.Module):
    """Looks up two tables that forget the ids that are used least."""

    def __init__(self, tables, rngs):
        policy = type("DistanceLFU_EvictionPolicy", (), {})()
        kept = []
        for table in tables:
            fields, rule = from_managed_collision(
                {
                    "zch_size": table.num_embeddings,
                    "input_hash_size": 4000,
                    "device": "cuda",
                    "eviction_interval": 2,
                    "eviction_policy": policy,
                }
            )
            assert rule is None
            kept.append(table.to_table(**fields))
        self.ec = EmbeddingCollection(tables=kept, device="cuda", rngs=rngs)

    def __call__(self, kjt):
        return self.ec(kjt), kjt  # remapped ids are the ids themselves


def test_managed_collision_keeps_what_is_used_often():
    tables = [
        EmbeddingConfig(
            name=f"table_{i}",
            embedding_dim=8,
            num_embeddings=256,
            feature_names=[f"feature_{i}"],
        )
        for i in range(2)
    ]
    arch = SparseArch(tables, nnx.Rngs(0))
    draw, often = np.random.default_rng(0), np.arange(40) * 2**33
    for _ in range(12):
        rare = draw.integers(2**41, 2**62, 100)
        ids = np.concatenate([often, rare, often, rare])
        lengths = [len(ids) // 2, len(ids) // 2]
        kjt = KeyedJaggedTensor(["feature_0", "feature_1"], ids, lengths=lengths)
        out, remapped = arch(kjt)
        assert remapped is kjt and out["feature_0"].values().shape == (140, 8)
    stats = arch.ec.stats()
    for i in range(2):
        assert stats[f"table_{i}/rows"] <= 256 and stats[f"table_{i}/evicted"] > 0
        chunks = list(arch.ec.coll.export(arch.ec.get_state(), f"table_{i}"))
        keys = np.concatenate([chunk.keys for chunk in chunks])
        assert set(often.tolist()) <= set(keys.tolist())
    rows = [out[f"feature_{i}"].values()[:40] for i in range(2)]
    assert not bool(jnp.any(jnp.all(rows[0] == rows[1], axis=1)))
