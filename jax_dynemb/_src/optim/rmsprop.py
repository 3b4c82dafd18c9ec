# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Optimizers that divide by the root of a mean of squares: RMSprop."""

from __future__ import annotations

from jax_dynemb._src.optim.functor import Functor
from jax_dynemb._src.optim.numbers import LearningRate, constant_number
from jax_dynemb._src.optim.options import LAST, Clip, any_set, flag


def rmsprop(
    learning_rate: LearningRate,
    decay: float = 0.9,
    eps: float = 1e-8,
    *,
    eps_in_sqrt: bool = False,
    initial_scale: float = 0.0,
    clip_row_value: float = 0.0,
    clip_row_norm: float = 0.0,
) -> Functor:
    """Makes RMSprop (Tieleman and Hinton, 2012), without momentum.

    ``nu = decay * nu + (1 - decay) * g * g; row -= learning_rate * g / (sqrt(nu) +
    eps)``. State ``nu``, float32[dim] a row.

    Args:
      learning_rate: a number, or an optax schedule of the updates made so far.
      decay: of the mean of squares, in [0, 1).
      eps: added to the root, as in torch.
      eps_in_sqrt: add eps to ``nu`` instead, as optax and TensorFlow do.
      initial_scale: what ``nu`` begins with.
      clip_row_value: see ``sgd``.
      clip_row_norm: see ``sgd``.
    """
    first = constant_number("jde.optim.rmsprop", "initial_scale", initial_scale)
    numbers = (
        ("decay", decay),
        ("eps", eps),
        flag("rmsprop", "eps_in_sqrt", eps_in_sqrt),
    )
    numbers += Clip(clip_row_value, clip_row_norm).numbers
    return Functor("rmsprop", learning_rate, numbers, (("nu", first),))


def rowwise_rmsprop(
    learning_rate: LearningRate,
    decay: float = 0.99,
    eps: float = 1e-8,
    *,
    ar_alpha: float = 0.0,
    min_shrinkage: float = 0.1,
    clip_row_value: float = 0.0,
    clip_row_norm: float = 0.0,
) -> Functor:
    """Makes RMSprop with one mean of squares a row: ``rmsprop`` over ``mean(g * g)``.

    State ``nu``, one float32 a row.

    With ``ar_alpha`` a row is first scaled by ``max(min_shrinkage, 1 - learning_rate *
    ar_alpha * interval)``, FBGEMM's ROWWISE_RMSPROP_AR. The interval is 1 for a row
    without an update, else the table's updates since the row's last one. State
    ``last`` then, one int32 a row.

    Args:
      learning_rate: a number, or an optax schedule of the updates made so far.
      decay: of the mean of squares, in [0, 1).
      eps: added to the root.
      ar_alpha: of the shrinkage, at least 0; 0: none.
      min_shrinkage: the least factor of it, 0 to 1.
      clip_row_value: see ``sgd``.
      clip_row_norm: see ``sgd``.
    """
    numbers = (("decay", decay), ("eps", eps))
    numbers += Clip(clip_row_value, clip_row_norm).numbers
    states = (("nu", 0.0),)
    shrinks = (("ar_alpha", ar_alpha), ("min_shrinkage", min_shrinkage))
    any_set("rowwise_rmsprop", *shrinks)
    if min_shrinkage > 1:
        raise ValueError(
            "jde.optim.rowwise_rmsprop: min_shrinkage is the least factor of a row, at "
            f"most 1, not {min_shrinkage}"
        )
    if not ar_alpha:
        return Functor("rowwise_rmsprop", learning_rate, numbers, states)
    numbers += shrinks
    kind = "shrinking_rowwise_rmsprop"
    return Functor(kind, learning_rate, numbers, (*states, LAST))
