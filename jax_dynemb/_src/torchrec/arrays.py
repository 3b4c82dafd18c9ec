# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Arrays of jagged tensors: on the host or traced, ids as pairs of words or floats.

Ids lie as uint32[n, 2], the low and the high word, so that no path through JAX makes
32 bits of 64. The same code serves NumPy and JAX: ``xp`` picks the module.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jax_dynemb._src.ids import words_of


def stored(x: Any) -> Any:
    """Brings what a user passes as values into the form that leaves have.

    Integers in NumPy or lists become pairs of words, as do real 64-bit jax Arrays.
    Floats, pairs and 32-bit jax Arrays stay.
    """
    if not hasattr(x, "dtype"):
        x = np.asarray(x)
    if isinstance(x, np.ndarray):
        return words_of(x) if x.dtype.kind in "iu" and not is_pairs(x) else x
    if jnp.dtype(x.dtype).kind in "iu" and x.dtype.itemsize == 8:
        return jax.lax.bitcast_convert_type(x, jnp.uint32)
    return x


def shown(x: Any) -> Any:
    """The reverse of ``stored`` for arrays on the host; others stay as they are."""
    if isinstance(x, np.ndarray) and is_pairs(x):
        return np.ascontiguousarray(x).view(np.int64)[..., 0]
    return x


def is_pairs(x: Any) -> bool:
    """Whether an array holds ids of two words each, as ``jde.ids`` makes them."""
    return x.dtype == np.uint32 and x.ndim >= 2 and x.shape[-1] == 2


def is_traced(*arrays: Any) -> bool:
    """Whether the numbers of any array are unknown until a program runs."""
    return any(isinstance(x, Tracer) for x in arrays)


def xp(*arrays: Any) -> Any:
    """NumPy if every array is on the host, else jax.numpy."""
    return np if all(isinstance(x, np.ndarray) for x in arrays) else jnp


def where_live(live: Any, array: Any, otherwise: Any) -> Any:
    """Keeps the entries that are live; ``live`` has the leading axes of ``array``."""
    live = live.reshape(*live.shape, *[1] * (array.ndim - live.ndim))
    return xp(live, array).where(live, array, otherwise)


def padding_like(array: Any, value: Any = None) -> np.ndarray:
    """Returns what fills places without an entry: a scalar, or words uint32[2].

    ``value`` of None is -1 for ids and 0 for floats.
    """
    integers = jnp.dtype(array.dtype).kind in "iu"
    value = (-1 if integers else 0) if value is None else value
    if is_pairs(array):
        return np.array([int(value)], np.int64).view(np.uint32)
    if integers:
        return np.array(int(value)).astype(array.dtype)
    return np.asarray(value, array.dtype)


def taken(array: Any, index: Any, live: Any, otherwise: Any) -> Any:
    """Takes entries of [n, ...] by position; ``otherwise`` where one is not live."""
    if array.shape[0] == 0:
        shape = (*index.shape, *array.shape[1:])
        return xp(array, index).broadcast_to(otherwise, shape).astype(array.dtype)
    module = xp(array, index, live)
    safe = module.where(live, index, 0)
    return where_live(live, module.take(array, safe, axis=0), otherwise)
