# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Numbers of 64 bits as (low, high) words, which JAX has without a flag."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def add_to_words(words: jax.Array, events: jax.Array) -> jax.Array:
    """Adds integers below 2**32 to numbers of 64 bits, uint32[..., 2]."""
    low, high = words[..., 0], words[..., 1]
    total = low + events.astype(jnp.uint32)
    return jnp.stack([total, high + (total < low).astype(jnp.uint32)], axis=-1)
