# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Scores on the host: what they say about the lookup that used a row last."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from jax_dynemb._src.config import ScoreStrategy, TableConfig
from jax_dynemb._src.engines.shard.counters import counter_values, set_counters
from jax_dynemb._src.is_whole import is_whole
from jax_dynemb._src.ops import TableState
from jax_dynemb._src.spec import TableSpec

# Scores with the clock in their low word only (core/score.h). Names will do as well,
# which is what files have: a ScoreStrategy equals its name. Customized tables have the
# clock beside the custom score, see Exported.clocks.
PACKED = (ScoreStrategy.LFU,)
_COUNTED = (ScoreStrategy.STEP, ScoreStrategy.NO_EVICTION)


def words_of(numbers: Any) -> np.ndarray:
    """uint32[n, 2] from uint64 numbers."""
    array = np.ascontiguousarray(np.asarray(numbers, np.uint64))
    return array.view(np.uint32).reshape(-1, 2)


def next_score(state: TableState) -> int:
    """See ``Tables.get_score``."""
    return counter_values(state)["clock"] + 1


class Scored(Protocol):
    """Rows with their scores, as ``Exported`` has them."""

    @property
    def scores(self) -> np.ndarray: ...

    @property
    def clocks(self) -> np.ndarray | None: ...


def used_since(
    table: TableSpec, state: TableState, rows: Scored, since: int
) -> np.ndarray:
    """Which rows a lookup used whose clock was ``since`` or later: bool[n].

    Packed scores keep 32 bits of the clock, so the answer is exact for 2**32 lookups.
    """
    scores = rows.scores if rows.clocks is None else rows.clocks
    if table.score_strategy not in PACKED:
        return scores >= np.uint64(max(since, 0))
    clock = counter_values(state, table.own_counters)["clock"]
    age = np.uint32(clock & 0xFFFF_FFFF) - scores.astype(np.uint32)  # wraps
    return age.astype(np.int64) <= clock - since


def set_score(
    table: TableConfig, counted: TableState, state: TableState, rows: slice, score: int
) -> TableState:
    """See ``Tables.set_score``.

    Args:
      table: which one.
      counted: its counters, as ``HashEngine.with_own_counters`` returns them.
      state: its arrays.
      rows: of their counters.
      score: the clock of its next lookup.
    """
    strategy = ScoreStrategy(table.score_strategy)
    if strategy not in _COUNTED:
        raise ValueError(
            f"Table '{table.name}' has score_strategy='{strategy.value}', whose clock "
            "is not a step. Leave it alone; a customized table takes its scores with "
            "each lookup: lookup(..., scores={table: score})."
        )
    if not is_whole(score):
        raise TypeError(
            f"Table '{table.name}': a score must be a whole number, not {score!r}."
        )
    score, least = int(score), next_score(counted)
    if not least <= score < (1 << 62) - (1 << 32):
        raise ValueError(
            f"Table '{table.name}': score {score} is not in [{least}, 2**62 - 2**32): "
            "rows that were used already would look newer than those used next."
        )
    return set_counters(state, {"clock": score - 1}, rows)
