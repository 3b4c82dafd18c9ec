# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The ranges of hyper-parameters, as far as they are known while tracing."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

LearningRate = float | Callable[[Any], Any]

_LARGEST = float(np.finfo(np.float32).max)
_AT_MOST_ZERO = ("lr_power",)  # all other numbers are 0 or more
_DECAYS = ("b1", "b2", "momentum", "decay")


def known_number(x: Any) -> float | None:
    """A Python or NumPy number, or a scalar array that has a value; else None."""
    if isinstance(x, (bool, np.bool_, Tracer)):
        return None
    if isinstance(x, numbers.Real):
        try:
            return float(x)
        except OverflowError:  # an int with more digits than a float can count
            return math.inf if cast(int, x) > 0 else -math.inf
    if isinstance(x, (np.ndarray, jax.Array)) and x.shape == ():
        return float(x) if x.dtype.kind in "iuf" or x.dtype.name == "bfloat16" else None
    return None


def check_number(owner: str, field: str, x: Any) -> None:
    """Refuses other than numbers (TypeError), and those out of range (ValueError).

    Of a traced scalar only shape and dtype are looked at.
    """
    if isinstance(x, Tracer) and x.shape == () and x.dtype.kind in "iufV":
        return
    number = known_number(x)
    if number is None:
        raise TypeError(
            f"{owner}: {field} must be a number, not {x!r}{_hint(field, x)}"
        )
    if not math.isfinite(number):
        raise ValueError(f"{owner}: {field} must be finite, not {number}")
    if abs(number) > _LARGEST:
        raise ValueError(
            f"{owner}: {field} must be a float32, at most {_LARGEST:.3g}, not {number}"
        )
    if field in _DECAYS:
        if not 0 <= number < 1:
            raise ValueError(f"{owner}: {field} must lie in [0, 1), but is {number}")
    elif field in _AT_MOST_ZERO:
        if number > 0:
            raise ValueError(f"{owner}: {field} must not be positive, but is {number}")
    elif number < 0:
        raise ValueError(f"{owner}: {field} must not be negative, but is {number}")


def constant_number(owner: str, field: str, x: Any) -> float:
    """Returns a number as ``check_number`` takes it; TypeError for a traced one."""
    if isinstance(x, Tracer):
        raise TypeError(
            f"{owner}: {field} is traced, but an optimizer is made once, outside of "
            "jit. Give it a number or a schedule; traced numbers go to "
            f"apply_gradients(..., hyper={{table: {{'{field}': ...}}}})."
        )
    check_number(owner, field, x)
    number = known_number(x)
    assert number is not None  # or check_number had refused it
    return number


def keep_number(options: Any, owner: str, field: str) -> None:
    """Checks a field of a frozen dataclass, and stores it as a float."""
    number = constant_number(owner, field, getattr(options, field))
    object.__setattr__(options, field, number)


def rate_at(owner: str, rate: LearningRate, count: Any) -> Any:
    """Returns the learning rate after ``count`` updates; TypeError if it is no number.

    Only shape and dtype are looked at: to read the number would wait for a device.
    """
    if not callable(rate):
        return rate
    given = rate(count)
    array = given if isinstance(given, jax.Array) else np.asarray(given)
    if array.shape != () or not jnp.issubdtype(array.dtype, jnp.number):
        raise TypeError(
            f"{owner}: the schedule of its learning rate must give one number, not "
            f"{given!r}"
        )
    return given


def _hint(field: str, x: Any) -> str:
    if field == "learning_rate":
        return ", e.g. 0.01"
    if not callable(x):
        return ""
    return (
        ". Only the learning rate takes a schedule; a number that changes goes to "
        f"apply_gradients(..., hyper={{table: {{'{field}': ...}}}})"
    )
