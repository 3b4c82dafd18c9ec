# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Optimizers that walk along a gradient, a trace of gradients or its sign."""

from __future__ import annotations

from typing import Literal

from jax_dynemb._src.optim.base import NoUpdate
from jax_dynemb._src.optim.functor import Functor
from jax_dynemb._src.optim.fused import Fused
from jax_dynemb._src.optim.numbers import LearningRate
from jax_dynemb._src.optim.options import LAST, Clip, Optimizer, check_choice, flag


def none() -> NoUpdate:
    """Makes no optimizer: ``apply_gradients`` leaves the table's rows as they are.

    ``reduce_gradients`` gives the keys and summed gradients of the touched rows to
    whatever updates them instead.
    """
    return NoUpdate()


def sgd(
    learning_rate: LearningRate,
    *,
    clip_row_value: float = 0.0,
    clip_row_norm: float = 0.0,
) -> Optimizer:
    """Makes stochastic gradient descent: ``row -= learning_rate * g``; no state.

    Args:
      learning_rate: a number, or an optax schedule of the updates made so far.
      clip_row_value: the largest magnitude of a column of a row's summed gradient.
      clip_row_norm: the largest norm of a row's summed gradient; 0: any.
    """
    clip = Clip(clip_row_value, clip_row_norm)
    if not clip.is_set("sgd"):
        return Fused("sgd", learning_rate)
    return Functor("sgd", learning_rate, clip.numbers)


def momentum(
    learning_rate: LearningRate,
    momentum: float = 0.9,
    nesterov: bool = False,
    *,
    catch_up: Literal["smart"] | None = None,
    clip_row_value: float = 0.0,
    clip_row_norm: float = 0.0,
) -> Functor:
    """Makes SGD with momentum, as ``optax.sgd`` and ``torch.optim.SGD`` have it.

    ``trace = momentum * trace + g; row -= learning_rate * trace``, and with Nesterov's
    step ``row -= learning_rate * (g + momentum * trace)``. State ``trace``,
    float32[dim] a row, which rests while the row is not touched.

    With ``catch_up="smart"`` a row first makes up for the updates of the table that it
    was absent from, as if their gradients had been zero. So a row ends where a dense
    optimizer takes it, if the learning rate stays. State ``last`` then, one int32 a
    row: the row's last update.

    Args:
      learning_rate: a number, or an optax schedule of the updates made so far.
      momentum: decay of the trace, in [0, 1).
      nesterov: whether a step looks ahead.
      catch_up: ``"smart"``, or None: absent rows rest.
      clip_row_value: see ``sgd``.
      clip_row_norm: see ``sgd``.
    """
    numbers = (("momentum", momentum), flag("momentum", "nesterov", nesterov))
    numbers += Clip(clip_row_value, clip_row_norm).numbers
    states = (("trace", 0.0),)
    if catch_up is None:
        return Functor("momentum", learning_rate, numbers, states)
    check_choice("momentum", "catch_up", catch_up, ("smart",))
    return Functor("smart_momentum", learning_rate, numbers, (*states, LAST))


def lars(
    learning_rate: LearningRate,
    momentum: float = 0.9,
    eta: float = 0.001,
    weight_decay: float = 0.0,
    *,
    clip_row_value: float = 0.0,
    clip_row_norm: float = 0.0,
) -> Functor:
    """Makes LARS (You et al., 2017) with a row as its layer: FBGEMM's LARS_SGD.

    ``a = learning_rate * eta * norm(row) / (norm(g) + weight_decay * norm(row))``;
    ``trace = momentum * trace + a * (g + weight_decay * row); row -= trace``. A row of
    zeros has the ratio 1. State ``trace``, float32[dim] a row. ``optax.lars`` is
    another formula.

    Args:
      learning_rate: a number, or an optax schedule of the updates made so far.
      momentum: decay of the trace, in [0, 1).
      eta: the trust coefficient.
      weight_decay: of the row.
      clip_row_value: see ``sgd``.
      clip_row_norm: see ``sgd``.
    """
    numbers = (("eta", eta), ("momentum", momentum), ("weight_decay", weight_decay))
    numbers += Clip(clip_row_value, clip_row_norm).numbers
    return Functor("lars", learning_rate, numbers, (("trace", 0.0),))


def lion(
    learning_rate: LearningRate,
    b1: float = 0.9,
    b2: float = 0.99,
    weight_decay: float = 1e-3,
    *,
    clip_row_value: float = 0.0,
    clip_row_norm: float = 0.0,
) -> Functor:
    """Makes Lion (Chen et al., 2023), with the defaults of ``optax.lion``.

    ``c = sign(b1 * mu + (1 - b1) * g); row -= learning_rate * (c + weight_decay *
    row); mu = b2 * mu + (1 - b2) * g``. State ``mu``, float32[dim] a row.

    Args:
      learning_rate: a number, or an optax schedule of the updates made so far.
      b1: of the mean whose sign is the step, in [0, 1).
      b2: decay of ``mu``, in [0, 1).
      weight_decay: of the row, times the learning rate.
      clip_row_value: see ``sgd``.
      clip_row_norm: see ``sgd``.
    """
    numbers = (("b1", b1), ("b2", b2), ("weight_decay", weight_decay))
    numbers += Clip(clip_row_value, clip_row_norm).numbers
    return Functor("lion", learning_rate, numbers, (("mu", 0.0),))
