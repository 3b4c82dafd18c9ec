# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Declares what a table needs of its optimizer."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

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


class TableOptimizer:
    """Is what every optimizer of a table says about itself.

    One with a ``kind`` has ``hyper_parameters(count)``: its numbers by name after
    ``count`` updates, int32. One in JAX has ``apply(rows, grads, states, extra)`` for
    float32[n, dim] rows and gradients, and returns new rows, states and extra arrays.

    Attributes:
      kind: its formula in core/optimizers/; "" for one in JAX.
      decays_lookups: whether a lookup reads rows with the decay that is due.
    """

    kind: str
    decays_lookups: bool = False

    def states(self, dim: int) -> dict[str, StateSpec]:
        """Lists per-row states, in the order of the table's arrays; at most 4."""
        del dim
        return {}

    def extra(self, dim: int) -> tuple[jax.Array, ...]:
        """Makes the initial values of what is stored once for the table."""
        del dim
        return ()


@dataclasses.dataclass(frozen=True)
class NoUpdate(TableOptimizer):
    """Stands for no optimizer: an update leaves the table as it is.

    Attributes:
      kind: "none".
      learning_rate: of no meaning.
    """

    kind: str = dataclasses.field(default="none", init=False)
    learning_rate: float = dataclasses.field(default=0.0, init=False)

    def hyper_parameters(self, count: jax.Array) -> dict[str, Any]:
        """Returns no numbers."""
        del count
        return {}


def not_optax(kind: str) -> str:
    """Spells the error where optax's functions are looked for in a fused optimizer."""
    return (
        f"jde.optim.{kind}(...) updates the rows of a table and is no optax "
        "transformation. Write it into the table, jde.TableConfig(..., "
        f"optimizer=jde.optim.{kind}(...)); for dense parameters, optax.chain and "
        "nnx.Optimizer use optax, e.g. optax.adam(1e-3)."
    )


class FusedOptimizer(TableOptimizer):
    """Is a formula of core/optimizers/; a sentence refuses optax's calls."""

    @property
    def name(self) -> str:
        """Names the function of ``jde.optim`` that makes it."""
        return self.kind

    def __getattr__(self, name: str) -> Any:
        """Tells where it belongs, if optax's functions are looked for."""
        if name in ("init", "update"):
            raise AttributeError(not_optax(self.name))
        raise AttributeError(
            f"{type(self).__name__!r} object has no attribute {name!r}"
        )

    def __iter__(self) -> Any:
        """Refuses to be a pair of functions, as optax.chain takes them."""
        raise TypeError(not_optax(self.name))
