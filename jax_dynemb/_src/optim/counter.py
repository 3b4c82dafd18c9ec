# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Weight decay and steps of row-wise Adagrad that follow from a row's count."""

from __future__ import annotations

import dataclasses
from typing import Literal

from jax_dynemb._src.optim.numbers import keep_number
from jax_dynemb._src.optim.options import Numbers, check_choice, check_start

# In the order of the numbers in core/optimizers/counter.h.
_DECAYS = ("none", "l2", "decoupled", "adagradw_root", "adagradw_capped")
_STEPS = ("equal", "increase", "decrease", "sgd")


@dataclasses.dataclass(frozen=True)
class Counter:
    """Makes weight decay and step of a row follow its count (FBGEMM's COUNTER).

    ``count`` is the number of updates of the row, those of long ago counting less.

    Attributes:
      half_life: updates of the table after which an update of the row counts half. 0:
        only the latest one counts. None: all count.
      decay: what ``weight_decay`` does. ``"l2"`` and ``"decoupled"``: as without a
        counter, times ``half_life / count``. ``"adagradw_root"``: decoupled, also for
        the updates that the row was absent from, and its step times ``sqrt(count)``.
        ``"adagradw_capped"``: likewise, with the step ``min(learning_rate * count,
        bound)`` over the root. These two need ``half_life=None``.
      step: of rows whose count is above ``threshold``. ``"increase"``: times
        ``(max_count / (count + 1))**bound``, from 1 to 10. ``"decrease"``: times
        ``((count + 1) / max_count)**bound``, from 0.1 to 1. ``"sgd"``: ``learning_rate
        / (sqrt(bound * count) + eps)``. ``"equal"``: that of all others.
      start: updates of the table before decay and step follow the count.
      bound: see ``decay`` and ``step``.
      threshold: see ``step``.
      max_count: see ``step``; FBGEMM measures it as the run goes on.
    """

    half_life: float | None = None
    decay: Literal["none", "l2", "decoupled", "adagradw_root", "adagradw_capped"] = (
        "none"
    )
    step: Literal["equal", "increase", "decrease", "sgd"] = "equal"
    start: int = 0
    bound: float = 1.0
    threshold: float = 0.0
    max_count: float = 1.0

    def __post_init__(self) -> None:
        """Checks the choices, the numbers, and that they go together."""
        owner = "jde.optim.Counter"
        for name in ("start", "bound", "threshold", "max_count"):
            keep_number(self, "jde.optim.Counter", name)
        if self.half_life is not None:
            keep_number(self, "jde.optim.Counter", "half_life")
        check_start("Counter", "start", self.start)
        check_choice("Counter", "decay", self.decay, _DECAYS)
        check_choice("Counter", "step", self.step, _STEPS)
        forever = self.half_life is None
        if forever and self.decay in ("l2", "decoupled"):
            raise ValueError(
                f"{owner}: decay={self.decay!r} is divided by how many half-lives a "
                "row has occurred for, so it needs a half_life. FBGEMM takes one below "
                "0 there, which makes rows grow"
            )
        if not forever and self.decay.startswith("adagradw"):
            raise ValueError(
                f"{owner}: decay={self.decay!r} counts all updates of a row; set "
                "half_life=None"
            )

    @property
    def numbers(self) -> Numbers:
        """Names the hyper-parameters as the kernel does."""
        return (
            ("half_life", self.half_life or 0.0),
            ("counts_forever", float(self.half_life is None)),
            ("mode", float(_DECAYS.index(self.decay) + 8 * _STEPS.index(self.step))),
            ("start", float(self.start)),
            ("bound", self.bound),
            ("threshold", self.threshold),
            ("max_count", self.max_count),
        )
