# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Peers that run where PyTorch is installed: `EmbeddingBag` and FBGEMM, on the CPU.

Ids are row numbers here: nothing is hashed. Importing this file needs torch.
"""
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from suite.workloads import Case

LEARNING_RATE = 1e-3

torch.sparse.check_sparse_tensor_invariants.disable()  # or Adagrad warns

# One step: ids in, everything done when it returns.
Step = Callable[[Any], None]
Prepare = Callable[[Sequence[np.ndarray]], Any]


def embedding_bag(parts: Sequence[Case], work: str, dtype: str) -> tuple[Step, Prepare]:
    """Returns a step on `nn.EmbeddingBag(sparse=True)`, and what prepares its ids.

    Raises:
      NotImplementedError: torch has no such optimizer for sparse gradients.
    """
    make = {
        "eval": None,
        "sgd": torch.optim.SGD,
        "adagrad": torch.optim.Adagrad,
        "adam": torch.optim.SparseAdam,
    }
    if work not in make:
        raise NotImplementedError(work)
    bags = [
        torch.nn.EmbeddingBag(
            part.rows, part.dim, mode="sum", sparse=True, dtype=getattr(torch, dtype)
        )
        for part in parts
    ]
    weights = [bag.weight for bag in bags]
    optimizer = make[work](weights, lr=LEARNING_RATE) if make[work] else None
    grads = [_gradient(part.num_outputs, part.dim, dtype) for part in parts]

    def step(ids: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
        if optimizer is None:
            with torch.no_grad():
                for bag, each in zip(bags, ids, strict=True):
                    bag(*each)
            return
        outputs = [bag(*each) for bag, each in zip(bags, ids, strict=True)]
        torch.autograd.backward(outputs, grads)
        optimizer.step()
        optimizer.zero_grad()

    offsets = [_offsets([part])[:-1] for part in parts]
    return step, lambda ids: list(zip(map(torch.from_numpy, ids), offsets, strict=True))


def fbgemm(parts: Sequence[Case], work: str, dtype: str) -> tuple[Step, Prepare]:
    """Returns a step on FBGEMM's table-batched embeddings, and what prepares its ids.

    Raises:
      NotImplementedError: FBGEMM has no such optimizer, or no bf16 rows, on the CPU.
    """
    if work == "adam" or dtype != "float32":
        raise NotImplementedError(work)
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import (
        EmbeddingLocation,
        PoolingMode,
    )
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice,
        SplitTableBatchedEmbeddingBagsCodegen,
    )

    kind = {
        "rowwise_adagrad": EmbOptimType.EXACT_ROWWISE_ADAGRAD,
        "adagrad": EmbOptimType.EXACT_ADAGRAD,
    }.get(work, EmbOptimType.EXACT_SGD)
    place = (EmbeddingLocation.HOST, ComputeDevice.CPU)
    tables = SplitTableBatchedEmbeddingBagsCodegen(
        [(part.rows, part.dim, *place) for part in parts],
        optimizer=kind,
        learning_rate=LEARNING_RATE,
        pooling_mode=PoolingMode.SUM,
    )
    width = sum(part.dim for part in parts)
    offsets = _offsets(parts)
    grad = _gradient(parts[0].num_outputs, width, dtype)

    def step(ids: torch.Tensor) -> None:
        if work == "eval":
            with torch.no_grad():
                tables(ids, offsets)
        else:
            tables(ids, offsets).backward(grad)

    return step, lambda ids: torch.from_numpy(np.concatenate(ids))


def _offsets(parts: Sequence[Case]) -> torch.Tensor:
    """Where each bag begins among the ids of all tables, and where all end."""
    lengths = np.concatenate([part.bag_lengths for part in parts])
    return torch.from_numpy(np.concatenate([[0], np.cumsum(lengths)]))


def _gradient(rows: int, width: int, dtype: str) -> torch.Tensor:
    return torch.full((rows, width), 1e-3, dtype=getattr(torch, dtype))
