# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""An optimizer whose formula is a struct of core/optimizers/, for the shared loop."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.optim.base import FusedOptimizer, StateSpec
from jax_dynemb._src.optim.numbers import (
    LearningRate,
    constant_number,
    keep_number,
    rate_at,
)

# Before the name of the function whose option makes the kind.
_VARIANTS = ("row_counted_", "caught_up_", "smart_", "shrinking_", "cow_clip_")
_VARIANTS += ("counter_",)


@dataclasses.dataclass(frozen=True)
class Functor(FusedOptimizer):
    """Declares a fused optimizer that the loop for all optimizers runs.

    Make one with a function of ``jde.optim``; a hyper-parameter is an attribute too,
    ``jde.optim.lion(0.1).b1``.

    Attributes:
      kind: the name of its struct in core/optimizers/.
      learning_rate: a number, or an optax schedule of the updates made so far.
      numbers: its other hyper-parameters, (name, number) each.
      initial: (name, first value) of each state of a row, those with a number for each
        column first.
      decays_lookups: whether a lookup reads rows with the decay that is due.
    """

    kind: str
    learning_rate: LearningRate
    numbers: tuple[tuple[str, float], ...]
    initial: tuple[tuple[str, float], ...] = ()
    decays_lookups: bool = False

    @property
    def name(self) -> str:
        """Names the function of ``jde.optim`` that makes it."""
        return next(
            (self.kind.removeprefix(p) for p in _VARIANTS if self.kind.startswith(p)),
            self.kind,
        )

    def __post_init__(self) -> None:
        """Checks the ranges that the formulas need."""
        owner = f"jde.optim.{self.name}"
        if not callable(self.learning_rate) or isinstance(self.learning_rate, type):
            keep_number(self, owner, "learning_rate")
        numbers = tuple((n, constant_number(owner, n, x)) for n, x in self.numbers)
        object.__setattr__(self, "numbers", numbers)
        initial = tuple((n, float(x)) for n, x in self.initial)  # checked by then
        object.__setattr__(self, "initial", initial)

    def __getattr__(self, name: str) -> Any:
        """Finds a hyper-parameter by its name."""
        known = dict(self.__dict__.get("numbers", ()))
        if name in known:
            return known[name]
        states = dict(self.__dict__.get("initial", ()))
        if name == "initial_accumulator_value" and "sum_of_squares" in states:
            return states["sum_of_squares"]
        return super().__getattr__(name)

    def states(self, dim: int) -> dict[str, StateSpec]:
        """Per-row states: names as in optax."""
        constants = _ffi.constants()
        wide = constants["optimizer_wide_states"][self.kind]
        first_int = len(self.initial) - constants["optimizer_ints"][self.kind]
        return {
            name: StateSpec(
                (dim,) if place < wide else (),
                first,
                "int32" if place >= first_int else "float32",
            )
            for place, (name, first) in enumerate(self.initial)
        }

    def hyper_parameters(self, count: jax.Array) -> dict[str, Any]:
        """Returns what the kernel takes; a schedule is evaluated at ``count``."""
        rate = rate_at(f"jde.optim.{self.name}", self.learning_rate, count)
        return {"learning_rate": rate} | dict(self.numbers)
