# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Checks the options that optimizers share, before an optimizer is made."""

from __future__ import annotations

import dataclasses

from jax_dynemb.optim._functor import Functor
from jax_dynemb.optim._fused import Fused
from jax_dynemb.optim._numbers import check_number

Optimizer = Fused | Functor
Numbers = tuple[tuple[str, float], ...]
LAST = ("last", 0.0)  # the table's update in which the row had its last one


@dataclasses.dataclass(frozen=True)
class Clip:
    """Says how the summed gradient of a row is clipped.

    Attributes:
      value: the largest magnitude of a column; 0: any.
      norm: the largest norm, after that; 0: any.
    """

    value: float
    norm: float

    @property
    def numbers(self) -> Numbers:
        """Names both as the kernels do."""
        return ("clip_row_value", self.value), ("clip_row_norm", self.norm)

    def is_set(self, kind: str) -> bool:
        """Tells whether anything is clipped, after a check of both."""
        return any_set(kind, *self.numbers)


def any_set(kind: str, *numbers: tuple[str, float]) -> bool:
    """Tells whether an option differs from 0, after a check of each."""
    for name, number in numbers:
        check_number(f"jde.optim.{kind}", name, number)
    return any(number for _, number in numbers)


def check_choice(kind: str, name: str, given: object, allowed: tuple[str, ...]) -> None:
    """Refuses an option that is not one of the allowed ones."""
    if given not in allowed:
        raise ValueError(
            f"jde.optim.{kind}: {name} must be one of {allowed}, not {given!r}"
        )


def flag(kind: str, name: str, given: object) -> tuple[str, float]:
    """Makes a number of a flag, as kernels take it."""
    if given not in (False, True):
        raise ValueError(
            f"jde.optim.{kind}: {name} must be True or False, not {given!r}"
        )
    return name, float(bool(given))
