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
    """Base of all initialisers; make one with the functions below."""

    kind: ClassVar[str] = ""
    kernel: ClassVar[str] = ""

    def kernel_parameters(self) -> tuple[float, ...]:
        """Returns the numbers that core/initializer.h takes, in its order."""
        return ()


@dataclasses.dataclass(frozen=True)
class Uniform(Initializer):
    """Uniform in [lo, hi)."""

    kind: ClassVar[str] = "uniform"
    kernel: ClassVar[str] = "uniform"
    lo: float
    hi: float

    def __post_init__(self) -> None:
        """Checks the bounds."""
        if not self.lo <= self.hi:
            raise ValueError(f"uniform needs lo <= hi, not {self.lo} and {self.hi}")

    def kernel_parameters(self) -> tuple[float, ...]:
        """Returns the lower bound and the width."""
        lo, hi = np.float32(self.lo), np.float32(self.hi)
        return float(lo), float(hi - lo)


@dataclasses.dataclass(frozen=True)
class Normal(Initializer):
    """Normal."""

    kind: ClassVar[str] = "normal"
    kernel: ClassVar[str] = "normal"
    stddev: float
    mean: float

    def __post_init__(self) -> None:
        """Checks the standard deviation."""
        if not self.stddev > 0.0:
            raise ValueError(f"stddev must be positive, not {self.stddev}")

    def kernel_parameters(self) -> tuple[float, ...]:
        """Truncation to everything."""
        return self.mean, self.stddev, 0.0, 1.0, -math.inf, math.inf


@dataclasses.dataclass(frozen=True)
class TruncatedNormal(Normal):
    """Normal, conditioned on [lower, upper]."""

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
        """The probabilities below and between the bounds, and the bounds."""
        p_lo, p_hi = (
            np.float32(_STANDARD_NORMAL.cdf((bound - self.mean) / self.stddev))
            for bound in (self.lower, self.upper)
        )
        span = float(p_hi - p_lo)
        return self.mean, self.stddev, float(p_lo), span, self.lower, self.upper


@dataclasses.dataclass(frozen=True)
class Constant(Initializer):
    """Every column is ``value``."""

    kind: ClassVar[str] = "constant"
    kernel: ClassVar[str] = "constant"
    value: float

    def kernel_parameters(self) -> tuple[float, ...]:
        """Returns the value."""
        return (self.value,)


@dataclasses.dataclass(frozen=True)
class Debug(Initializer):
    """Every column is the key modulo 100000."""

    kind: ClassVar[str] = "debug"
    kernel: ClassVar[str] = "debug"


@dataclasses.dataclass(frozen=True)
class Given(Initializer):
    """No values: the call that follows writes the rows. Not for users."""

    kind: ClassVar[str] = "given"
    kernel: ClassVar[str] = "given"


@dataclasses.dataclass(frozen=True)
class DefaultUniform:
    """Uniform in ±1/sqrt(capacity), once a table says its capacity."""

    def for_capacity(self, capacity: int) -> Uniform:
        """Makes the initialiser of a table with this capacity."""
        bound = 1.0 / math.sqrt(capacity)
        return Uniform(-bound, bound)


def uniform(
    lo: float | None = None, hi: float | None = None
) -> Uniform | DefaultUniform:
    """Uniform in [lo, hi); ±1/sqrt(capacity) if neither is given.

    The default is that of TorchRec and DynamicEmb.
    """
    if lo is None and hi is None:
        return DefaultUniform()
    if lo is None or hi is None:
        raise ValueError("uniform needs both lo and hi, or neither")
    return Uniform(float(lo), float(hi))


def normal(stddev: float = 1.0, mean: float = 0.0) -> Normal:
    """Normal with this standard deviation and mean."""
    return Normal(float(stddev), float(mean))


def truncated_normal(
    stddev: float = 1.0,
    mean: float = 0.0,
    lower: float | None = None,
    upper: float | None = None,
) -> TruncatedNormal:
    """Normal, conditioned on [lower, upper]; two standard deviations by default."""
    lower = mean - 2.0 * stddev if lower is None else lower
    upper = mean + 2.0 * stddev if upper is None else upper
    return TruncatedNormal(float(stddev), float(mean), float(lower), float(upper))


def constant(value: float) -> Constant:
    """Every column is ``value``."""
    return Constant(float(value))


def zeros() -> Constant:
    """Every column is 0."""
    return Constant(0.0)


def debug() -> Debug:
    """Every column is the key modulo 100000: shows which key a row belongs to."""
    return Debug()
