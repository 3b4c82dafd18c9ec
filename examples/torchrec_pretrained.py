# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Starts a collection from the weights of another model, spread over devices.

    python examples/torchrec_pretrained.py

With `XLA_FLAGS=--xla_force_host_platform_device_count=8` a CPU stands for 8 devices.
It follows TorchRec's `examples/transfer_learning`: a row-wise plan, the wrapper, and
the weights of one host copied to the shards. `# JAX` marks the lines that JAX forces.
"""

from __future__ import annotations

import jax
import numpy as np
from flax import nnx

from jax_dynemb.torchrec import (
    DistributedModelParallel,
    EmbeddingBagCollection,
    EmbeddingBagConfig,
    EmbeddingShardingPlanner,
    ParameterConstraints,
    PoolingType,
    ShardingType,
    Topology,
    from_fused_params,
    load_torch_state_dict,
    with_optimizer,
)


def main(num_embeddings: int = 20_000) -> tuple[EmbeddingBagCollection, np.ndarray]:
    """Loads the weights, and returns the collection with what was loaded."""
    emb = np.random.default_rng(0).random((num_embeddings, 64), np.float32)
    tables = [
        EmbeddingBagConfig(
            name="emb",
            embedding_dim=64,
            num_embeddings=num_embeddings,
            feature_names=["f"],
            pooling=PoolingType.SUM,
        )
    ]
    fused_params = {
        "optimizer": "EXACT_ROWWISE_ADAGRAD",
        "learning_rate": 0.01,
        "eps": 0.01,
    }
    optimizer, _ = from_fused_params(fused_params)  # JAX
    tables = with_optimizer(tables, {"*": optimizer})  # JAX
    auto = (jax.sharding.AxisType.Auto,)  # JAX
    mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=auto)  # JAX
    plan = EmbeddingShardingPlanner(
        topology=Topology(
            world_size=mesh.size,
            hbm_cap=2**33,
            hbm_mem_bw=1e11,
            intra_host_bw=1e10,
        ),
        constraints={
            "emb": ParameterConstraints(sharding_types=[ShardingType.ROW_WISE.value])
        },
    ).plan(tables)
    ebc = EmbeddingBagCollection(
        device="meta",
        tables=tables,
        rngs=nnx.Rngs(0),  # JAX
        mesh=mesh,  # JAX
        plan=plan,  # JAX
    )
    dmp = DistributedModelParallel(module=ebc, device="cuda", plan=plan)
    load_torch_state_dict(dmp, {"embedding_bags.emb.weight": emb})  # JAX
    print(dmp.plan)
    return dmp, emb


if __name__ == "__main__":
    main()
