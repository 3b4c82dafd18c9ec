# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The Variable type that holds a table, and a mark of the trace that runs."""

from __future__ import annotations

from flax import nnx

from jax_dynemb._src.nnx.fast_path import WEAKREF_SLOT, writable
from jax_dynemb._src.ops import TableState


class Table(nnx.Variable[TableState]):
    """Holds one table; its value is the ``TableState`` pytree of plain arrays.

    It is not an ``nnx.Param``, so ``nnx.Optimizer(wrt=nnx.Param)`` and ``nnx.grad``
    skip it, while ``nnx.state``, ``nnx.split`` and orbax see it like any other
    Variable. Select it with ``nnx.state(model, jde.nnx.Table)``. Tables that share
    arrays are one Variable, see ``jde.Tables.state_name``.
    """

    __slots__ = WEAKREF_SLOT  # fast_path/unreturned.py notices when one is dropped


class TraceMark:
    """Remembers the trace it was made in."""

    def __init__(self):
        self._variable = nnx.Variable(0)

    def here(self) -> bool:
        """Returns False inside a transformation entered since, e.g. a scan body."""
        return writable(self._variable)
