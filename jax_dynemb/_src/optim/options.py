# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Checks the options that optimizers share, before an optimizer is made."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from jax_dynemb._src.optim.functor import Functor
from jax_dynemb._src.optim.fused import Fused
from jax_dynemb._src.optim.numbers import constant_number, known_number

Optimizer = Fused | Functor
Numbers = tuple[tuple[str, float], ...]
_LAST_START = 2**24  # a hyper-parameter is a float32
LAST = ("last", 0.0)  # the table's update in which the row had its last one


@dataclasses.dataclass(frozen=True)
class Clip:
    """Says how the summed gradient of a row is clipped."""

    value: float  # the largest magnitude of a column; 0: any
    norm: float  # the largest norm, after that; 0: any

    @property
    def numbers(self) -> Numbers:
        """Names both as the kernels do."""
        return ("clip_row_value", self.value), ("clip_row_norm", self.norm)

    def is_set(self, kind: str) -> bool:
        """Tells whether anything is clipped, after a check of both."""
        return any_set(kind, *self.numbers)


@dataclasses.dataclass(frozen=True)
class Decay:
    """Says how ``catch_up="decay"`` makes up for missed updates."""

    floor: float  # the least factor of a decay
    start: int  # the first update of the table that makes up for others
    forward: bool  # whether a lookup reads rows with the decay that is due

    @property
    def numbers(self) -> Numbers:
        """Names the hyper-parameters as the kernel does."""
        return ("floor", self.floor), ("start", float(self.start))

    def check(self, kind: str, is_used: bool) -> None:
        """Refuses options that say nothing without ``catch_up="decay"``."""
        is_set = any_set(
            kind, ("catch_up_floor", self.floor), ("catch_up_start", self.start)
        )
        if self.floor > 1:
            raise ValueError(
                f"jde.optim.{kind}: catch_up_floor is the least factor of a decay, at "
                f"most 1, not {self.floor}"
            )
        check_start(kind, "catch_up_start", self.start)
        flag(kind, "catch_up_forward", self.forward)
        if (is_set or self.forward) and not is_used:
            raise ValueError(
                f"jde.optim.{kind}: catch_up_floor, catch_up_start and "
                "catch_up_forward belong to catch_up='decay'; set that, or leave "
                "them out"
            )


def any_set(kind: str, *numbers: tuple[str, float]) -> bool:
    """Tells whether an option differs from 0, after a check of each."""
    return any([constant_number(f"jde.optim.{kind}", n, x) for n, x in numbers])


def check_start(kind: str, name: str, start: float) -> None:
    """Refuses what is not the number of an update that a float32 can hold."""
    if start != int(start) or start > _LAST_START:
        raise ValueError(
            f"jde.optim.{kind}: {name} is the number of an update, at most 2**24, not "
            f"{start}"
        )


def check_choice(kind: str, name: str, given: object, allowed: tuple[str, ...]) -> None:
    """Refuses an option that is not one of the allowed ones."""
    if given not in allowed:
        raise ValueError(
            f"jde.optim.{kind}: {name} must be one of {allowed}, not {given!r}"
        )


def flag(kind: str, name: str, given: Any) -> tuple[str, float]:
    """Makes a number of a flag, as kernels take it."""
    is_flag = isinstance(given, (bool, np.bool_)) or known_number(given) in (0, 1)
    if not is_flag:
        raise ValueError(
            f"jde.optim.{kind}: {name} must be True or False, not {given!r}"
        )
    return name, float(bool(given))
