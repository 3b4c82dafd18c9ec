# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""How a table's index is laid out, in this version and in that of a checkpoint.

A checkpoint holds the index as it is in memory, and says how it is to be read. One of
another layout is read slot by slot, and its rows are inserted again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.rows import PIN

_LOW = np.uint64(0xFFFF_FFFF)
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

    Also how many counters a table has, and the largest count that fits above the clock.
    Then the words of custom scores behind a bucket of a customized table. The first
    versions said nothing of them. Without the last, these scores stand above the clock.
    """
    constants = _ffi.constants()
    words = {name: constants[name] for name in FIRST}
    return words | {
        "counters": len(constants["counters"]),
        "most_given_score": constants["most_packed"],
        "given_words": constants["given_words"],
    }


def is_like_now(layout: Mapping[str, int]) -> bool:
    """Whether a layout is this version's, but for custom scores."""
    now = index_layout()
    return {**layout, "given_words": now["given_words"]} == now


def lacks_given(layout: Mapping[str, int], score_strategy: str) -> bool:
    """Whether an index holds custom scores above the clock, as 30 bits."""
    return score_strategy == "customized" and "given_words" not in layout


def bucket_words(layout: Mapping[str, int], score_strategy: str) -> int:
    """The words of a bucket of a table."""
    given = layout.get("given_words", 0) if score_strategy == "customized" else 0
    return layout["bucket_words"] + given


def has_fewer_counters(layout: Mapping[str, int]) -> bool:
    """Whether a layout is this version's, but for counters that came since."""
    now = index_layout()
    same = all(layout[name] == now[name] for name in FIRST)
    return same and layout.get("counters", 0) < now["counters"]


def layout_of(fields: Mapping[str, Any]) -> dict[str, int]:
    """The layout that a checkpoint was written with."""
    return dict(fields.get("index", FIRST))


class Slots(NamedTuple):
    """Holds what the index says of the slots of some buckets."""

    keys: np.ndarray  # int64[n]
    scores: np.ndarray  # uint64[n], without the bit of a pin
    pinned: np.ndarray  # bool[n]
    live: np.ndarray  # bool[n], whether there is a row
    # uint64[n], of a customized table: when each row was used last; else None.
    clocks: np.ndarray | None


def split_index(
    index: np.ndarray, layout: Mapping[str, int], score_strategy: str, clock: int
) -> Slots:
    """Reads the slots of some buckets from uint32[buckets, words]."""

    def column(first: int, step: int) -> np.ndarray:
        low = first + step * np.arange(layout["bucket_capacity"])
        words = np.ascontiguousarray(index[:, np.stack([low, low + 1], axis=1)])
        return words.view(np.uint64).reshape(-1)

    step = layout["slot_words"]
    keys, scores = (
        column(layout["keys_word"], step),
        column(layout["scores_word"], step),
    )
    live = scores != 0
    if "most_given_score" not in layout:  # then it was larger
        most = np.uint64(_ffi.constants()["most_packed"])
        high = np.minimum(scores >> np.uint64(32), most)
        scores = high << np.uint64(32) | scores & _LOW
    pinned, scores, clocks = (scores & PIN) != 0, scores & ~PIN, None
    if lacks_given(layout, score_strategy):
        age = np.uint32(clock & 0xFFFF_FFFF) - scores.astype(np.uint32)  # wraps
        scores, clocks = scores >> np.uint64(32), np.uint64(clock) - age
    elif score_strategy == "customized":
        clocks, scores = scores, column(layout["bucket_words"], 2)
    return Slots(keys.view(np.int64), scores, pinned, live, clocks)
