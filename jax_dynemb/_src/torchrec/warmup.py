# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Learning rates that warm up in stages, as TorchRec's WarmupOptimizer has them."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp


class WarmupPolicy(str, enum.Enum):  # noqa: UP042 (str() gives TorchRec's text)
    """How the multiplier of a stage depends on the iteration."""

    NONE = "none"
    LINEAR = "linear"
    CONSTANT = "constant"
    POLY = "poly"
    STEP = "step"
    INVSQRT = "inv_sqrt"
    COSINE_ANNEALING_WARM_RESTARTS = "cosine_annealing_warm_restarts"


@dataclasses.dataclass(frozen=True)
class WarmupStage:
    """One stage of a schedule.

    Attributes:
      policy: see ``multiplier``.
      max_iters: the last iteration of the stage.
      value: see ``multiplier``.
      lr_scale: factor of the whole stage.
      decay_iters: of POLY and STEP; ``max_iters`` (STEP: 1) if not positive.
      sgdr_period: iterations between restarts.
    """

    policy: WarmupPolicy | str = WarmupPolicy.LINEAR
    max_iters: int = 1
    value: float = 1.0
    lr_scale: float = 1.0
    decay_iters: int = -1
    sgdr_period: int = 1

    def multiplier(self, iteration: Any) -> Any:
        """Computes the factor of the learning rate, also past ``max_iters``.

        LINEAR: value + (1 - value) i / max_iters. CONSTANT: value. POLY:
        (1 - i / decay_iters) ** value. STEP: value ** (i // decay_iters). INVSQRT:
        1 / sqrt(i). Restarts: from 1 to value along a cosine every ``sgdr_period``.

        Args:
          iteration: a number, or int32[] under jit.

        Raises:
          ValueError: the policy is unknown.
        """
        i = jnp.asarray(iteration, jnp.float32)
        name = str(getattr(self.policy, "value", self.policy)).lower()
        step = name == WarmupPolicy.STEP.value
        decay = self.decay_iters if self.decay_iters > 0 else self.max_iters
        decay = 1 if step and self.decay_iters <= 0 else decay
        period = self.sgdr_period
        cosine = 0.5 * (1.0 + jnp.cos(jnp.pi * (i % period) / period))
        formulas = {
            "none": lambda: jnp.ones_like(i),
            "linear": lambda: self.value + (1.0 - self.value) * i / self.max_iters,
            "constant": lambda: jnp.full_like(i, self.value),
            "poly": lambda: (1.0 - i / decay) ** self.value,
            "step": lambda: jnp.float32(self.value) ** (i // decay),
            "inv_sqrt": lambda: 1.0 / jnp.sqrt(jnp.maximum(i, 1.0)),
            "cosine_annealing_warm_restarts": lambda: (
                self.value + (1.0 - self.value) * cosine
            ),
        }
        if name not in formulas:
            raise ValueError(f"policy {name!r} is none of {sorted(formulas)}")
        return formulas[name]() * self.lr_scale


def warmup_schedule(
    stages: Sequence[WarmupStage], learning_rate: float = 1.0
) -> Callable[[Any], Any]:
    """Makes a schedule for any optimizer of ``jde.optim`` or optax.

    Each stage lasts until its ``max_iters``; after the last one the multiplier is 1.

    Args:
      stages: in order of ``max_iters``.
      learning_rate: what the multipliers are factors of.

    Returns:
      A function of the number of updates made so far.

    Raises:
      ValueError: ``max_iters`` do not rise.

    Example:
      >>> stages = [jde.torchrec.WarmupStage("linear", max_iters=10, value=0.1)]
      >>> schedule = jde.torchrec.warmup_schedule(stages, learning_rate=0.5)
      >>> float(schedule(5)), float(schedule(20))
      (0.2750000059604645, 0.5)
    """
    stages = tuple(stages)
    ends = [stage.max_iters for stage in stages]
    if ends != sorted(set(ends)) or (ends and ends[0] < 1):
        raise ValueError(f"max_iters of stages are {ends}: they must rise from 1 on.")
    for stage in stages:
        stage.multiplier(1)

    def schedule(count: Any) -> Any:
        i = jnp.asarray(count)
        factors = [stage.multiplier(i) for stage in stages]
        past = [i <= end for end in ends]
        if not factors:
            return jnp.float32(learning_rate)
        return learning_rate * jnp.select(past, factors, jnp.float32(1.0))

    return schedule
