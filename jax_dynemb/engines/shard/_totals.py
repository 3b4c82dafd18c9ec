# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Sums over shards that end at a limit instead of wrapping."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def saturating_total(
    total: Callable[[Any], Any], numbers: jax.Array, most: int = 2**32 - 1
) -> jax.Array:
    """Sums numbers of 32 bits over shards.

    The sums of their halves cannot wrap: a mesh has at most 2**16 shards.

    Args:
      total: sums an array over shards.
      numbers: non-negative integers of up to 32 bits.
      most: what a larger sum becomes.

    Returns:
      uint32 in their shape: the sums, or ``most``.
    """
    words = numbers.astype(jnp.uint32)
    low, high = total(jnp.stack([words & jnp.uint32(0xFFFF), words >> 16]))
    high = high + (low >> 16)
    whole = high << 16 | low & jnp.uint32(0xFFFF)
    is_over = (high > 0xFFFF) | (whole > jnp.uint32(most))
    return jnp.where(is_over, jnp.uint32(most), whole)
