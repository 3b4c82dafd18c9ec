# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Memory that a plan leaves to everything that is no table."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Self

import jax

from jax_dynemb._src.kind_of import kind_of
from jax_dynemb._src.planner.checks import check_number, check_whole

_WHERE = "StorageReservation"


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
        check_number(_WHERE, "percentage", self.percentage, positive=False)
        check_whole(_WHERE, "dense", self.dense, 0)
        if not self.percentage < 1:
            raise ValueError(
                f"{_WHERE}: percentage is a part from 0 to below 1, not "
                f"{self.percentage}."
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

        Raises:
          TypeError: a leaf is no array.
        """
        check_whole(_WHERE, "optimizer_copies", optimizer_copies, 0)
        leaves = jax.tree.leaves(parameters)
        if wrong := [x for x in leaves if not hasattr(x, "dtype")]:
            raise TypeError(
                f"{_WHERE}.for_model takes arrays or shapes, not {kind_of(wrong[0])}: "
                "write for_model(jax.eval_shape(init)) or nnx.state(model, nnx.Param)."
            )
        size = sum(math.prod(x.shape) * x.dtype.itemsize for x in leaves)
        return cls(percentage, size * (2 + optimizer_copies))  # and the gradients

    def left(self, memory: int) -> int:
        """Computes the bytes that are left for tables and batches."""
        return int(memory * (1 - self.percentage)) - self.dense
