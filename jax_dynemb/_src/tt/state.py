# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The arrays of a tensor-train table, and what a lookup leaves for its gradients."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp

from jax_dynemb._src.ops import Distinct, FeatureLayout
from jax_dynemb._src.shown import Shown
from jax_dynemb._src.tt import lineage as _lineage

Cores = tuple[jax.Array, ...]
COUNTERS = ("out_of_range", "malformed_lengths", "nonfinite", "lost_updates")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, repr=False)
class TTState(Shown):
    """Holds the arrays of a tensor-train table.

    Attributes:
      cores: float32[p_t, R_t, q_t, R_{t+1}].
      optimizer: the state of the config's optimizer.
      seed: uint32[2], of the initial cores.
      counters: uint32[46]: ids of training lookups without a row; bags that were cut;
        gradients that were not finite; rows of updates for other states. The words
        from the ninth on say which run and moment this is (``_lineage``).
      name: static, of the table, so that the state of another one of equal shapes is
        refused at no cost; "" where it is not known.
    """

    cores: Cores
    optimizer: Any
    seed: jax.Array
    counters: jax.Array
    name: str = dataclasses.field(default="", metadata={"static": True})

    @classmethod
    def of(
        cls,
        cores: Sequence[Any],
        optimizer: Any = (),
        seed: jax.Array | None = None,
        run: Any = None,
        name: str = "",
    ) -> Self:
        """Makes a state that has counted nothing.

        Args:
          cores: the arrays, see ``cores``.
          optimizer: the state of the config's optimizer.
          seed: uint32[2]; zeros if None.
          run: uint32[3, 2], see ``new_run``; zeros if None.
          name: of the table.
        """
        seed = jnp.zeros(2, jnp.uint32) if seed is None else seed
        run = jnp.zeros((3, 2), jnp.uint32) if run is None else run
        counters = _lineage.first_counters(run, seed)
        return cls(tuple(cores), optimizer, seed, counters, name)

    @property
    def out_of_range(self) -> jax.Array:
        """uint32[], how many ids of training lookups had no row."""
        return self.counters[0]

    def add_counts(self, **counts: jax.Array | None) -> Self:
        """Adds to counters.

        Args:
          counts: by name, uint32 of one element; None counts nothing.
        """
        some = {
            COUNTERS.index(name): count.reshape(()).astype(jnp.uint32)
            for name, count in counts.items()
            if count is not None
        }
        counters = _lineage.added(self.counters, some)
        return dataclasses.replace(self, counters=counters)

    def looked_up(self, given: jax.Array) -> tuple[jax.Array, Self]:
        """Counts a training lookup.

        Args:
          given: the digest of what was looked up, see ``sums_of``.

        Returns:
          The stamp of its residual, uint32[1, 8], and the new state.
        """
        stamp, counters = _lineage.looked_up(self.counters, given)
        return stamp, dataclasses.replace(self, counters=counters)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, repr=False)
class TTResidual(Shown):
    """Holds what a lookup leaves for its gradients; the cores are not among it.

    Attributes:
      distinct: the numbers of the rows.
      offsets: int32[num_bags + 1], or None.
      weights: float32[num_ids], or None.
      scale: float32[num_bags] of a mean, or None.
      layout: static.
      stamp: uint32[devices, 8] of the state, see core/stamp.h; with leading axes where
        ``lax.scan`` stacked several lookups. None where no update follows.
    """

    distinct: Distinct
    offsets: jax.Array | None
    weights: jax.Array | None
    scale: jax.Array | None
    layout: FeatureLayout = dataclasses.field(metadata={"static": True}, repr=False)
    stamp: jax.Array | None = dataclasses.field(default=None, repr=False)
