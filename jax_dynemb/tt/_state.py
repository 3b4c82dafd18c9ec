# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The arrays of a tensor-train table, and what a lookup leaves for its gradients."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp

from jax_dynemb.ops import Distinct, FeatureLayout

Cores = tuple[jax.Array, ...]
COUNTERS = ("out_of_range", "malformed_lengths", "nonfinite")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TTState:
    """Holds the arrays of a tensor-train table.

    Attributes:
      cores: float32[p_t, R_t, q_t, R_{t+1}].
      optimizer: the state of the config's optimizer.
      seed: uint32[2], of the initial cores.
      counters: uint32[3]: ids of training lookups without a row; bags that were cut;
        gradients that an update skipped as not finite.
    """

    cores: Cores
    optimizer: Any
    seed: jax.Array
    counters: jax.Array

    @classmethod
    def of(
        cls, cores: Sequence[Any], optimizer: Any = (), seed: jax.Array | None = None
    ) -> Self:
        """Makes a state that has counted nothing.

        Args:
          cores: the arrays, see ``cores``.
          optimizer: the state of the config's optimizer.
          seed: uint32[2]; zeros if None.
        """
        seed = jnp.zeros(2, jnp.uint32) if seed is None else seed
        counters = jnp.zeros(len(COUNTERS), jnp.uint32)
        return cls(tuple(cores), optimizer, seed, counters)

    @property
    def out_of_range(self) -> jax.Array:
        """uint32[], how many ids of training lookups had no row."""
        return self.counters[0]

    def counted(self, **counts: jax.Array | None) -> Self:
        """Adds to counters.

        Args:
          counts: by name, uint32 of one element; None counts nothing.
        """
        none = jnp.zeros((), jnp.uint32)
        new = [counts.get(name) for name in COUNTERS]
        added = [none if n is None else n.reshape(()).astype(jnp.uint32) for n in new]
        return dataclasses.replace(self, counters=self.counters + jnp.stack(added))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TTResidual:
    """Holds what a lookup leaves for its gradients; the cores are not among it.

    Attributes:
      distinct: the numbers of the rows.
      offsets: int32[num_bags + 1], or None.
      weights: float32[num_ids], or None.
      scale: float32[num_bags] of a mean, or None.
      layout: static.
    """

    distinct: Distinct
    offsets: jax.Array | None
    weights: jax.Array | None
    scale: jax.Array | None
    layout: FeatureLayout = dataclasses.field(metadata={"static": True})
