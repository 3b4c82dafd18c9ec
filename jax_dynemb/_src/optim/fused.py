# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The fused optimizers: one update of each touched row, in the kernel.

Formulas and their source (FBGEMM) are in core/optimizer.h. "Exact" semantics: all
gradients of a row in a batch are summed first, then the row is updated once.
Hyper-parameters reach the kernel as operands, so a schedule does not recompile.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax

from jax_dynemb._src.optim.base import FusedOptimizer, StateSpec
from jax_dynemb._src.optim.numbers import LearningRate, keep_number, rate_at


@dataclasses.dataclass(frozen=True)
class Fused(FusedOptimizer):
    """Declares a fused optimizer; make one with the functions below.

    Attributes:
      kind: its name in core/optimizer.h.
      learning_rate: a number, or an optax schedule of the updates made so far.
      eps: added to a square root; from 2**-63 on, less counts as that, so that a
        zero gradient divided by a zero root is zero.
      b1: decay of the first moment.
      b2: decay of the second moment.
      weight_decay: decoupled.
      initial_accumulator_value: of Adagrad's sum of squares.
    """

    kind: str
    learning_rate: LearningRate
    eps: float = 1e-8
    b1: float = 0.9
    b2: float = 0.999
    weight_decay: float = 0.0
    initial_accumulator_value: float = 0.0

    def __post_init__(self) -> None:
        """Checks the ranges that the formulas need."""
        owner = f"jde.optim.{self.kind}"
        rate = self.learning_rate
        is_schedule = callable(rate) and not isinstance(rate, (type, Fused))
        for field in _NUMBERS:
            if field != "learning_rate" or not is_schedule:
                keep_number(self, owner, field)

    def states(self, dim: int) -> dict[str, StateSpec]:
        """Returns the states of a row, under the names that optax uses."""
        start = self.initial_accumulator_value
        if self.kind == "adagrad":
            return {"sum_of_squares": StateSpec((dim,), start)}
        if self.kind == "rowwise_adagrad":
            return {"sum_of_squares": StateSpec((), start)}
        if self.kind == "adam":
            return {"mu": StateSpec((dim,), 0.0), "nu": StateSpec((dim,), 0.0)}
        return {}

    @property
    def known_numbers(self) -> tuple[str, ...]:
        """Names the hyper-parameters that its formula has."""
        by_kind = {"sgd": _NUMBERS[:1], "adam": _NUMBERS[:5]}
        return by_kind.get(self.kind, _NUMBERS[:2])

    def hyper_parameters(self, count: jax.Array) -> dict[str, Any]:
        """Returns what the kernel takes; a schedule is evaluated at ``count``."""
        return {
            "learning_rate": rate_at(
                f"jde.optim.{self.kind}", self.learning_rate, count
            ),
            "eps": self.eps,
            "b1": self.b1,
            "b2": self.b2,
            "weight_decay": self.weight_decay,
        }


_NUMBERS = (
    "learning_rate",
    "eps",
    "b1",
    "b2",
    "weight_decay",
    "initial_accumulator_value",
)
