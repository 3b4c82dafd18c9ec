# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Refuses what is no number where a planner needs one; the reasons for no plan."""

from __future__ import annotations

import enum
import math
import numbers
from typing import Any

from jax_dynemb._src.is_whole import is_whole


def check_whole(where: str, field: str, value: Any, least: int = 1) -> int:
    """Returns a whole number, ``least`` or more; else a ValueError names the field."""
    if not is_whole(value) or value < least:
        raise ValueError(
            f"{where}: {field} must be a whole number, {least} or more, not {value!r}."
        )
    return int(value)


def check_number(
    where: str, field: str, value: Any, *, positive: bool, finite: bool = True
) -> float:
    """Returns a number that is not below 0; ValueError names the field otherwise."""
    real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    number = float(value) if real else math.nan
    fits = number > 0 if positive else number >= 0
    if not fits or (finite and math.isinf(number)):
        kind = "a number above 0" if positive else "a number, 0 or more"
        end = ", and finite" if finite else ""
        raise ValueError(f"{where}: {field} must be {kind}{end}, not {value!r}.")
    return number


class PlannerErrorType(enum.StrEnum):
    """Names the reason of a ``PlannerError``, with TorchRec's words.

    INSUFFICIENT_STORAGE: the tables do not fit, however they are placed.
    STRICT_CONSTRAINTS: a constraint leaves a table without a sharding.
    """

    INSUFFICIENT_STORAGE = "insufficient_storage"
    STRICT_CONSTRAINTS = "strict_constraints"


class PlannerError(ValueError):
    """Says why no plan exists; ``error_type`` has the reason."""

    def __init__(self, message: str, error_type: PlannerErrorType):
        super().__init__(f"{error_type.name}: {message}")
        self.error_type = error_type
