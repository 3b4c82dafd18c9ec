# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Distinct ids of a batch as an operation by itself."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jax_dynemb._src.is_whole import is_whole
from jax_dynemb._src.ops import RouteTable, route


class Unique(NamedTuple):
    """Holds each id of a batch once.

    Attributes:
      ids: uint32[size, 2], in the order of their hash; -1 behind the last.
      inverse: int32 of the shape of the batch, where each id stands among ``ids``; -1
        for padding, and for an id that found no place.
      count: int32, how many distinct ids the batch has, also if ``size`` is smaller.
    """

    ids: jax.Array
    inverse: jax.Array
    count: jax.Array


def unique(ids: jax.Array, *, size: int | None = None) -> Unique:
    """Finds the distinct ids of a batch, on the device, inside of jit or outside.

    Lookups do this by themselves. It is for programs that load features by id, count,
    or sum by id, and takes the place of ``jnp.unique``, which sorts with XLA.

    Args:
      ids: uint32[..., 2] of ``jde.ids``; -1 is padding.
      size: room for distinct ids, static; as many as ids if None.

    Returns:
      The ids, where each stands, and their number. The order is the same on all
      devices.

    Raises:
      TypeError: ids are not pairs of uint32, or ``size`` is no whole number.
      ValueError: a negative size.

    Example:
      >>> found = jde.unique(jde.ids([7, 2**40, 7, -1]), size=3)
      >>> int(found.count), found.ids.shape
      (2, (3, 2))
    """
    if getattr(ids, "dtype", None) != jnp.uint32 or ids.shape[-1:] != (2,):
        shown = getattr(ids, "dtype", type(ids).__name__)
        raise TypeError(
            f"unique takes pairs of uint32 words, not {shown}: unique(jde.ids(array))."
        )
    pairs = ids.reshape(-1, 2)
    n = len(pairs)
    size = n if size is None else size
    if not is_whole(size):
        raise TypeError(f"unique: size={size!r} must be a whole number.")
    if size < 0:
        raise ValueError(f"unique: size={size} must be 0 or more.")
    inverse, first, ends = route(pairs, [RouteTable(n, 0, 1)], 1)
    places = jnp.pad(first, (0, max(0, size - n)), constant_values=n)[:size]
    padding = jnp.full((1, 2), 0xFFFFFFFF, jnp.uint32)
    found = jnp.concatenate([pairs, padding])[places]  # n is the place of the padding
    # Padding has the number n, which may be below size.
    is_there = (inverse < size) & (inverse < n)
    inverse = jnp.where(is_there, inverse, -1).reshape(ids.shape[:-1])
    return Unique(found, inverse, ends[1])
