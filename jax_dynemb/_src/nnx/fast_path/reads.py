# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Records which tables a trace only reads."""

from __future__ import annotations

import contextvars
from typing import Any

import jax

from jax_dynemb._src.ops import TableState


class Reads:
    """The arrays that read-only lookups returned, during one trace.

    A lookup that inserts nothing returns its table only to order the calls of a
    program: a later change of the table waits for it. A table that is only read holds
    such arrays at the end of the program.
    """

    def __init__(self):
        self._before: dict[int, tuple[Any, Any]] = {}

    def note(self, before: TableState, after: TableState) -> None:
        """Notes the table that a lookup received, and the one it returned."""
        for old, new in zip(*map(jax.tree.leaves, (before, after)), strict=True):
            if new is not old:
                self._before[id(new)] = new, old

    def is_only_read(self, now: Any, first: Any) -> bool:
        """Returns whether a value is the first one, or reads made it from that."""
        leaves, inputs = jax.tree.leaves(now), jax.tree.leaves(first)
        return len(leaves) == len(inputs) and all(map(self._same, leaves, inputs))

    def _same(self, leaf: Any, first: Any) -> bool:
        while leaf is not first and id(leaf) in self._before:
            leaf = self._before[id(leaf)][1]
        return leaf is first


reads: contextvars.ContextVar[Reads | None] = contextvars.ContextVar(
    "jax_dynemb_reads", default=None
)
