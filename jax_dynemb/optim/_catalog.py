# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The fused optimizers by name. Their formulas are the structs of core/optimizers/."""

from __future__ import annotations

from typing import Literal

from jax_dynemb.optim._base import NoUpdate
from jax_dynemb.optim._functor import Functor
from jax_dynemb.optim._fused import Fused
from jax_dynemb.optim._numbers import LearningRate, check_number

Optimizer = Fused | Functor


def _choice(kind: str, name: str, given: object, allowed: tuple[str, ...]) -> None:
    if given not in allowed:
        raise ValueError(
            f"jde.optim.{kind}: {name} must be one of {allowed}, not {given!r}"
        )


def _flag(kind: str, name: str, given: object) -> tuple[str, float]:
    if given not in (False, True):
        raise ValueError(
            f"jde.optim.{kind}: {name} must be True or False, not {given!r}"
        )
    return name, float(bool(given))


def _clips(value: float, norm: float) -> tuple[tuple[str, float], ...]:
    return ("clip_row_value", value), ("clip_row_norm", norm)


def _is_set(owner: str, **numbers: float) -> bool:
    for name, number in numbers.items():
        check_number(f"jde.optim.{owner}", name, number)
    return any(numbers.values())


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
    clip = {"clip_row_value": clip_row_value, "clip_row_norm": clip_row_norm}
    if not _is_set("sgd", **clip):
        return Fused("sgd", learning_rate)
    return Functor("sgd", learning_rate, tuple(clip.items()))


def momentum(
    learning_rate: LearningRate,
    momentum: float = 0.9,
    nesterov: bool = False,
    *,
    clip_row_value: float = 0.0,
    clip_row_norm: float = 0.0,
) -> Functor:
    """Makes SGD with momentum, as ``optax.sgd`` and ``torch.optim.SGD`` have it.

    ``trace = momentum * trace + g; row -= learning_rate * trace``, and with Nesterov's
    step ``row -= learning_rate * (g + momentum * trace)``. State ``trace``,
    float32[dim] a row, which rests while the row is not touched.

    Args:
      learning_rate: a number, or an optax schedule of the updates made so far.
      momentum: decay of the trace, in [0, 1).
      nesterov: whether a step looks ahead.
      clip_row_value: see ``sgd``.
      clip_row_norm: see ``sgd``.
    """
    numbers = (("momentum", momentum), _flag("momentum", "nesterov", nesterov))
    numbers += _clips(clip_row_value, clip_row_norm)
    return Functor("momentum", learning_rate, numbers, (("trace", 0.0),))


def adagrad(
    learning_rate: LearningRate,
    eps: float = 1e-8,
    initial_accumulator_value: float = 0.0,
    *,
    clip_row_value: float = 0.0,
    clip_row_norm: float = 0.0,
) -> Optimizer:
    """Makes Adagrad (Duchi et al., 2011) with FBGEMM's place for eps.

    ``s += g * g; row -= learning_rate * g / (sqrt(s) + eps)``; state
    ``sum_of_squares``, float32[dim] a row.

    Args:
      learning_rate: a number, or an optax schedule of the updates made so far.
      eps: added to the root.
      initial_accumulator_value: what ``sum_of_squares`` begins with.
      clip_row_value: see ``sgd``.
      clip_row_norm: see ``sgd``.
    """
    start = initial_accumulator_value
    clip = {"clip_row_value": clip_row_value, "clip_row_norm": clip_row_norm}
    if not _is_set("adagrad", **clip):
        return Fused("adagrad", learning_rate, eps=eps, initial_accumulator_value=start)
    check_number("jde.optim.adagrad", "initial_accumulator_value", start)
    numbers = (("eps", eps), *clip.items())
    return Functor("adagrad", learning_rate, numbers, (("sum_of_squares", start),))


def rowwise_adagrad(
    learning_rate: LearningRate,
    eps: float = 1e-8,
    initial_accumulator_value: float = 0.0,
    *,
    weight_decay: float = 0.0,
    weight_decay_mode: Literal["decoupled", "l2"] = "decoupled",
    max_norm: float = 0.0,
    clip_row_value: float = 0.0,
    clip_row_norm: float = 0.0,
) -> Optimizer:
    """Makes Adagrad with one accumulator a row (FBGEMM's exact_rowwise_adagrad).

    ``s += mean(g * g); row -= learning_rate / (sqrt(s) + eps) * g``; state
    ``sum_of_squares``, one float32 a row.

    With decay the row is scaled before it moves. Decoupled decay scales it by ``1 -
    learning_rate * weight_decay``. With ``"l2"`` the factor is ``1 - learning_rate /
    (sqrt(s) + eps) * weight_decay``, and ``s`` sums the squares of ``g + weight_decay
    * row``.

    Args:
      learning_rate: a number, or an optax schedule of the updates made so far.
      eps: added to the root.
      initial_accumulator_value: what ``sum_of_squares`` begins with.
      weight_decay: of the row; 0: none.
      weight_decay_mode: ``"decoupled"`` or ``"l2"``.
      max_norm: a new row with a larger norm is scaled down to it; 0: any.
      clip_row_value: see ``sgd``.
      clip_row_norm: see ``sgd``.
    """
    kind, start = "rowwise_adagrad", initial_accumulator_value
    _choice(kind, "weight_decay_mode", weight_decay_mode, ("decoupled", "l2"))
    clip = {"clip_row_value": clip_row_value, "clip_row_norm": clip_row_norm}
    if not _is_set(kind, weight_decay=weight_decay, max_norm=max_norm, **clip):
        return Fused(kind, learning_rate, eps=eps, initial_accumulator_value=start)
    check_number(f"jde.optim.{kind}", "initial_accumulator_value", start)
    is_l2 = weight_decay_mode == "l2"
    numbers = (
        ("eps", eps),
        ("l2", weight_decay if is_l2 else 0.0),
        ("weight_decay", 0.0 if is_l2 else weight_decay),
        ("max_norm", max_norm),
        *clip.items(),
    )
    return Functor(kind, learning_rate, numbers, (("sum_of_squares", start),))


def adam(
    learning_rate: LearningRate,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    *,
    bias_correction: Literal["table", "row", "none"] = "table",
    clip_row_value: float = 0.0,
    clip_row_norm: float = 0.0,
) -> Optimizer:
    """Makes Adam (Kingma and Ba, 2015), with decoupled weight decay if given (AdamW).

    Only touched rows move (lazy Adam). States ``mu`` and ``nu``, float32[dim] each a
    row; with ``bias_correction="row"`` also ``count``, one float32 a row.

    Args:
      learning_rate: a number, or an optax schedule of the updates made so far.
      b1: decay of the first moment, in [0, 1).
      b2: decay of the second moment, in [0, 1).
      eps: added to the root.
      weight_decay: of the row, times the learning rate.
      bias_correction: what counts the steps of the correction. ``"table"``: the
        table's updates, so the first step of a row that comes late is up to 3.2 times
        as long as the learning rate. ``"row"``: the row's own, for streams of new ids.
        ``"none"``: the moments are used as they are.
      clip_row_value: see ``sgd``.
      clip_row_norm: see ``sgd``.
    """
    modes = ("table", "row", "none")
    _choice("adam", "bias_correction", bias_correction, modes)
    clip = {"clip_row_value": clip_row_value, "clip_row_norm": clip_row_norm}
    if bias_correction == "table" and not _is_set("adam", **clip):
        return Fused(
            "adam", learning_rate, eps=eps, b1=b1, b2=b2, weight_decay=weight_decay
        )
    numbers = _moments(eps, b1, b2, weight_decay, bias_correction)
    numbers += tuple(clip.items())
    states = (("mu", 0.0), ("nu", 0.0))
    if bias_correction == "row":
        states += (("count", 0.0),)
        return Functor("row_counted_adam", learning_rate, numbers, states)
    return Functor("adam", learning_rate, numbers, states)


def _moments(
    eps: float, b1: float, b2: float, weight_decay: float, bias_correction: str
) -> tuple[tuple[str, float], ...]:
    return (
        ("eps", eps),
        ("b1", b1),
        ("b2", b2),
        ("weight_decay", weight_decay),
        ("corrects", float(bias_correction != "none")),
    )


def _moment_optimizer(
    kind: str,
    learning_rate: LearningRate,
    moments: tuple[float, float, float, float],
    bias_correction: str,
    clip: tuple[float, float],
) -> Functor:
    _choice(kind, "bias_correction", bias_correction, ("table", "none"))
    numbers = _moments(*moments, bias_correction) + _clips(*clip)
    return Functor(kind, learning_rate, numbers, (("mu", 0.0), ("nu", 0.0)))


def partial_rowwise_adam(
    learning_rate: LearningRate,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    *,
    bias_correction: Literal["table", "none"] = "table",
    clip_row_value: float = 0.0,
    clip_row_norm: float = 0.0,
) -> Functor:
    """Makes Adam with one second moment a row: FBGEMM's PARTIAL_ROWWISE_ADAM.

    ``nu = b2 * nu + (1 - b2) * mean(g * g)``; all else as in ``adam``. States ``mu``,
    float32[dim] a row, and ``nu``, one float32 a row: half of Adam's.

    Args:
      learning_rate: see ``adam``.
      b1: see ``adam``.
      b2: see ``adam``.
      eps: see ``adam``.
      weight_decay: see ``adam``.
      bias_correction: ``"table"`` or ``"none"``, see ``adam``.
      clip_row_value: see ``sgd``.
      clip_row_norm: see ``sgd``.
    """
    moments = (eps, b1, b2, weight_decay)
    clip = (clip_row_value, clip_row_norm)
    kind = "partial_rowwise_adam"
    return _moment_optimizer(kind, learning_rate, moments, bias_correction, clip)


def lamb(
    learning_rate: LearningRate,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-6,
    weight_decay: float = 0.0,
    *,
    bias_correction: Literal["table", "none"] = "table",
    clip_row_value: float = 0.0,
    clip_row_norm: float = 0.0,
) -> Functor:
    """Makes LAMB (You et al., 2020) with a row as its layer.

    With ``r`` the step of ``adam``, decay included: ``row -= learning_rate *
    norm(row) / norm(r) * r``; the ratio is 1 where a norm is 0. States ``mu`` and
    ``nu``, float32[dim] each a row.

    Args:
      learning_rate: see ``adam``.
      b1: see ``adam``.
      b2: see ``adam``.
      eps: see ``adam``.
      weight_decay: see ``adam``.
      bias_correction: ``"table"`` or ``"none"``, see ``adam``.
      clip_row_value: see ``sgd``.
      clip_row_norm: see ``sgd``.
    """
    moments = (eps, b1, b2, weight_decay)
    clip = (clip_row_value, clip_row_norm)
    return _moment_optimizer("lamb", learning_rate, moments, bias_correction, clip)


def partial_rowwise_lamb(
    learning_rate: LearningRate,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-6,
    weight_decay: float = 0.0,
    *,
    bias_correction: Literal["table", "none"] = "table",
    clip_row_value: float = 0.0,
    clip_row_norm: float = 0.0,
) -> Functor:
    """Makes ``lamb`` with one second moment a row: FBGEMM's PARTIAL_ROWWISE_LAMB.

    States ``mu``, float32[dim] a row, and ``nu``, one float32 a row.

    Args:
      learning_rate: see ``adam``.
      b1: see ``adam``.
      b2: see ``adam``.
      eps: see ``adam``.
      weight_decay: see ``adam``.
      bias_correction: ``"table"`` or ``"none"``, see ``adam``.
      clip_row_value: see ``sgd``.
      clip_row_norm: see ``sgd``.
    """
    moments = (eps, b1, b2, weight_decay)
    clip = (clip_row_value, clip_row_norm)
    kind = "partial_rowwise_lamb"
    return _moment_optimizer(kind, learning_rate, moments, bias_correction, clip)


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
    numbers += _clips(clip_row_value, clip_row_norm)
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
    numbers += _clips(clip_row_value, clip_row_norm)
    return Functor("lion", learning_rate, numbers, (("mu", 0.0),))


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
    check_number("jde.optim.rmsprop", "initial_scale", initial_scale)
    numbers = (
        ("decay", decay),
        ("eps", eps),
        _flag("rmsprop", "eps_in_sqrt", eps_in_sqrt),
    )
    numbers += _clips(clip_row_value, clip_row_norm)
    return Functor("rmsprop", learning_rate, numbers, (("nu", initial_scale),))


def rowwise_rmsprop(
    learning_rate: LearningRate,
    decay: float = 0.99,
    eps: float = 1e-8,
    *,
    clip_row_value: float = 0.0,
    clip_row_norm: float = 0.0,
) -> Functor:
    """Makes RMSprop with one mean of squares a row: ``rmsprop`` over ``mean(g * g)``.

    State ``nu``, one float32 a row.

    Args:
      learning_rate: a number, or an optax schedule of the updates made so far.
      decay: of the mean of squares, in [0, 1).
      eps: added to the root.
      clip_row_value: see ``sgd``.
      clip_row_norm: see ``sgd``.
    """
    numbers = (("decay", decay), ("eps", eps))
    numbers += _clips(clip_row_value, clip_row_norm)
    return Functor("rowwise_rmsprop", learning_rate, numbers, (("nu", 0.0),))


def ftrl(
    learning_rate: LearningRate,
    l1: float = 0.0,
    l2: float = 0.0,
    beta: float = 0.0,
    *,
    l2_shrinkage: float = 0.0,
    lr_power: float = -0.5,
    initial_accumulator_value: float = 0.1,
    z_init: Literal["zero", "consistent"] = "zero",
    clip_row_value: float = 0.0,
    clip_row_norm: float = 0.0,
) -> Functor:
    """Makes FTRL-proximal (McMahan et al., 2013), which makes sparse rows.

    First ``z += g + 2 * l2_shrinkage * row - ((n + g * g)**p - n**p) / learning_rate *
    row`` and ``n += g * g``, with ``p = -lr_power``. Then the row is 0 where ``abs(z)
    <= l1``. Elsewhere it is ``-(z - sign(z) * l1) / ((beta + n**p) / learning_rate +
    l2)``. States ``z`` and ``n``, float32[dim] each a row.

    The first update of a row replaces its initial values, whatever these are. So give
    the table ``jde.initializers.zeros()``, or take ``z_init="consistent"``. At a
    learning rate of 0 rows and states stay.

    Args:
      learning_rate: a number, or an optax schedule of the updates made so far.
      l1: makes columns exactly zero.
      l2: TensorFlow's is half of this one.
      beta: of the paper; TensorFlow's kernels have 0, Keras' beta is this one.
      l2_shrinkage: TensorFlow's, of the gradient that ``z`` takes.
      lr_power: at most 0; -0.5 makes roots.
      initial_accumulator_value: what ``n`` begins with.
      z_init: ``"zero"``, or ``"consistent"``: ``z`` begins as what keeps the row where
        it is, for warm rows.
      clip_row_value: see ``sgd``.
      clip_row_norm: see ``sgd``.
    """
    _choice("ftrl", "z_init", z_init, ("zero", "consistent"))
    numbers = (
        ("l1", l1),
        ("l2", l2),
        ("beta", beta),
        ("l2_shrinkage", l2_shrinkage),
        ("lr_power", lr_power),
        ("initial_accumulator_value", initial_accumulator_value),
        ("consistent", float(z_init == "consistent")),
        *_clips(clip_row_value, clip_row_norm),
    )
    states = (("z", 0.0), ("n", initial_accumulator_value))
    return Functor("ftrl", learning_rate, numbers, states)
