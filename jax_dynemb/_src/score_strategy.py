# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Names what the score of a row is, and so which row a full bucket evicts first."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, Literal, NoReturn

Strategy = Literal["step", "timestamp", "lfu", "customized", "no_eviction"]


class ScoreStrategy(enum.StrEnum):
    """Chooses the score of a row; a full bucket evicts its lowest score first.

    STEP: the lookup that used the row last. TIMESTAMP: its time in nanoseconds.
    LFU: how often the row was used, then how recently. CUSTOMIZED: given with each
    lookup. NO_EVICTION: rows stay; a key that finds no place is refused.
    """

    STEP = "step"
    TIMESTAMP = "timestamp"
    LFU = "lfu"
    CUSTOMIZED = "customized"
    NO_EVICTION = "no_eviction"


COMPETING = (ScoreStrategy.LFU, ScoreStrategy.CUSTOMIZED)

# What other libraries and textbooks call them.
_OTHER_NAMES = {
    "lru": "score_strategy='step', which evicts the row that was used longest ago",
    "fifo": "score_strategy='customized', with the time of the first use as the score",
    "ttl": "jde.lifecycle.Rule(unused_for=...) in erase_where",
    "none": "score_strategy='no_eviction'",
    "frequency": "score_strategy='lfu'",
    "epoch_lru": "score_strategy='customized', with the epoch as the score",
    "random": "score_strategy='customized', with random numbers as scores",
}


def named_strategy(given: Any, fail: Callable[[str], NoReturn]) -> ScoreStrategy:
    """Checks ``score_strategy``; ``fail`` raises with the name of the table."""
    if isinstance(given, ScoreStrategy):
        return given
    if isinstance(given, tuple) and set(given) == {"timestamp", "lfu"}:
        return ScoreStrategy.LFU  # its scores hold the last use as well
    names = [each.value for each in ScoreStrategy]
    if not isinstance(given, str) or given.lower() not in names:
        hint = _OTHER_NAMES.get(str(given).lower().replace("-", "_"))
        meant = f": that is {hint}" if hint else ""
        fail(f"score_strategy must be one of {names}, not {given!r}{meant}")
    return ScoreStrategy(given.lower())
