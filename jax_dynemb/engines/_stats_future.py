# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Holds the counters of a state on their way to the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import jax

from jax_dynemb.ops import copy_for_host, on_host

Stats = dict[str, int | float]


class StatsFuture:
    """The numbers of ``Tables.stats`` that are still on their way to the host.

    The copy has buffers of its own, so a later step may donate the tables. The
    numbers are those of the state that ``stats_async`` was called with.
    """

    def __init__(self, arrays: Any, finish: Callable[[Any], Stats]):
        """Starts the copy; waits for nothing.

        Args:
          arrays: small arrays of a state, any pytree.
          finish: computes the numbers from the same pytree of NumPy arrays.
        """
        self._arrays = copy_for_host(arrays)
        self._finish = finish

    def done(self) -> bool:
        """Returns whether ``result`` has its numbers without a wait for the device."""
        return all(each.is_ready() for each in jax.tree.leaves(self._arrays))

    def result(self) -> Stats:
        """Returns what ``Tables.stats`` returns, and waits if the copy is under way.

        On several hosts all processes must call it, like ``Tables.stats``.

        Raises:
          RuntimeError: a table with ``on_full="error"`` has refused ids.
        """
        return self._finish(jax.tree.map(on_host, self._arrays))

    @classmethod
    def joined(cls, futures: Sequence[StatsFuture]) -> Self:
        """Joins futures whose numbers have different names."""
        both = cls((), lambda _: {})
        both._arrays = [future._arrays for future in futures]

        def finish(arrays: Any) -> Stats:
            pairs = zip(futures, arrays, strict=True)
            return {k: v for one, mine in pairs for k, v in one._finish(mine).items()}

        both._finish = finish
        return both
