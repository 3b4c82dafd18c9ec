# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Lookups and updates of a tensor-train table, as pure functions of its state."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax

from jax_dynemb._src.jagged import split_weights
from jax_dynemb._src.ops import FeatureInput, FeatureLayout, new_run, prepare
from jax_dynemb._src.seed import seed_words, table_seed
from jax_dynemb._src.tt import lineage as _lineage
from jax_dynemb._src.tt.config import TTConfig
from jax_dynemb._src.tt.moments import check_moments, fitting, only_if, sums_of
from jax_dynemb._src.tt.optimizers import core_optimizer
from jax_dynemb._src.tt.pool import pool
from jax_dynemb._src.tt.rows import NO_ROW, Numbers, distinct_of, numbers_of, rows_of
from jax_dynemb._src.tt.state import Cores, TTResidual, TTState


def init(config: TTConfig, seed: Any = 0) -> TTState:
    """Makes the cores of a table.

    Args:
      config: of the table.
      seed: an int, or a uint32 scalar. Cores are a function of (seed, table name, core,
        element).

    Raises:
      ValueError: the table has a residual, which is a table of its own.
    """
    if config.residual is not None:
        raise ValueError(
            f"Table '{config.name}' has a residual, a dynamic table beside its cores. "
            "Write jde.Tables([config]) or jde.nnx.EmbeddingBagCollection([config]), "
            "which hold both, or leave residual out."
        )
    return init_from_words(config, seed_words(seed), new_run())


def init_from_words(config: TTConfig, seed: jax.Array, run: Any) -> TTState:
    """Makes the cores of a table; ``seed`` is two words, ``run`` of ``new_run``."""
    words = table_seed(seed, config.name)
    # The same numbers whatever the flag says, and on any number of devices.
    with jax.threefry_partitionable(True):
        key = jax.random.wrap_key_data(words, impl="threefry2x32")
        cores = config.initializer.cores(config, key)
    cores = tuple(core.astype(jnp.float32) for core in cores)
    # A copy: tables of one collection get the same words, and a donated call refuses
    # a buffer that comes twice.
    own_seed = jnp.array(seed)
    optimizer = core_optimizer(config.optimizer).init(cores)
    return TTState.of(cores, optimizer, own_seed, run, config.name)


def cleared(config: TTConfig, state: TTState) -> TTState:
    """Makes the initial cores of a state again."""
    new = init_from_words(config, state.seed, jnp.zeros((3, 2), jnp.uint32))
    return dataclasses.replace(new, counters=_lineage.cleared(state.counters))


def lookup(
    config: TTConfig, state: TTState, ids: Any, weights: Any = None
) -> tuple[jax.Array, TTResidual, TTState]:
    """Looks up rows for training.

    Args:
      config: of the table.
      state: its arrays.
      ids: ``jde.ids`` of shape [...], padded with -1, or ``jde.Jagged``.
      weights: one number for each id, or None; a ``Jagged`` may have them instead.

    Returns:
      Rows, float32[..., dim] without pooling, else one a bag; what ``core_gradients``
      and ``apply_gradients`` need; and the state with out-of-range ids counted.

    Raises:
      ValueError: weights come twice, or a shape does not fit.
    """
    layout, feature_input = _prepared(config, ids, weights)
    residual, numbers = residual_of(config, layout, feature_input)
    rows = rows_by_residual(config, state.cores, residual, residual.weights)
    digest, outside = sums_of(residual, numbers)
    new = state.add_counts(
        out_of_range=outside, malformed_lengths=feature_input.malformed
    )
    stamp, new = new.looked_up(digest)
    return rows, dataclasses.replace(residual, stamp=stamp), new


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
    residual, _ = residual_of(config, *_prepared(config, ids, weights))
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
    check_gradient(config, residual.layout.rows_shape, d_rows)

    def rows(cores: Cores) -> jax.Array:
        return rows_by_residual(config, cores, residual, residual.weights)

    _, backward = jax.vjp(rows, state.cores)
    return backward(jnp.asarray(d_rows, jnp.float32))[0]


def apply_gradients(
    config: TTConfig, state: TTState, residual: TTResidual, d_rows: Any
) -> TTState:
    """Updates the cores by the optimizer of the config.

    A row of gradients with a number that is not finite counts as zeros and in the
    counter ``nonfinite``: it would make every core not finite.

    Args:
      config: of the table.
      state: with the cores that the lookup read.
      residual: of the lookup.
      d_rows: gradients of its rows.

    Raises:
      ValueError: the config has no optimizer, or the shapes do not fit. Or, outside
        of jit, the state is not one that the lookup led to. (Inside it stays as it is,
        and ``lost_updates`` counts the rows.)
    """
    check_gradient(config, residual.layout.rows_shape, d_rows)
    check_moments(config, state, [residual], "jde.tt.apply_gradients")
    finite, skipped = only_finite(jnp.asarray(d_rows, jnp.float32))
    gradients = core_gradients(config, state, residual, finite)
    new = update_cores(config, state.add_counts(nonfinite=skipped), gradients, {})
    rows = jnp.sum(residual.distinct.count, dtype=jnp.uint32)
    return only_if(fitting(state, [residual]), new, state, rows)


def update_cores(
    config: TTConfig, state: TTState, gradients: Cores, hyper: Mapping[str, Any]
) -> TTState:
    """Updates the cores; ``hyper`` overrides numbers. ValueError without optimizer."""
    if config.optimizer is None:
        raise ValueError(
            f"Table '{config.name}' has no optimizer: give TTConfig one, such as "
            "optimizer=jde.optim.adagrad(0.05), or update its cores with optax by "
            "core_gradients."
        )
    tx = core_optimizer(config.optimizer, hyper)
    updates, optimizer = tx.update(gradients, state.optimizer, state.cores)
    cores: Any = optax.apply_updates(state.cores, updates)
    given = _lineage.digest(min(gradients, key=lambda core: core.size))
    counters = _lineage.updated(state.counters, given)
    return dataclasses.replace(
        state, cores=tuple(cores), optimizer=optimizer, counters=counters
    )


def only_finite(d_rows: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Replaces rows with a number that is not finite by zeros; counts them, uint32."""
    finite = jnp.isfinite(d_rows).all(axis=-1)
    zeroed = jnp.where(finite[..., None], d_rows, 0.0)
    return zeroed, jnp.sum(~finite, dtype=jnp.uint32)


def check_gradient(config: TTConfig, rows_shape: tuple[int, ...], d_rows: Any) -> None:
    """Refuses gradients of another shape than the rows; the ValueError has both."""
    expected = (*rows_shape, config.dim)
    if jnp.shape(d_rows) != expected:
        raise ValueError(
            f"Table '{config.name}': the gradients have shape {jnp.shape(d_rows)}, the "
            f"rows of the lookup {expected}. Pass the gradients of these rows."
        )


def rows_by_residual(
    config: TTConfig,
    cores: Sequence[jax.Array],
    residual: TTResidual,
    weights: jax.Array | None,
) -> jax.Array:
    """Makes and pools the rows of a lookup; differentiable in cores and weights."""
    _check_cores(config, cores)
    rows = rows_of(cores, residual.distinct, config.compute_dtype)
    layout = residual.layout
    pooled: jax.Array = pool(
        layout, rows, residual.distinct, residual.offsets, weights, residual.scale
    )
    return pooled.reshape(*layout.rows_shape, config.dim)


def _check_cores(config: TTConfig, cores: Sequence[jax.Array]) -> None:
    """Refuses the cores of another table: rows past their end would be noise."""
    given = tuple(jnp.shape(core) for core in cores)
    dtypes = sorted({str(core.dtype) for core in cores})
    if given != config.core_shapes or dtypes != ["float32"]:
        raise ValueError(
            f"Table '{config.name}': the cores are {dtypes} of shapes {list(given)}, "
            f"but its config has float32 of {list(config.core_shapes)}. Pass the cores "
            "that jde.tt.init or this table's state holds; compute_dtype='bfloat16' "
            "multiplies in bfloat16."
        )


def residual_of(
    config: TTConfig, layout: FeatureLayout, feature_input: FeatureInput
) -> tuple[TTResidual, Numbers]:
    """Finds the rows of the ids of one feature, each once."""
    numbers = numbers_of(config, feature_input.ids)
    scale = _mean_scale(layout, feature_input, ~numbers.padding)
    some = distinct_of(
        config.core_shapes, _in_bags(numbers.rows, feature_input.offsets)
    )
    residual = TTResidual(
        some, feature_input.offsets, feature_input.weights, scale, layout
    )
    return residual, numbers


def _in_bags(rows: jax.Array, offsets: jax.Array | None) -> jax.Array:
    """Leaves out ids that are in no bag: then each row has a gradient."""
    if offsets is None:
        return rows
    place = jnp.arange(rows.shape[0], dtype=jnp.int32)
    inside = (place >= offsets[0]) & (place < offsets[-1])
    return jnp.where(inside, rows, jnp.uint32(NO_ROW))


def _prepared(
    config: TTConfig, ids: Any, weights: Any
) -> tuple[FeatureLayout, FeatureInput]:
    feature = config.feature_names[0]
    by_feature, factors = split_weights({feature: ids}, {feature: weights})
    return prepare(config, feature, by_feature[feature], (factors or {}).get(feature))


def _mean_scale(
    layout: FeatureLayout, feature_input: FeatureInput, live: jax.Array
) -> jax.Array | None:
    """One over the ids of each bag that are not padding, as in any table."""
    if layout.pooling != "mean":
        return None
    if feature_input.offsets is None:
        bags = live.reshape(layout.num_bags, layout.bag_size)
        count = bags.sum(axis=1, dtype=jnp.int32)
    else:
        before = jnp.cumsum(live, dtype=jnp.int32)
        before = jnp.concatenate([jnp.zeros(1, jnp.int32), before])
        count = before[feature_input.offsets[1:]] - before[feature_input.offsets[:-1]]
    return 1.0 / jnp.maximum(count, 1).astype(jnp.float32)
