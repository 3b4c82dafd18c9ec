# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Trains a DLRM on random batches, with the wrapper and the pipeline of TorchRec.

    python examples/train_torchrec_pipeline.py                # one device
    python examples/train_torchrec_pipeline.py --mesh 8       # over eight devices

It follows the DLRM that TorchRec trains in its `examples/golden_training`: the same
classes, in the same order. Seven lines differ because JAX forces it; `# JAX` marks
them. Its classes of models and random batches are those of `torchrec_dlrm/`.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Sequence

import jax
import optax
from flax import nnx

import jax_dynemb as jde
from jax_dynemb.torchrec import (
    DistributedModelParallel,
    EmbeddingBagCollection,
    EmbeddingBagConfig,
    TrainPipelineSparseDist,
    with_optimizer,
)
from torchrec_dlrm import (
    DEFAULT_CAT_NAMES,
    DEFAULT_INT_NAMES,
    DLRM,
    DLRMTrain,
    RandomRecDataset,
)


def train(
    num_embeddings: int = 10_000,
    embedding_dim: int = 16,
    learning_rate: float = 0.1,
    num_iterations: int = 100,
    mesh: jax.sharding.Mesh | None = None,
) -> list[float]:
    """Trains, and returns the loss of each step."""
    device = "cuda"  # ignored: the mesh decides
    rngs = nnx.Rngs(0)  # JAX
    eb_configs = [
        EmbeddingBagConfig(
            name=f"t_{feature_name}",
            embedding_dim=embedding_dim,
            num_embeddings=num_embeddings,
            feature_names=[feature_name],
        )
        for feature_name in DEFAULT_CAT_NAMES
    ]
    optimizer = jde.optim.rowwise_adagrad(learning_rate)  # JAX
    eb_configs = with_optimizer(eb_configs, {"*": optimizer})  # JAX
    dlrm_model = DLRM(
        embedding_bag_collection=EmbeddingBagCollection(
            tables=eb_configs,
            device="meta",
            rngs=rngs,  # JAX
            mesh=mesh,  # JAX
        ),
        dense_in_features=len(DEFAULT_INT_NAMES),
        dense_arch_layer_sizes=[64, embedding_dim],
        over_arch_layer_sizes=[64, 1],
        dense_device=device,
        rngs=rngs,  # JAX
    )
    model = DistributedModelParallel(module=DLRMTrain(dlrm_model), device=device)
    dense = jde.nnx.Optimizer(model, optax.adagrad(learning_rate))  # JAX
    train_pipeline = TrainPipelineSparseDist(model, dense, device)
    train_iterator = iter(
        RandomRecDataset(
            keys=DEFAULT_CAT_NAMES,
            batch_size=32,
            hash_size=num_embeddings,
            ids_per_feature=1,
            num_dense=len(DEFAULT_INT_NAMES),
            manual_seed=0,
        )
    )
    losses = []
    for _ in range(num_iterations):
        loss, _, _ = train_pipeline.progress(train_iterator)
        losses.append(loss)
    return [float(loss) for loss in losses]


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Trains and prints the first and the last loss."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--mesh", type=int, help="devices that share the tables")
    options = parser.parse_args(arguments)
    mesh = None
    if options.mesh is not None:
        with contextlib.suppress(RuntimeError):  # the devices are known already
            jax.config.update("jax_num_cpu_devices", options.mesh)
        kind = (jax.sharding.AxisType.Auto,)
        mesh = jax.make_mesh((options.mesh,), ("data",), axis_types=kind)
    losses = train(num_iterations=options.iterations, mesh=mesh)
    print(f"loss {losses[0]:.4f} at first, {losses[-1]:.4f} after {len(losses)} steps")
    return losses


if __name__ == "__main__":
    main()
