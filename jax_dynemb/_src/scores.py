# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Converts scores of customized tables: 62 bits, as pairs of uint32 words.

With 64-bit types switched off, JAX has no integers of 64 bits. So scores that are
traced travel as words, as ids do (``ids.py``).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jax_dynemb._src.is_whole import is_whole

MOST_SCORE = 2**62 - 1  # core/custom_score.h
_GIVEN = np.uint32(1 << 31)  # of the high word: there is a score
_FORMS = (
    "NumPy int64 or uint64, Python ints, 32-bit integers, or uint32[..., 2] from "
    "jde.scores"
)


def scores(x: Any, *, sharding: jax.sharding.Sharding | None = None) -> jax.Array:
    """Makes scores that a jitted step takes as an argument, from 64-bit integers.

    Args:
      x: whole numbers from 0 to 2**62 - 1, of any shape: a NumPy array, or nested
        sequences of Python ints. ``time.time_ns()`` is one.
      sharding: where to put the result; the default device if None.

    Returns:
      uint32[..., 2], the low and the high word of each score.

    Raises:
      TypeError: ``x`` does not hold integers, or is a jax Array (which may have been
        truncated to 32 bits already).
      ValueError: a score is out of range.

    Example:
      >>> jde.scores([3, 2**40]).tolist()
      [[3, 0], [0, 256]]
    """
    if isinstance(x, jax.Array):
        raise TypeError(
            f"jde.scores takes NumPy arrays, not a jax Array of dtype {x.dtype}: JAX "
            "may already have truncated 64-bit values. Call jde.scores on the NumPy "
            "array; a jax Array can be given to a lookup as it is."
        )
    array = np.asarray(x)
    low, high = score_words(array, "jde.scores", array.shape)
    return jax.device_put(np.stack([low, high], axis=-1), sharding)


def is_pair(x: Any) -> bool:
    """Whether a value is one score as two words, uint32[2]."""
    return np.shape(x) == (2,) and getattr(x, "dtype", None) == np.uint32


def score_words(x: Any, where: str, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Splits scores into uint32[shape] low and high words; checks known numbers.

    A traced number below 0 counts as 0. The kernels count a pair above 2**62 - 1 as
    that. ``x`` may be words already; results are in NumPy if it is no jax Array.
    """
    array: Any = x if isinstance(x, jax.Array) else np.asarray(x)
    if array.dtype.kind == "O" and array.size and all(is_whole(n) for n in array.flat):
        _refuse(where, min(array.flat), max(array.flat))
    if array.dtype.kind not in "iu":
        raise TypeError(
            f"{where}: scores must be whole numbers, not {array.dtype}. Give {_FORMS}."
        )
    if array.shape == (*shape, 2) and array.dtype == np.uint32:
        low, high = array[..., 0], array[..., 1]
        if not isinstance(array, Tracer) and array.size:
            _check(where, 0, int(high.max()) << 32)
        return low, high
    if array.shape != shape:
        raise ValueError(
            f"{where}: scores have shape {array.shape} {array.dtype}, but must have "
            f"{shape}: one for each id, or one for the whole lookup under the name of "
            f"the table. Give {_FORMS}."
        )
    if not isinstance(array, Tracer) and array.size:
        _check(where, int(array.min()), int(array.max()))
    if isinstance(array, np.ndarray):
        words = np.ascontiguousarray(array.astype(np.uint64)).view(np.uint32)
        words = words.reshape(*shape, 2)
        return words[..., 0], words[..., 1]
    array = jnp.maximum(array, 0)
    if array.dtype.itemsize == 8:  # where 64-bit types are switched on
        low, high = array & 0xFFFFFFFF, array >> 32
        return low.astype(jnp.uint32), high.astype(jnp.uint32)
    return array.astype(jnp.uint32), jnp.zeros(shape, jnp.uint32)


def given(words: tuple[Any, Any]) -> tuple[jax.Array, jax.Array]:
    """Marks words as those of a score that was given, as kernels take it."""
    low, high = (jnp.asarray(word, jnp.uint32) for word in words)
    return low, jnp.minimum(high, _GIVEN - 1) | _GIVEN


def _check(where: str, least: int, most: int) -> None:
    if least < 0 or most > MOST_SCORE:
        _refuse(where, least, most)


def _refuse(where: str, least: int, most: int) -> None:
    which = f"{least}" if least == most else f"from {least} to {most}"
    raise ValueError(
        f"{where}: scores must be from 0 to 2**62 - 1, not {which}. Subtract what all "
        "have in common, or count in larger units."
    )
