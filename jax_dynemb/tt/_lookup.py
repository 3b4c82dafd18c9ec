# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Lookups and updates of a tensor-train table, as pure functions of its state."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax

from jax_dynemb._seed import seed_words, table_seed
from jax_dynemb.ops import FeatureInput, FeatureLayout, prepare
from jax_dynemb.tt._config import TTConfig
from jax_dynemb.tt._distinct import Distinct, distinct
from jax_dynemb.tt._numbers import Numbers, numbers_of
from jax_dynemb.tt._optimizers import core_optimizer
from jax_dynemb.tt._pool import pool
from jax_dynemb.tt._rows import rows_of

Cores = tuple[jax.Array, ...]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TTState:
    """The arrays of a table.

    Attributes:
      cores: float32[p_t, R_t, q_t, R_{t+1}].
      optimizer: the state of the config's optimizer.
      out_of_range: uint32[], ids of training lookups that had no row.
    """

    cores: Cores
    optimizer: Any
    out_of_range: jax.Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TTResidual:
    """What a lookup leaves for its gradients; the cores are not among it.

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


def init(config: TTConfig, seed: Any = 0) -> TTState:
    """Makes the cores of a table.

    Args:
      config: of the table.
      seed: an int, or a uint32 scalar. Cores are a function of (seed, table name, core,
        element).
    """
    words = table_seed(seed_words(seed), config.name)
    # The same numbers whatever the flag says, and on any number of devices.
    with jax.threefry_partitionable(True):
        key = jax.random.wrap_key_data(words, impl="threefry2x32")
        cores = config.initializer.cores(config, key)
    cores = tuple(core.astype(jnp.float32) for core in cores)
    state = core_optimizer(config.optimizer).init(cores)
    return TTState(cores, state, jnp.zeros((), jnp.uint32))


def lookup(
    config: TTConfig, state: TTState, ids: Any, weights: Any = None
) -> tuple[jax.Array, TTResidual, TTState]:
    """Looks up rows for training.

    Args:
      config: of the table.
      state: its arrays.
      ids: ``jde.ids`` of shape [...], padded with -1, or ``jde.Jagged``.
      weights: one number for each id, or None.

    Returns:
      Rows, float32[..., dim] without pooling, else one a bag; what ``core_gradients``
      and ``apply_gradients`` need; and the state with out-of-range ids counted.
    """
    residual, numbers = _prepared(config, ids, weights)
    rows = rows_by_residual(config, state.cores, residual, residual.weights)
    outside = state.out_of_range + numbers.outside
    return rows, residual, dataclasses.replace(state, out_of_range=outside)


def find(
    config: TTConfig, cores: Sequence[jax.Array], ids: Any, weights: Any = None
) -> jax.Array:
    """Looks up rows; differentiable in the cores and the weights.

    Args:
      config: of the table.
      cores: its arrays, ``TTState.cores``.
      ids: as for ``lookup``.
      weights: as for ``lookup``.

    Returns:
      The rows, as ``lookup`` returns them.
    """
    residual, _ = _prepared(config, ids, weights)
    return rows_by_residual(config, tuple(cores), residual, residual.weights)


def core_gradients(
    config: TTConfig, state: TTState, residual: TTResidual, d_rows: Any
) -> Cores:
    """Computes the gradients of all cores, as FBTT does with ``sparse=False``.

    Args:
      config: of the table.
      state: with the cores that the lookup read.
      residual: of the lookup.
      d_rows: gradients of its rows.

    Raises:
      ValueError: the gradients have another shape than the rows.
    """
    expected = (*residual.layout.rows_shape, config.dim)
    if jnp.shape(d_rows) != expected:
        raise ValueError(
            f"Table '{config.name}': the gradients have shape {jnp.shape(d_rows)}, the "
            f"rows of the lookup {expected}. Pass the gradients of these rows."
        )

    def rows(cores: Cores) -> jax.Array:
        return rows_by_residual(config, cores, residual, residual.weights)

    _, backward = jax.vjp(rows, state.cores)
    return backward(jnp.asarray(d_rows, jnp.float32))[0]


def apply_gradients(
    config: TTConfig, state: TTState, residual: TTResidual, d_rows: Any
) -> TTState:
    """Updates the cores by the optimizer of the config.

    Args:
      config: of the table.
      state: with the cores that the lookup read.
      residual: of the lookup.
      d_rows: gradients of its rows.

    Raises:
      ValueError: the config has no optimizer, or the shapes do not fit.
    """
    if config.optimizer is None:
        raise ValueError(
            f"Table '{config.name}' has no optimizer: give TTConfig one, such as "
            "optimizer=jde.optim.adagrad(0.05), or update its cores with optax by "
            "core_gradients."
        )
    gradients = core_gradients(config, state, residual, d_rows)
    tx = core_optimizer(config.optimizer)
    updates, optimizer = tx.update(gradients, state.optimizer, state.cores)
    cores: Any = optax.apply_updates(state.cores, updates)
    return TTState(tuple(cores), optimizer, state.out_of_range)


def rows_by_residual(
    config: TTConfig,
    cores: Sequence[jax.Array],
    residual: TTResidual,
    weights: jax.Array | None,
) -> jax.Array:
    """Makes and pools the rows of a lookup; differentiable in cores and weights."""
    values, inverse, count = residual.distinct
    rows = rows_of(cores, values, count, config.compute_dtype)
    layout = residual.layout
    pooled: jax.Array = pool(
        layout, rows, inverse, residual.offsets, weights, residual.scale
    )
    return pooled.reshape(*layout.rows_shape, config.dim)


def _prepared(config: TTConfig, ids: Any, weights: Any) -> tuple[TTResidual, Numbers]:
    given: FeatureInput
    layout, given = prepare(config, config.feature_names[0], ids, weights)  # pyright: ignore[reportArgumentType]
    numbers = numbers_of(config, given.ids)
    scale = _mean_scale(layout, given, ~numbers.padding)
    some = distinct(numbers.rows)
    residual = TTResidual(some, given.offsets, given.weights, scale, layout)
    return residual, numbers


def _mean_scale(
    layout: FeatureLayout, given: FeatureInput, live: jax.Array
) -> jax.Array | None:
    """One over the ids of each bag that are not padding, as in any table."""
    if layout.pooling != "mean":
        return None
    if given.offsets is None:
        count = live.reshape(layout.num_bags, -1).sum(axis=1, dtype=jnp.int32)
    else:
        before = jnp.cumsum(live, dtype=jnp.int32)
        before = jnp.concatenate([jnp.zeros(1, jnp.int32), before])
        count = before[given.offsets[1:]] - before[given.offsets[:-1]]
    return 1.0 / jnp.maximum(count, 1).astype(jnp.float32)
