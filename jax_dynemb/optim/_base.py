# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Declares what a table needs of its optimizer."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Protocol, runtime_checkable

import jax


@dataclasses.dataclass(frozen=True)
class StateSpec:
    """Describes one optimizer state of a row.

    Attributes:
      shape: of one row: ``(dim,)``, or ``()`` for one number a row.
      initial: what it holds when the row is new.
      dtype: float32, or int32 for one that counts.
      stored: the dtype of its array where that is another one, bfloat16; else "".
    """

    shape: tuple[int, ...]
    initial: float
    dtype: str = "float32"
    stored: str = ""

    @property
    def array_dtype(self) -> str:
        """Names the dtype of the array that holds it."""
        return self.stored or self.dtype

    @property
    def nbytes(self) -> int:
        """Counts the bytes of it that a row takes."""
        return (2 if self.stored else 4) * math.prod(self.shape)


@dataclasses.dataclass(frozen=True)
class NoUpdate:
    """Stands for no optimizer: an update leaves the table as it is.

    Attributes:
      kind: "none".
      learning_rate: of no meaning.
    """

    kind: str = dataclasses.field(default="none", init=False)
    learning_rate: float = dataclasses.field(default=0.0, init=False)

    def states(self, dim: int) -> dict[str, StateSpec]:
        """Returns no states."""
        del dim
        return {}

    def hyper_parameters(self, count: jax.Array) -> dict[str, Any]:
        """Returns no numbers."""
        del count
        return {}


def not_optax(kind: str) -> str:
    """Spells the error where optax's functions are looked for in a fused optimizer.

    Args:
      kind: of the optimizer.
    """
    return (
        f"jde.optim.{kind}(...) updates the rows of a table and is no optax "
        "transformation. Write it into the table, jde.TableConfig(..., "
        f"optimizer=jde.optim.{kind}(...)); for dense parameters, optax.chain and "
        "nnx.Optimizer use optax, e.g. optax.adam(1e-3)."
    )


@runtime_checkable
class TableOptimizer(Protocol):
    """Declares what every optimizer of a table keeps for a row."""

    def states(self, dim: int) -> dict[str, StateSpec]:
        """Lists per-row states, in the order of the table's arrays; at most 4."""
        ...


@runtime_checkable
class FusedOptimizer(TableOptimizer, Protocol):
    """Declares an optimizer of core/optimizers/."""

    @property
    def kind(self) -> str:
        """Names it as there."""
        ...

    def hyper_parameters(self, count: jax.Array) -> dict[str, Any]:
        """Lists numbers by name; ``count``: int32, updates so far."""
        ...


@runtime_checkable
class BridgeOptimizer(TableOptimizer, Protocol):
    """Declares an optimizer in JAX over the touched rows."""

    def extra(self, dim: int) -> tuple[jax.Array, ...]:
        """Makes the initial values of what is stored once for the table."""
        ...

    def apply(
        self,
        rows: jax.Array,
        grads: jax.Array,
        states: dict[str, jax.Array],
        extra: tuple[jax.Array, ...],
    ) -> tuple[jax.Array, dict[str, jax.Array], tuple[jax.Array, ...]]:
        """Computes them after one update; float32[n, dim] or [n] each."""
        ...
