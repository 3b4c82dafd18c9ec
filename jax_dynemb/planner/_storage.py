# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Memory that a plan leaves to everything that is no table."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Self

import jax


@dataclasses.dataclass(frozen=True)
class StorageReservation:
    """Reserves a part of each device's memory.

    Attributes:
      percentage: of the memory, 0 to 1: activations, programs, fragmentation.
      dense: bytes besides, of parameters that every device has a copy of.
    """

    percentage: float = 0.15
    dense: int = 0

    def __post_init__(self) -> None:
        """Checks the part.

        Raises:
          ValueError: it leaves nothing, or is below 0.
        """
        if not 0 <= self.percentage < 1 or self.dense < 0:
            raise ValueError(
                f"StorageReservation({self.percentage}, {self.dense}): percentage is "
                "a part from 0 to below 1, and dense a number of bytes."
            )

    @classmethod
    def for_model(
        cls, parameters: Any, optimizer_copies: int = 2, percentage: float = 0.15
    ) -> Self:
        """Reserves what the dense part of a model takes.

        Args:
          parameters: a pytree of arrays or of ``jax.ShapeDtypeStruct``, such as
            ``jax.eval_shape(init)`` returns.
          optimizer_copies: arrays of their size that the optimizer keeps; 2 for Adam.
          percentage: of the memory besides.
        """
        leaves = jax.tree.leaves(parameters)
        size = sum(math.prod(x.shape) * x.dtype.itemsize for x in leaves)
        return cls(percentage, size * (2 + optimizer_copies))  # and the gradients

    def left(self, memory: int) -> int:
        """Computes the bytes that are left for tables and batches."""
        return int(memory * (1 - self.percentage)) - self.dense
