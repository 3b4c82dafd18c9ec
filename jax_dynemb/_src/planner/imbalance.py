# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""How unevenly devices are loaded."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Self


@dataclasses.dataclass(frozen=True)
class Imbalance:
    """Compares the shares that devices have with equal ones.

    All but the first are 0 for equal loads, and 1 where one device has everything.

    Attributes:
      max_over_mean: the largest load, as a multiple of the mean.
      total_variation: the largest difference of a share from an equal one.
      total_distance: the sum of the differences.
      chi_squared: the sum of their squares.
      kl_divergence: the relative entropy of the shares.
    """

    max_over_mean: float = 1.0
    total_variation: float = 0.0
    total_distance: float = 0.0
    chi_squared: float = 0.0
    kl_divergence: float = 0.0

    @classmethod
    def of(cls, loads: Sequence[float]) -> Self:
        """Computes the numbers of some loads, which are not below 0."""
        count, total = len(loads), sum(loads)
        if count < 2 or not 0 < total < math.inf:
            return cls()
        equal = 1 / count
        shares = [load / total for load in loads]
        apart = [abs(share - equal) for share in shares]
        entropy = math.fsum(s * math.log(s * count) for s in shares if s > 0)
        return cls(
            max(shares) * count,
            max(apart) / (1 - equal),
            math.fsum(apart) / (2 * (1 - equal)),
            math.fsum(x * x for x in apart) * count / (count - 1),
            max(0.0, entropy) / math.log(count),
        )
