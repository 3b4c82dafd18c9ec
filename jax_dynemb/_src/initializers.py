# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Initialisers: the first value of a row, a function of (seed, table, key, column).

The formulas are in core/initializer.h and give the same bits on every platform. Each
class names its routine there (`kernel`) and knows the parameters it takes.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from typing import ClassVar

import numpy as np

_STANDARD_NORMAL = statistics.NormalDist()


@dataclasses.dataclass(frozen=True)
class Initializer:
    """Describes the first values of rows; make one with the functions below."""

    kind: ClassVar[str] = ""
    kernel: ClassVar[str] = ""

    def kernel_parameters(self) -> tuple[float, ...]:
        """Returns the numbers that core/initializer.h takes, in its order."""
        return ()


def _check_finite(kind: str, **numbers: float) -> None:
    for name, number in numbers.items():
        if not np.abs(number) <= np.finfo(np.float32).max:
            raise ValueError(
                f"{kind}: {name} must be a finite float32, not {number}: every row "
                "would begin with it."
            )


@dataclasses.dataclass(frozen=True)
class Uniform(Initializer):
    """Draws columns evenly from [lo, hi)."""

    kind: ClassVar[str] = "uniform"
    kernel: ClassVar[str] = "uniform"
    lo: float
    hi: float

    def __post_init__(self) -> None:
        """Checks the bounds."""
        _check_finite("uniform", lo=self.lo, hi=self.hi)
        if not self.lo <= self.hi:
            raise ValueError(f"uniform needs lo <= hi, not {self.lo} and {self.hi}")

    def kernel_parameters(self) -> tuple[float, ...]:
        """Returns the lower bound and the width."""
        lo, hi = np.float32(self.lo), np.float32(self.hi)
        return float(lo), float(hi - lo)


@dataclasses.dataclass(frozen=True)
class Normal(Initializer):
    """Draws columns from a normal distribution."""

    kind: ClassVar[str] = "normal"
    kernel: ClassVar[str] = "normal"
    stddev: float
    mean: float

    def __post_init__(self) -> None:
        """Checks the numbers."""
        _check_finite(self.kind, stddev=self.stddev, mean=self.mean)
        if not self.stddev > 0.0:
            raise ValueError(f"stddev must be positive, not {self.stddev}")

    def kernel_parameters(self) -> tuple[float, ...]:
        """Returns mean, deviation, and a truncation to everything."""
        return self.mean, self.stddev, 0.0, 1.0, -math.inf, math.inf


@dataclasses.dataclass(frozen=True)
class TruncatedNormal(Normal):
    """Draws columns from a normal distribution, within [lower, upper]."""

    kind: ClassVar[str] = "truncated_normal"
    lower: float
    upper: float

    def __post_init__(self) -> None:
        """Checks the bounds too."""
        super().__post_init__()
        if not self.lower < self.upper:
            raise ValueError(
                f"truncated_normal needs lower < upper, not {self.lower} and "
                f"{self.upper}"
            )

    def kernel_parameters(self) -> tuple[float, ...]:
        """Returns mean, deviation, the probabilities that the bounds cut, and both."""
        p_lo, p_hi = (
            np.float32(_STANDARD_NORMAL.cdf((bound - self.mean) / self.stddev))
            for bound in (self.lower, self.upper)
        )
        span = float(p_hi - p_lo)
        return self.mean, self.stddev, float(p_lo), span, self.lower, self.upper


@dataclasses.dataclass(frozen=True)
class Constant(Initializer):
    """Makes every column ``value``."""

    kind: ClassVar[str] = "constant"
    kernel: ClassVar[str] = "constant"
    value: float

    def __post_init__(self) -> None:
        """Checks the value."""
        _check_finite("constant", value=self.value)

    def kernel_parameters(self) -> tuple[float, ...]:
        """Returns the value."""
        return (self.value,)


@dataclasses.dataclass(frozen=True)
class Debug(Initializer):
    """Makes every column the key modulo 100000."""

    kind: ClassVar[str] = "debug"
    kernel: ClassVar[str] = "debug"


@dataclasses.dataclass(frozen=True)
class Given(Initializer):
    """Gives no values: the call that follows writes the rows. Not for users."""

    kind: ClassVar[str] = "given"
    kernel: ClassVar[str] = "given"


@dataclasses.dataclass(frozen=True)
class DefaultUniform:
    """Draws evenly within ±1/sqrt(capacity), once a table says its capacity."""

    def for_capacity(self, capacity: int) -> Uniform:
        """Makes the initialiser of a table with this capacity."""
        bound = 1.0 / math.sqrt(capacity)
        return Uniform(-bound, bound)


def uniform(
    lo: float | None = None, hi: float | None = None
) -> Uniform | DefaultUniform:
    """Draws each column evenly from [lo, hi); ±1/sqrt(capacity) if neither is given.

    The default is that of TorchRec and DynamicEmb.

    Args:
      lo: the lower bound.
      hi: the upper bound.

    Raises:
      ValueError: only one of them is given, they are in the wrong order, or one is
        not finite.
    """
    if lo is None and hi is None:
        return DefaultUniform()
    if lo is None or hi is None:
        raise ValueError("uniform needs both lo and hi, or neither")
    return Uniform(float(lo), float(hi))


def normal(stddev: float = 1.0, mean: float = 0.0) -> Normal:
    """Draws each column from a normal distribution.

    Args:
      stddev: its standard deviation.
      mean: its mean.

    Raises:
      ValueError: the standard deviation is not above 0, or a number is not finite.
    """
    return Normal(float(stddev), float(mean))


def truncated_normal(
    stddev: float = 1.0,
    mean: float = 0.0,
    lower: float | None = None,
    upper: float | None = None,
) -> TruncatedNormal:
    """Draws each column from a normal distribution, within [lower, upper].

    Args:
      stddev: its standard deviation.
      mean: its mean.
      lower: the lower bound; two standard deviations below the mean if None.
      upper: the upper bound; two standard deviations above the mean if None.

    Raises:
      ValueError: the standard deviation is not above 0, or the bounds are reversed.
    """
    lower = mean - 2.0 * stddev if lower is None else lower
    upper = mean + 2.0 * stddev if upper is None else upper
    return TruncatedNormal(float(stddev), float(mean), float(lower), float(upper))


def constant(value: float) -> Constant:
    """Makes every column ``value``."""
    return Constant(float(value))


def zeros() -> Constant:
    """Makes every column 0."""
    return Constant(0.0)


def debug() -> Debug:
    """Makes every column the key modulo 100000, so that a row tells its key."""
    return Debug()
