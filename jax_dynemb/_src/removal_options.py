# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Checks the options of a table about rows that it loses."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from typing import Any, NoReturn

from jax_dynemb._src.is_whole import is_whole

_MOST_LOGGED = 1 << 30
_MICROSECOND = datetime.timedelta(microseconds=1)


def logged_keys(given: Any, fail: Callable[[str], NoReturn]) -> int:
    """Checks ``log_removed``; ``fail`` raises with the name of the table."""
    if not is_whole(given):
        fail(f"log_removed must be an int, not {given!r}; 0 keeps no log")
    if not 0 <= given <= _MOST_LOGGED:
        fail(f"log_removed must be 0 to 2**30 keys, not {given}; 0 keeps no log")
    return int(given)


def kept_for(
    given: Any, is_timed: bool, evicts: bool, fail: Callable[[str], NoReturn]
) -> int | None:
    """Checks ``keep_for`` of a table; in units of its clock."""
    if given is None:
        return None
    if isinstance(given, datetime.timedelta):
        if not is_timed:
            fail(
                f"keep_for={given!r} is a time, but the table counts lookups: give a "
                "number of lookups, or score_strategy='timestamp'"
            )
        given = given // _MICROSECOND * 1000
    if not is_whole(given):
        fail(f"keep_for must be a number of lookups or None, not {given!r}")
    if not 0 < given < 1 << 62:
        fail(f"keep_for must be 1 or more, not {given}; None counts no rows")
    if not evicts:
        fail(
            f"keep_for={given} is about evicted rows, but this table evicts none: "
            "leave it out, or set on_full='evict'"
        )
    return int(given)


def ring_size(logged: int, rings: int) -> int:
    """Computes the keys of each ring of a log; 0 without one.

    Keys fall into rings by their hash, so a ring has four standard deviations more than
    an equal share. Then some ring is too small for any n random keys in less than 1 of
    100 cases.
    """
    share = -(-logged // rings)
    if share == 0 or rings == 1:
        return share
    return share + 4 * math.isqrt(share) + 4
