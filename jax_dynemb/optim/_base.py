# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Declares what a table needs of its optimizer."""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol, runtime_checkable

import jax


@dataclasses.dataclass(frozen=True)
class StateSpec:
    """One optimizer state of a row.

    Attributes:
      shape: of one row: ``(dim,)``, or ``()`` for one number a row.
      initial: what it holds when the row is new.
    """

    shape: tuple[int, ...]
    initial: float


@dataclasses.dataclass(frozen=True)
class NoUpdate:
    """No optimizer: an update leaves the table as it is.

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


@runtime_checkable
class TableOptimizer(Protocol):
    """Every optimizer of a table says what it keeps for a row."""

    def states(self, dim: int) -> dict[str, StateSpec]:
        """Per-row states by name, in the order of the table's arrays; at most 4."""
        ...


@runtime_checkable
class FusedOptimizer(TableOptimizer, Protocol):
    """An optimizer of core/optimizer.h."""

    @property
    def kind(self) -> str:
        """Its name there."""
        ...

    def hyper_parameters(self, count: jax.Array) -> dict[str, Any]:
        """Numbers or float32 scalars by name; ``count`` is int32, updates so far."""
        ...


@runtime_checkable
class BridgeOptimizer(TableOptimizer, Protocol):
    """An optimizer in JAX over the touched rows."""

    def extra(self, dim: int) -> tuple[jax.Array, ...]:
        """Initial values of what is stored once for the table."""
        ...

    def apply(
        self,
        rows: jax.Array,
        grads: jax.Array,
        states: dict[str, jax.Array],
        extra: tuple[jax.Array, ...],
    ) -> tuple[jax.Array, dict[str, jax.Array], tuple[jax.Array, ...]]:
        """Rows, states and extra after one update; float32[n, dim] or [n] each."""
        ...
