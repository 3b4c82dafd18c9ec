# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Ids of bags in JAX: which are padding, sums over a bag, weights of "sqrtn"."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb._src.ids import ids as make_ids
from jax_dynemb._src.jagged import Jagged
from jax_dynemb._src.ops import offsets_of

_ALL_ONES = np.uint32(0xFFFFFFFF)


def sum_of_bags(x: jax.Array, ids: Any) -> jax.Array:
    """Sums [..., L, n] or [capacity, n], one an id, over each bag."""
    if not isinstance(ids, Jagged):
        return x if x.ndim <= 2 else x.sum(axis=-2)
    # Positions behind the last bag get a number that segment_sum drops.
    return jax.ops.segment_sum(x, _bag_of(ids, x), num_segments=ids.lengths.shape[0])


def valid_ids(ids: Any, key_dtype: str) -> jax.Array:
    """Finds which ids are no padding; bool, in the shape of the ids."""
    values = ids.values if isinstance(ids, Jagged) else ids
    if isinstance(values, np.ndarray) and values.dtype.itemsize == 8:
        values = make_ids(values)
    # Words, because JAX with x64 off cannot compare 64-bit integers with a constant.
    padding = jax.lax.bitcast_convert_type(values, jnp.uint32) == _ALL_ONES
    if key_dtype == "int64":
        padding = padding.all(axis=-1)
    if isinstance(ids, Jagged):
        position = jnp.arange(padding.shape[0], dtype=jnp.int32)
        offsets, _ = offsets_of(ids.lengths, padding.shape[0])
        padding |= position >= offsets[-1]
    return ~padding


def sqrtn_weights(config: Any, ids: Any, weights: Any) -> jax.Array:
    """Divides weights by the root of the sum of their squares in each bag.

    A sum with them is "sqrtn". To divide twice changes nothing.

    Args:
      config: the table.
      ids: of a feature.
      weights: one an id; None: 1 each.
    """
    valid = valid_ids(ids, config.key_dtype)
    given = jnp.ones(valid.shape) if weights is None else jnp.asarray(weights)
    if given.shape != valid.shape:
        raise ValueError(
            f"Table '{config.name}': weights have shape {given.shape}, but there are "
            f"ids of shape {valid.shape}. Give one weight an id."
        )
    own = jnp.where(valid, given, 0).astype(jnp.float32)[..., None]
    squares = sum_of_bags(own * own, ids)
    if isinstance(ids, Jagged):
        squares = jnp.take(squares, _bag_of(ids, own), axis=0, mode="clip")
    elif own.ndim > 2:
        squares = squares[..., None, :]
    # No root of 0 is divided by, so no gradient is infinite.
    root = jnp.sqrt(jnp.where(squares > 0, squares, 1.0))
    return (own / root)[..., 0]


def without_padding_id(config: Any, ids: Any) -> Any:
    """Makes -1 of the ``padding_id`` of a table, before anything else sees the ids."""
    number = getattr(config, "padding_id", None)
    if number is None:
        return ids
    if isinstance(ids, Jagged):
        values = without_padding_id(config, ids.values)
        return dataclasses.replace(ids, values=values)
    if not hasattr(ids, "dtype") or np.dtype(ids.dtype).kind not in "iu":
        return ids  # refused later, with a sentence
    module = np if isinstance(ids, np.ndarray) else jnp
    if config.key_dtype == "int64" and ids.dtype == np.uint32:
        low, high = np.array([number], np.int64).view(np.uint32)
        is_padding = (ids[..., 0] == low) & (ids[..., 1] == high)
        return module.where(is_padding[..., None], _ALL_ONES, ids)
    own = np.array(number).astype(ids.dtype)
    return module.where(ids == own, np.array(-1).astype(ids.dtype), ids)


def _bag_of(ids: Jagged, x: jax.Array) -> jax.Array:
    offsets, _ = offsets_of(ids.lengths, x.shape[0])
    position = jnp.arange(x.shape[0], dtype=jnp.int32)
    return jnp.searchsorted(offsets[1:], position, side="right")
