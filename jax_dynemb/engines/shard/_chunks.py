# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Chunks of exported rows, cut and joined."""

from __future__ import annotations

from typing import Any

import numpy as np

from jax_dynemb.engines.shard._export import Exported


def part(chunk: Exported, which: Any) -> Exported:
    """Some rows of a chunk; ``which`` indexes its arrays."""
    return Exported(
        keys=chunk.keys[which],
        rows=chunk.rows[which],
        scores=chunk.scores[which],
        optimizer_state={k: v[which] for k, v in chunk.optimizer_state.items()},
    )


def joined(chunks: list[Exported]) -> Exported:
    """Chunks one after the other."""
    if len(chunks) == 1:
        return chunks[0]
    return Exported(
        keys=np.concatenate([each.keys for each in chunks]),
        rows=np.concatenate([each.rows for each in chunks]),
        scores=np.concatenate([each.scores for each in chunks]),
        optimizer_state={
            name: np.concatenate([each.optimizer_state[name] for each in chunks])
            for name in chunks[0].optimizer_state
        },
    )
