# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Sizes that ``jax.export`` leaves open until an exported program is called.

Such a symbolic dimension can be added, multiplied and used in shapes. A comparison
raises where its answer depends on the batch, and no kernel attribute may depend on it.
"""

from __future__ import annotations

from typing import Any

import jax.errors
import jax.export

# No array is larger in elements than a call can number the ids of.
_MOST = 1 << 31


def is_symbolic(size: Any) -> bool:
    """Whether a size is known only when the program is called."""
    return jax.export.is_symbolic_dim(size)


def is_at_most(size: Any, limit: int) -> bool:
    """Whether a size is ``limit`` or less in every call of the program."""
    try:
        return bool(size <= limit)
    except jax.errors.InconclusiveDimensionOperation:
        return False


def is_positive(size: Any) -> bool:
    """Whether a size is 1 or more in every call of the program."""
    return is_at_most(1 - size, 0)


def largest(size: Any) -> int | None:
    """Returns the most that a size can be; None for a dimension without a bound."""
    if not is_symbolic(size):
        return int(size)
    if not is_at_most(size, _MOST):
        return None
    below, bound = -1, _MOST
    while bound - below > 1:
        middle = (below + bound) // 2
        if is_at_most(size, middle):
            bound = middle
        else:
            below = middle
    return bound
