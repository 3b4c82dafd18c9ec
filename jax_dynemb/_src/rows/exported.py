# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of a table as numpy arrays: one chunk of a stream, cut and joined."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jax_dynemb._src.ids import PADDING


class Exported(NamedTuple):
    """Holds some live rows of a table, in no particular order.

    Attributes:
      keys: int64[n].
      rows: param_dtype[n, dim].
      scores: uint64[n], see core/score.h; of a customized table the given ones.
      optimizer_state: float32[n, dim], float32[n] or int32[n] by name.
      removed: int64[m], keys that a replica has to erase before it inserts the rows;
        None unless the call passed ``known_keys``.
      pinned: bool[n], rows that no eviction and no rule removes; None where the source
        knows of no pins.
      clocks: uint64[n], of a customized table: the clock of the lookup that used each
        row last. None of other tables, whose scores say it, and where the source does
        not have it.
    """

    keys: np.ndarray
    rows: np.ndarray
    scores: np.ndarray
    optimizer_state: dict[str, np.ndarray]
    removed: np.ndarray | None = None
    pinned: np.ndarray | None = None
    clocks: np.ndarray | None = None


def part(chunk: Exported, which: Any) -> Exported:
    """Selects rows of a chunk; ``which`` indexes its arrays."""
    return Exported(
        keys=chunk.keys[which],
        rows=chunk.rows[which],
        scores=chunk.scores[which],
        optimizer_state={k: v[which] for k, v in chunk.optimizer_state.items()},
        pinned=None if chunk.pinned is None else chunk.pinned[which],
        clocks=None if chunk.clocks is None else chunk.clocks[which],
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
        pinned=_if_all([each.pinned for each in chunks]),
        clocks=_if_all([each.clocks for each in chunks]),
    )


def _if_all(arrays: list[np.ndarray | None]) -> np.ndarray | None:
    """Joins arrays; None where one is missing."""
    there = [each for each in arrays if each is not None]
    return np.concatenate(there) if len(there) == len(arrays) else None


def padded(chunk: Exported, size: int) -> Exported:
    """Pads a chunk to a size; the keys of padding are -1."""
    missing = size - len(chunk.keys)

    def longer(array: np.ndarray, value: int = 0) -> np.ndarray:
        widths = [(0, missing)] + [(0, 0)] * (array.ndim - 1)
        return np.pad(array, widths, constant_values=value)

    return Exported(
        keys=longer(chunk.keys, PADDING),
        rows=longer(chunk.rows),
        scores=longer(chunk.scores, 1),
        optimizer_state={k: longer(v) for k, v in chunk.optimizer_state.items()},
        pinned=None if chunk.pinned is None else longer(chunk.pinned),
        clocks=None if chunk.clocks is None else longer(chunk.clocks, 1),
    )
