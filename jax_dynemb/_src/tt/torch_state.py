# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Makes the arrays that the PyTorch module of a tensor-train table is built from."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np

from jax_dynemb._src.ops import hash_factors
from jax_dynemb._src.tt.config import TTConfig
from jax_dynemb._src.tt.lookup import TTState


def to_torch(
    config: TTConfig, state: TTState | Sequence[jax.Array]
) -> dict[str, np.ndarray]:
    """Makes what ``jax_dynemb_torch.TTEmbeddingBag`` is built from.

    ``np.savez("item.npz", **arrays)`` writes a file of it, and
    ``TTEmbeddingBag.load("item.npz")`` reads that file.

    Args:
      config: of the table. The rows of its residual are not among the arrays: export
        them as those of any dynamic table.
      state: its arrays, or the cores alone.

    Returns:
      ``core_0`` and so on, float32[p_t, R_t, q_t, R_{t+1}]; ``num_embeddings``,
      int64[]; and ``mean``, bool[]. ``hash_factors`` is int64[2], the multipliers of
      the hash of ids, which follow from the secret ``hash_seed``. It is int64[0] where
      an id is the number of its row.
    """
    cores = state.cores if isinstance(state, TTState) else tuple(state)
    factors = np.zeros(0, np.int64)
    if config.ids == "hash":
        pairs = hash_factors([config.hash_seed])[0].astype(np.uint64)
        factors = (pairs[:, 0] | pairs[:, 1] << np.uint64(32)).view(np.int64)
    # Copies, because PyTorch warns of the read-only arrays that jax gives.
    arrays = {f"core_{t}": np.array(core) for t, core in enumerate(cores)}
    return arrays | {
        "num_embeddings": np.array(config.num_embeddings, np.int64),
        "mean": np.array(config.pooling == "mean"),
        "hash_factors": factors,
    }
