# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Sums over shards that do not wrap: in two words, or up to a limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def total_in_words(
    total: Callable[[jax.Array], jax.Array], numbers: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Sums numbers of 32 bits over shards.

    The sums of their halves cannot wrap: a mesh has at most 2**16 shards.

    Args:
      total: sums uint32[2, ...] over shards.
      numbers: non-negative integers of up to 32 bits.

    Returns:
      uint32: the low words of the sums, and their high words.
    """
    words = numbers.astype(jnp.uint32)
    low, high = total(jnp.stack([words & jnp.uint32(0xFFFF), words >> 16]))
    high = high + (low >> 16)
    return high << 16 | low & jnp.uint32(0xFFFF), high >> 16


def saturating_total(
    total: Callable[[Any], Any], numbers: jax.Array, most: int = 2**32 - 1
) -> jax.Array:
    """Sums numbers over shards as ``total_in_words``, up to a limit.

    Args:
      total: sums an array over shards.
      numbers: non-negative integers of up to 32 bits.
      most: what a larger sum becomes, of 32 bits.

    Returns:
      uint32 in their shape: the sums, or ``most``.
    """
    low, high = total_in_words(total, numbers)
    is_over = (high > 0) | (low > jnp.uint32(most))
    return jnp.where(is_over, jnp.uint32(most), low)
