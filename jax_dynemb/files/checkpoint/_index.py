# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""How a table's index is laid out, in this version and in that of a checkpoint.

A checkpoint holds the index as it is in memory, and says how it is to be read. One of
another layout is read slot by slot, and its rows are inserted again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from jax_dynemb import _ffi

# Of checkpoints that do not say it: all keys of a bucket, then all scores.
FIRST = {
    "bucket_capacity": 128,
    "bucket_words": 544,
    "keys_word": 32,
    "scores_word": 288,
    "slot_words": 2,
}


def index_layout() -> dict[str, int]:
    """In 32-bit words: a bucket, its first key and score, and the step to the next.

    Also how many counters a table has, and the largest count or score that fits above
    the clock: the first versions said nothing of them.
    """
    constants = _ffi.constants()
    words = {name: constants[name] for name in FIRST}
    return words | {
        "counters": len(constants["counters"]),
        "most_given_score": constants["most_given_score"],
    }


def has_fewer_counters(layout: Mapping[str, int]) -> bool:
    """Whether a layout is this version's, but for counters that came since."""
    now = index_layout()
    same = all(layout[name] == now[name] for name in FIRST)
    return same and layout.get("counters", 0) < now["counters"]


def layout_of(fields: Mapping[str, Any]) -> dict[str, int]:
    """The layout that a checkpoint was written with."""
    return dict(fields.get("index", FIRST))


def split_index(
    index: np.ndarray, layout: Mapping[str, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Keys int64[n] and scores uint64[n] of all slots of some buckets."""

    def column(name: str) -> np.ndarray:
        slots = layout["slot_words"] * np.arange(layout["bucket_capacity"])
        low = layout[name] + slots
        return np.ascontiguousarray(index[:, np.stack([low, low + 1], axis=1)])

    keys, words = column("keys_word"), column("scores_word")
    scores = words.view(np.uint64).reshape(-1)
    if "most_given_score" not in layout:  # then it was larger
        most = np.uint64(_ffi.constants()["most_given_score"])
        low = scores & np.uint64(0xFFFF_FFFF)
        high = np.minimum(scores >> np.uint64(32), most)
        scores = high << np.uint64(32) | low
    return keys.view(np.int64).reshape(-1), scores
