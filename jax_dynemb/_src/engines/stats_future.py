# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Holds the counters of a state on their way to the host."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol, Self

import jax
import jax.numpy as jnp

from jax_dynemb._src.kept_jit import kept_jit
from jax_dynemb._src.ops import compile_to_host, on_host, start_to_host
from jax_dynemb._src.shown import ShownStats

Stats = dict[str, int | float]


class Counts(Protocol):
    """Computes small arrays that ``Tables.stats`` needs; static and hashable."""

    def count(self, arrays: Any) -> Any:
        """Returns them; ``arrays`` are some of a state, and tracers."""
        ...


class StatsFuture:
    """The numbers of ``Tables.stats`` that are still on their way to the host.

    They have buffers of their own, so a later step may donate the tables. The
    numbers are those of the state that ``stats_async`` was called with.
    """

    def __init__(self, arrays: Any, finish: Callable[[Any], Stats]):
        """Takes arrays that are on their way.

        Args:
          arrays: of ``start_to_host``, any pytree.
          finish: computes the numbers from the same pytree of NumPy arrays.
        """
        self._arrays = arrays
        self._finish = finish

    @classmethod
    def of(cls, counts: Counts, arrays: Any, finish: Callable[[Any], Stats]) -> Self:
        """Starts to count and to copy; waits for nothing.

        Args:
          counts: what to count.
          arrays: for ``counts.count``.
          finish: computes the numbers from the pytree that it returns, of NumPy arrays.
        """
        return cls(start_to_host(_counted(counts, arrays)), finish)

    def done(self) -> bool:
        """Returns whether ``result`` has its numbers without a wait for the device."""
        return all(each.is_ready() for each in jax.tree.leaves(self._arrays))

    def result(self) -> Stats:
        """Returns what ``Tables.stats`` returns, and waits if the copy is under way.

        On several hosts all processes must call it, like ``Tables.stats``.

        Raises:
          RuntimeError: a table with ``on_full="error"`` has refused ids.
        """
        return ShownStats(self._finish(jax.tree.map(on_host, self._arrays)))

    def __repr__(self) -> str:
        return f"StatsFuture({'arrived' if self.done() else 'on its way'})"

    @classmethod
    def joined(cls, futures: Sequence[StatsFuture]) -> Self:
        """Joins futures whose numbers have different names."""

        def finish(arrays: Any) -> Stats:
            pairs = zip(futures, arrays, strict=True)
            return {k: v for one, mine in pairs for k, v in one._finish(mine).items()}

        return cls([future._arrays for future in futures], finish)


def compile_counts(counts: Counts, types: Any) -> list[Any]:
    """Compiles what ``StatsFuture.of`` runs, and runs nothing.

    Args:
      counts: what to count.
      types: ``jax.ShapeDtypeStruct`` for its arrays.

    Returns:
      ``jax.stages.Compiled``. ``jit`` finds them while they are kept.
    """
    program = _counted.lower(counts, types).compile()
    results = jax.tree.map(
        lambda x, sharding: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding),
        jax.eval_shape(functools.partial(_counted, counts), types),
        program.output_shardings,
    )
    return [program, *compile_to_host(results)]


@kept_jit(0)
def _counted(counts: Counts, arrays: Any) -> Any:
    # jit returns an argument itself where nothing is computed, hence the copy.
    return jax.tree.map(jnp.copy, counts.count(arrays))
