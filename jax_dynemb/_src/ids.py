# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Converts 64-bit ids: numpy integers become pairs of uint32 words.

With 64-bit types switched off, JAX turns an int64 array into int32 without a word
wherever it enters: asarray, device_put, a jit argument. Pairs survive all of it.
"""

from __future__ import annotations

import time
from typing import Any

import jax
import numpy as np

PADDING = -1
_RESERVED = (-2, -3, -4)
_MOST_DEPTH = 32  # of nested lists


def ids(x: Any, *, sharding: jax.sharding.Sharding | None = None) -> jax.Array:
    """Makes ids that every table accepts from 64-bit integers.

    Args:
      x: integers of any shape: a numpy array (int64, uint64 or narrower) or nested
        sequences of Python ints. -1 is padding.
      sharding: where to put the result; the default device if None. If it spans
        several processes, ``x`` is this process's part of the batch.

    Returns:
      uint32[..., 2], the low and the high word of each id.

    Raises:
      TypeError: ``x`` does not hold integers, or is a jax Array (which may have been
        truncated to 32 bits already).
      ValueError: an id is -2, -3 or -4, which are reserved.
    """
    pairs = words_of(x)
    if sharding is not None and not sharding.is_fully_addressable:
        return jax.make_array_from_process_local_data(sharding, pairs)
    return jax.device_put(pairs, sharding)


def words_of(x: Any) -> np.ndarray:
    """Makes uint32[..., 2] on the host, of int64 a view; refuses reserved ids."""
    if isinstance(x, jax.Array):
        raise TypeError(
            f"jde.ids takes numpy arrays, not a jax Array of dtype {x.dtype}: JAX may "
            "already have truncated 64-bit values. Call jde.ids on the numpy array; a "
            "64-bit jax Array can be given to a lookup as it is."
        )
    array = array_of(x)
    if array.size == 0 and array.dtype.kind == "f":  # np.asarray([]) is float64
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise TypeError(f"ids must be integers, not {array.dtype}. {_fix_of(array)}")
    _refuse_reserved(array)
    words = np.ascontiguousarray(array.astype(np.int64, copy=False))
    return words.view(np.uint32).reshape(*array.shape, 2)


def array_of(x: Any) -> np.ndarray:
    """Makes a NumPy array of ids, which may be nested lists of equal lengths."""
    check_depth("ids", x)
    try:
        return np.asarray(x)
    except jax.errors.TracerArrayConversionError as error:
        raise TypeError(
            "ids are lists of numbers that jit traces one by one. Pass one array: "
            "jde.ids(ids), outside of jit."
        ) from error
    except ValueError as error:  # NumPy makes no array of lists of unequal lengths
        raise ValueError(
            "ids are nested lists of unequal lengths. Pad them with -1, or give the "
            "lookup jde.Jagged.from_lists(bags)."
        ) from error
    except MemoryError as error:
        raise MemoryError(
            f"ids of the type {type(x).__name__} are more than memory holds: give them "
            "in parts, batch by batch."
        ) from error


def check_depth(what: str, x: Any) -> None:
    """Refuses lists in which NumPy and JAX would recurse without end.

    A list that has itself in it twice keeps NumPy busy for ever. JAX gives up, but
    leaves the interpreter less of its stack.
    """
    level = [x] if _is_list(x) and x and _is_list(x[0]) else []
    for _ in range(_MOST_DEPTH):
        if not level:
            return
        inner = {id(y): y for each in level for y in each if _is_list(y)}
        level = list(inner.values())
    raise ValueError(
        f"{what} are lists in lists, more than {_MOST_DEPTH} deep. Give an array, and "
        "no list that has itself in it."
    )


def _is_list(x: Any) -> bool:
    return isinstance(x, (list, tuple))


def _fix_of(array: np.ndarray) -> str:
    """Says how values that are no integers become ids."""
    if array.dtype.kind == "f":
        return (
            "A float holds integers up to 2**53 only. Replace missing values by -1, "
            "and convert with .astype('int64')."
        )
    hashed = "Hash strings and other values to 64-bit ids with jde.hash_ids."
    if array.dtype.kind == "O":
        return f"Convert Python ints with .astype('int64'). {hashed}"
    return hashed


def _refuse_reserved(array: np.ndarray) -> None:
    if array.dtype.kind == "u" and array.dtype.itemsize < 8:
        return
    signed = array.astype(np.int64, copy=False)
    bad = (signed <= _RESERVED[0]) & (signed >= _RESERVED[-1])
    if bad.any():
        raise ValueError(
            f"{int(bad.sum())} ids are -2, -3 or -4, which are reserved (as unsigned: "
            "2**64 - 2 to 2**64 - 4). Use -1 for padding, or map them to other values, "
            "for example with jde.hash_ids."
        )


def now(seconds: float | None = None) -> np.ndarray:
    """Reads the host's time, as lookups of "timestamp" tables take it.

    Pass it to a jitted step as an argument: a value that is read while tracing would
    be that of the first step for ever. ``jde.nnx.jit`` passes it by itself.

    Args:
      seconds: since 1970, of events that are trained later than they happened; the
        time of this call if None.

    Returns:
      uint32[2], the low and the high word of the nanoseconds since 1970.

    Example:
      >>> def step(state, ids, now):
      ...     rows, residual, state = coll.lookup(state, ids, now=now)
      >>> step(state, ids, jde.now())  # doctest: +SKIP

    Raises:
      TypeError: seconds is no number.
      ValueError: seconds is no time between 1970 and 2286.
    """
    if seconds is None:
        nanoseconds = time.time_ns()
    elif not isinstance(seconds, (int, float, np.number)):
        raise TypeError(f"seconds must be a number, not {seconds!r}: time.time()")
    elif 0 <= seconds < 1e10:
        nanoseconds = round(seconds * 1e9)
    else:
        raise ValueError(f"seconds must be a time since 1970, not {seconds!r}")
    return np.array([nanoseconds], np.uint64).view(np.uint32)
