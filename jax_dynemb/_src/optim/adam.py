# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Optimizers with two moments of the gradient: Adam and its kin."""

from __future__ import annotations

from typing import Literal

from jax_dynemb._src.optim.functor import Functor
from jax_dynemb._src.optim.fused import Fused
from jax_dynemb._src.optim.numbers import LearningRate
from jax_dynemb._src.optim.options import LAST, Clip, Decay, Optimizer, check_choice


def adam(
    learning_rate: LearningRate,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    *,
    bias_correction: Literal["table", "row", "none"] = "table",
    catch_up: Literal["decay", "smart"] | None = None,
    catch_up_floor: float = 0.0,
    catch_up_start: int = 0,
    catch_up_forward: bool = False,
    clip_row_value: float = 0.0,
    clip_row_norm: float = 0.0,
) -> Optimizer:
    """Makes Adam (Kingma and Ba, 2015), with decoupled weight decay if given (AdamW).

    Only touched rows move (lazy Adam). States ``mu`` and ``nu``, float32[dim] each a
    row; with ``bias_correction="row"`` also ``count``, one int32 a row.

    ``catch_up`` makes up for the updates of the table that a row was absent from, when
    its next one comes. A lookup before that reads the row as it is, unless
    ``catch_up_forward`` is set. State ``last`` then, one int32 a row.

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
      catch_up: ``"decay"``: the decay of the row. ``"smart"``: also that of both
        moments, and the steps that the first would have made, divided by today's root.
        That is SmartDecaySparseAdam of Caffe2 and OneEmbedding, and needs
        ``bias_correction="none"``. None: absent rows rest.
      catch_up_floor: the least factor of a decay that ``"decay"`` makes up for.
      catch_up_start: the first update of the table that makes up for others, counted
        from 1; up to 2**24. What a row missed before its first update from then on is
        not made up for.
      catch_up_forward: whether a lookup reads rows with the decay that is due, as
        FBGEMM's does. It reads them a second time for that, and takes the learning
        rate of the optimizer. Not on a mesh; ``find`` reads rows as they are stored.
      clip_row_value: see ``sgd``.
      clip_row_norm: see ``sgd``.
    """
    modes = ("table", "row", "none")
    check_choice("adam", "bias_correction", bias_correction, modes)
    clip = Clip(clip_row_value, clip_row_norm)
    due = Decay(catch_up_floor, catch_up_start, catch_up_forward)
    due.check("adam", catch_up == "decay")
    if bias_correction == "table" and not clip.is_set("adam") and catch_up is None:
        return Fused(
            "adam", learning_rate, eps=eps, b1=b1, b2=b2, weight_decay=weight_decay
        )
    numbers = _moments(eps, b1, b2, weight_decay, bias_correction) + clip.numbers
    states = (("mu", 0.0), ("nu", 0.0))
    if catch_up is not None:
        kind = _caught_up(catch_up, bias_correction)
        # Each kind has one number that the other lacks.
        if kind == "smart_adam":
            numbers = tuple(pair for pair in numbers if pair[0] != "corrects")
        else:
            numbers += due.numbers
        initial = (*states, LAST)
        return Functor(kind, learning_rate, numbers, initial, due.forward)
    if bias_correction == "row":
        states += (("count", 0.0),)
        return Functor("row_counted_adam", learning_rate, numbers, states)
    return Functor("adam", learning_rate, numbers, states)


def _caught_up(catch_up: str, bias_correction: str) -> str:
    """Names the kind of Adam that catches up; refuses what it cannot correct."""
    check_choice("adam", "catch_up", catch_up, ("decay", "smart"))
    if catch_up == "smart" and bias_correction != "none":
        raise ValueError(
            "jde.optim.adam: catch_up='smart' has no bias correction; set "
            "bias_correction='none'"
        )
    if bias_correction == "row":
        raise ValueError(
            "jde.optim.adam: catch_up='decay' goes with bias_correction='table' or "
            "'none', not with 'row'"
        )
    return "smart_adam" if catch_up == "smart" else "caught_up_adam"


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
    given: tuple[float, float, float, float, str],
    clip: Clip,
) -> Functor:
    check_choice(kind, "bias_correction", given[-1], ("table", "none"))
    numbers = _moments(*given) + clip.numbers
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
    numbers = (eps, b1, b2, weight_decay, bias_correction)
    clip = Clip(clip_row_value, clip_row_norm)
    return _moment_optimizer("partial_rowwise_adam", learning_rate, numbers, clip)


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
    numbers = (eps, b1, b2, weight_decay, bias_correction)
    clip = Clip(clip_row_value, clip_row_norm)
    return _moment_optimizer("lamb", learning_rate, numbers, clip)


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
    numbers = (eps, b1, b2, weight_decay, bias_correction)
    clip = Clip(clip_row_value, clip_row_norm)
    return _moment_optimizer("partial_rowwise_lamb", learning_rate, numbers, clip)
