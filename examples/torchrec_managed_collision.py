# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps ids of any size in two small tables, which forget the ids used least.

    python examples/torchrec_managed_collision.py

It follows TorchRec's `examples/zch`. A table of this library is keyed by the ids
themselves, so the remapping of managed collision becomes a policy of the table.
`# JAX` marks the lines that JAX forces, `# table` those that the policy changes.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from flax import nnx

from jax_dynemb.torchrec import (
    EmbeddingCollection,
    EmbeddingConfig,
    JaggedTensor,
    KeyedJaggedTensor,
    from_managed_collision,
)


class SparseArch(nnx.Module):
    """Looks up two features in tables of managed size."""

    def __init__(
        self,
        tables: list[EmbeddingConfig],
        device: str,
        *,
        use_mpzch: bool = False,
        rngs: nnx.Rngs,  # JAX
    ):
        """Gives each table the policy of its managed-collision module."""
        policy: dict[str, Any] = {
            "input_hash_size": 4000,
            "device": device,
            "eviction_interval": 2,
            "eviction_policy": "DistanceLFU_EvictionPolicy",
        }
        if use_mpzch:
            policy = {
                "input_hash_size": 4000,
                "device": device,
                "total_num_buckets": 4,
                "eviction_policy_name": "SINGLE_TTL_EVICTION",
                "eviction_config": {"single_ttl": 1},  # hours
            }
        managed = [
            from_managed_collision({"zch_size": table.num_embeddings, **policy})
            for table in tables
        ]
        kept = [
            table.to_table(**fields)  # table
            for table, (fields, _) in zip(tables, managed, strict=True)
        ]
        self.expiry = nnx.data([rule for _, rule in managed])  # table
        self.ec = EmbeddingCollection(tables=kept, device=device, rngs=rngs)  # JAX

    def __call__(
        self, kjt: KeyedJaggedTensor
    ) -> tuple[dict[str, JaggedTensor], KeyedJaggedTensor]:
        """Returns rows by feature, and the ids, which are the remapped ones too."""
        return self.ec(kjt), kjt


def batches(count: int, often: int, rare: int) -> list[KeyedJaggedTensor]:
    """Draws bags with the same ids again and again, and some that come once."""
    draw = np.random.default_rng(0)
    result = []
    for _ in range(count):
        new = draw.integers(2**41, 2**62, rare)
        ids = np.concatenate([np.arange(often) * 2**33, new])
        lengths = np.ones(2 * len(ids), int)
        result.append(
            KeyedJaggedTensor.from_lengths_sync(
                keys=["feature_0", "feature_1"],
                values=np.tile(ids, 2),
                lengths=lengths,
                weights=None,
            )
        )
    return result


def main(
    use_mpzch: bool = False, num_iters: int = 40, num_embeddings: int = 256
) -> tuple[SparseArch, dict[str, float]]:
    """Looks up all batches and prints what the tables did."""
    tables = [
        EmbeddingConfig(
            name=f"table_{i}",
            feature_names=[f"feature_{i}"],
            embedding_dim=8,
            num_embeddings=num_embeddings,
        )
        for i in range(2)
    ]
    rngs = nnx.Rngs(0)  # JAX
    model = SparseArch(tables, "cuda", use_mpzch=use_mpzch, rngs=rngs)  # JAX
    inputs = batches(num_iters, often=40, rare=100)
    begin = time.perf_counter()
    for kjt in inputs:
        model(kjt)
    counts = model.ec.stats()  # table
    print(f"qps: {num_iters * 140 / (time.perf_counter() - begin):.0f}")
    print({name: value for name, value in counts.items() if value})
    return model, counts


if __name__ == "__main__":
    main()
