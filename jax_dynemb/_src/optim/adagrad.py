# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Optimizers that divide by the root of all squares so far: Adagrad and its kin."""

from __future__ import annotations

import dataclasses
from typing import Literal

from jax_dynemb._src.optim.counter import Counter
from jax_dynemb._src.optim.functor import Functor
from jax_dynemb._src.optim.fused import Fused
from jax_dynemb._src.optim.numbers import LearningRate, constant_number, keep_number
from jax_dynemb._src.optim.options import (
    LAST,
    Clip,
    Decay,
    Numbers,
    Optimizer,
    any_set,
    check_choice,
)


@dataclasses.dataclass(frozen=True)
class CowClip:
    """Bounds the step of a row by its norm and by how often it occurs.

    A row's gradient is scaled down to the norm ``count * max(coefficient * norm(row),
    lower_bound)``. ``count`` is the number of updates of the row, those of long ago
    counting less (Zheng et al., CowClip, AAAI 2023; FBGEMM's COWCLIP).

    Attributes:
      coefficient: of the row's norm.
      lower_bound: of what a norm of 0 would allow.
      half_life: updates of the table after which an update of the row counts half;
        None: it counts as long as the row lives.
    """

    coefficient: float
    lower_bound: float = 0.0
    half_life: float | None = None

    def __post_init__(self) -> None:
        """Checks the three numbers."""
        for name in ("coefficient", "lower_bound"):
            keep_number(self, "jde.optim.CowClip", name)
        if self.half_life is not None:
            keep_number(self, "jde.optim.CowClip", "half_life")
        if self.half_life == 0:
            raise ValueError(
                "jde.optim.CowClip: half_life must be above 0; None forgets nothing"
            )

    @property
    def numbers(self) -> Numbers:
        """Names the hyper-parameters as the kernel does; 0 stands for no half-life."""
        return (
            ("half_life", self.half_life or 0.0),
            ("coefficient", self.coefficient),
            ("lower_bound", self.lower_bound),
        )


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
    clip = Clip(clip_row_value, clip_row_norm)
    if not clip.is_set("adagrad"):
        return Fused("adagrad", learning_rate, eps=eps, initial_accumulator_value=start)
    start = constant_number("jde.optim.adagrad", "initial_accumulator_value", start)
    numbers = (("eps", eps), *clip.numbers)
    return Functor("adagrad", learning_rate, numbers, (("sum_of_squares", start),))


def rowwise_adagrad(
    learning_rate: LearningRate,
    eps: float = 1e-8,
    initial_accumulator_value: float = 0.0,
    *,
    weight_decay: float = 0.0,
    weight_decay_mode: Literal["decoupled", "l2"] = "decoupled",
    max_norm: float = 0.0,
    catch_up: Literal["decay"] | None = None,
    catch_up_floor: float = 0.0,
    catch_up_start: int = 0,
    catch_up_forward: bool = False,
    cow_clip: CowClip | None = None,
    counter: Counter | None = None,
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

    ``catch_up="decay"`` decays a row also for the updates of the table that it was
    absent from, when its next one comes: FBGEMM's DECOUPLE_GLOBAL. A lookup before
    that reads the row as it is, unless ``catch_up_forward`` is set. State ``last``
    then, one int32 a row.

    ``cow_clip`` bounds the step by how often a row occurs, and with ``counter`` decay
    and step follow from that: states ``count``, one float32 a row, and ``last``.

    Args:
      learning_rate: a number, or an optax schedule of the updates made so far.
      eps: added to the root.
      initial_accumulator_value: what ``sum_of_squares`` begins with.
      weight_decay: of the row; 0: none.
      weight_decay_mode: ``"decoupled"`` or ``"l2"``.
      max_norm: a new row with a larger norm is scaled down to it; 0: any.
      catch_up: ``"decay"``, or None: absent rows rest.
      catch_up_floor: the least factor of a decay that is made up for.
      catch_up_start: the first update of the table that makes up for others, counted
        from 1; up to 2**24. What a row missed before its first update from then on is
        not made up for.
      catch_up_forward: whether a lookup reads rows with the decay that is due, as
        FBGEMM's does. It reads them a second time for that, and takes the learning
        rate of the optimizer. Not on a mesh; ``find`` reads rows as they are stored.
      cow_clip: a ``CowClip``, or None.
      counter: a ``Counter``, or None; it says what ``weight_decay`` does.
      clip_row_value: see ``sgd``.
      clip_row_norm: see ``sgd``.
    """
    kind, start = "rowwise_adagrad", initial_accumulator_value
    check_choice(kind, "weight_decay_mode", weight_decay_mode, ("decoupled", "l2"))
    clip = Clip(clip_row_value, clip_row_norm)
    options = (("weight_decay", weight_decay), ("max_norm", max_norm), *clip.numbers)
    due = Decay(catch_up_floor, catch_up_start, catch_up_forward)
    due.check(kind, catch_up == "decay")
    _check_kind("cow_clip", cow_clip, CowClip)
    _check_kind("counter", counter, Counter)
    others = (catch_up, cow_clip, counter)
    is_plain = not any_set(kind, *options) and all(x is None for x in others)
    if is_plain:
        return Fused(kind, learning_rate, eps=eps, initial_accumulator_value=start)
    start = constant_number(f"jde.optim.{kind}", "initial_accumulator_value", start)
    is_l2 = weight_decay_mode == "l2"
    numbers = (
        ("eps", eps),
        ("l2", weight_decay if is_l2 else 0.0),
        ("weight_decay", 0.0 if is_l2 else weight_decay),
    )
    states = (("sum_of_squares", start),)
    if counter is not None:
        if is_l2 or max_norm or catch_up is not None or cow_clip is not None:
            raise ValueError(
                f"jde.optim.{kind}: counter goes with weight_decay, but not with "
                "weight_decay_mode, max_norm, catch_up or cow_clip; Counter(decay=) "
                "says what the decay does"
            )
        numbers = (("eps", eps), ("weight_decay", weight_decay))
        numbers += (*counter.numbers, *clip.numbers)
        states += (("count", 0.0), LAST)
        return Functor("counter_rowwise_adagrad", learning_rate, numbers, states)
    if cow_clip is not None:
        if catch_up is not None or max_norm:
            raise ValueError(
                f"jde.optim.{kind}: cow_clip goes with weight decay, but not with "
                "catch_up or max_norm; leave these out"
            )
        states += (("count", 0.0), LAST)
        numbers += (*cow_clip.numbers, *clip.numbers)
        return Functor("cow_clip_rowwise_adagrad", learning_rate, numbers, states)
    numbers += (("max_norm", max_norm), *clip.numbers)
    if catch_up is None:
        return Functor(kind, learning_rate, numbers, states)
    check_choice(kind, "catch_up", catch_up, ("decay",))
    if is_l2:
        raise ValueError(
            f"jde.optim.{kind}: catch_up='decay' makes up for decoupled decay; set "
            "weight_decay_mode='decoupled'"
        )
    numbers += due.numbers
    kind, initial = f"caught_up_{kind}", (*states, LAST)
    return Functor(kind, learning_rate, numbers, initial, due.forward)


def _check_kind(name: str, given: object, wanted: type) -> None:
    if given is not None and not isinstance(given, wanted):
        raise TypeError(
            f"jde.optim.rowwise_adagrad: {name} must be a jde.optim.{wanted.__name__} "
            f"or None, not {given!r}"
        )


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
    check_choice("ftrl", "z_init", z_init, ("zero", "consistent"))
    numbers = (
        ("l1", l1),
        ("l2", l2),
        ("beta", beta),
        ("l2_shrinkage", l2_shrinkage),
        ("lr_power", lr_power),
        ("initial_accumulator_value", initial_accumulator_value),
        ("consistent", float(z_init == "consistent")),
        *Clip(clip_row_value, clip_row_norm).numbers,
    )
    states = (("z", 0.0), ("n", initial_accumulator_value))
    return Functor("ftrl", learning_rate, numbers, states)
