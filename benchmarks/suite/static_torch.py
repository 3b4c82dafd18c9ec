# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Peers that run where PyTorch is installed: `EmbeddingBag` and FBGEMM, on the CPU.

Ids are row numbers here: nothing is hashed. Importing this file needs torch.
"""
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from suite.workloads import Case

LEARNING_RATE = 1e-3

torch.sparse.check_sparse_tensor_invariants.disable()  # or Adagrad warns

# One step: ids in, everything done when it returns.
Step = Callable[[Any], None]


def embedding_bag(case: Case, work: str) -> tuple[Step, Callable[[np.ndarray], Any]]:
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
        torch.nn.EmbeddingBag(case.rows, case.dim, mode="sum", sparse=True)
        for _ in range(case.tables)
    ]
    weights = [bag.weight for bag in bags]
    optimizer = make[work](weights, lr=LEARNING_RATE) if make[work] else None
    grad = _gradient(case, case.num_outputs // case.tables, case.dim)

    def step(ids: torch.Tensor) -> None:
        if optimizer is None:
            with torch.no_grad():
                for bag, column in zip(bags, ids, strict=True):
                    bag(column)
            return
        outputs = [bag(column) for bag, column in zip(bags, ids, strict=True)]
        torch.autograd.backward(outputs, [grad] * len(outputs))
        optimizer.step()
        optimizer.zero_grad()

    return step, lambda ids: torch.from_numpy(ids).reshape(case.tables, -1, case.bag)


def fbgemm(case: Case, work: str) -> tuple[Step, Callable[[np.ndarray], Any]]:
    """Returns a step on FBGEMM's table-batched embeddings, and what prepares its ids.

    Raises:
      NotImplementedError: FBGEMM has no such optimizer on the CPU.
    """
    if work == "adam":
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
        "adam": EmbOptimType.ADAM,
    }.get(work, EmbOptimType.EXACT_SGD)
    place = (EmbeddingLocation.HOST, ComputeDevice.CPU)
    tables = SplitTableBatchedEmbeddingBagsCodegen(
        [(case.rows, case.dim, *place)] * case.tables,
        optimizer=kind,
        learning_rate=LEARNING_RATE,
        pooling_mode=PoolingMode.SUM,
    )
    bags = case.num_outputs
    offsets = torch.arange(0, case.num_ids + 1, case.num_ids // bags)
    grad = _gradient(case, bags // case.tables, case.tables * case.dim)

    def step(ids: torch.Tensor) -> None:
        if work == "eval":
            with torch.no_grad():
                tables(ids, offsets)
        else:
            tables(ids, offsets).backward(grad)

    return step, lambda ids: torch.from_numpy(ids).reshape(-1)


def _gradient(case: Case, rows: int, width: int) -> torch.Tensor:
    del case
    return torch.full((rows, width), 1e-3)
