# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A serving lookup from NumPy to NumPy: one array goes in, and a few come out.

An array takes JAX 20 to 30 us each way, whatever its size. So ids of all features are
joined on the host, and rows of all features in the program.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb._src.ids import words_of
from jax_dynemb._src.jagged import Jagged
from jax_dynemb._src.kind_of import kind_of

_MOST = 128  # programs, as of kept_jit
_WIDE, _NARROW = ("i8", "u8"), ("i4", "u4", "f2", "f4", "f8")


def numpy_find(
    coll: Any, state: Any, ids: Mapping[str, Any], weights: Mapping[str, Any]
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Returns rows and found of ``find``, as NumPy arrays that are not to be written.

    Raises:
      TypeError: ids or weights are no NumPy arrays, or of another dtype.
    """
    given = ({feature: _short(x) for feature, x in ids.items()}, weights)
    leaves, structure = jax.tree.flatten(given)
    for leaf in leaves:
        if not isinstance(leaf, np.ndarray):
            _refuse(leaf)
    shapes = tuple([(leaf.shape, leaf.dtype) for leaf in leaves])
    return _program(coll, structure, shapes)(state, leaves)


def _short(ids: Any) -> Any:
    """Lengths of bags have 32 bits, as in programs: of 64 bits are ids alone."""
    if isinstance(ids, Jagged) and isinstance(ids.lengths, np.ndarray):
        return Jagged(ids.values, ids.lengths.astype(np.int32), ids.weights)
    return ids


def _refuse(given: Any) -> None:
    raise TypeError(
        "find(as_numpy=True) takes NumPy arrays, with integers of 32 or 64 bits as "
        f"ids, not {kind_of(given)}. Give ids as they are on the host, without "
        "jde.ids; inside of jit leave as_numpy out."
    )


class _Program:
    """A find of arrays of certain shapes, in which all of them are one array."""

    def __init__(self, coll: Any, structure: Any, shapes: Sequence[Any]):
        for shape, dtype in shapes:
            if dtype.str[1:] not in (*_WIDE, *_NARROW):
                _refuse(np.empty(shape, dtype))
        self._coll, self._structure, self._shapes = coll, structure, shapes
        wide = [dtype.str[1:] in _WIDE for _, dtype in shapes]
        # Those of 64 bits first, so that the words of each begin at an even place.
        self._order = sorted(range(len(wide)), key=lambda i: not wide[i])
        self._wide = sum(wide)
        self._find = jax.jit(self._traced)
        self._parts: list[Any] = []  # of what the program returns; set when traced
        self._returned: Any = None

    def __call__(self, state: Any, leaves: Sequence[np.ndarray]) -> Any:
        """Looks up, and cuts what comes back; equal shapes are cut in one go."""
        ordered = [leaves[i].ravel() for i in self._order]
        joined = self._find(state, _joined(ordered, self._wide))
        arrays: list[np.ndarray] = []
        for dtype, begin, end, shape in self._parts:
            arrays += list(np.asarray(joined[dtype])[begin:end].reshape(shape))
        return self._returned.unflatten(arrays)

    def _traced(self, state: Any, words: jax.Array) -> dict[str, jax.Array]:
        leaves: list[Any] = [None] * len(self._order)
        begin = 0
        for i in self._order:
            leaves[i], begin = _leaf_at(words, begin, *self._shapes[i])
        ids, weights = self._structure.unflatten(leaves)
        returned = self._coll.find(state, ids, weights)[:2]
        arrays, self._returned = jax.tree.flatten(returned)
        by_dtype: dict[str, list[jax.Array]] = {}
        self._parts, ends = [], {}
        for (dtype, shape), group in itertools.groupby(arrays, _kind):
            some = list(group)
            begin = ends.get(dtype, 0)
            ends[dtype] = begin + len(some) * math.prod(shape)
            self._parts.append((dtype, begin, ends[dtype], (len(some), *shape)))
            by_dtype.setdefault(dtype, []).extend(a.reshape(-1) for a in some)
        return {dtype: jnp.concatenate(some) for dtype, some in by_dtype.items()}


_program = functools.lru_cache(_MOST)(_Program)


def _kind(array: jax.Array) -> tuple[str, tuple[int, ...]]:
    return str(array.dtype), array.shape


def _joined(arrays: Sequence[np.ndarray], wide: int) -> np.ndarray:
    """Joins flat arrays as words of 32 bits; the first ``wide`` are ids of 64 bits."""
    words = [_of_32_bits(array).view(np.uint32) for array in arrays[wide:]]
    if wide:
        ids = np.concatenate([array.view(np.int64) for array in arrays[:wide]])
        words.insert(0, words_of(ids).ravel())
    return words[0] if len(words) == 1 else np.concatenate(words)


def _of_32_bits(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32) if array.dtype.kind == "f" else array


def _leaf_at(
    words: jax.Array, begin: int, shape: tuple[int, ...], dtype: np.dtype
) -> tuple[jax.Array, int]:
    """Takes one array out of the words; returns where the next one begins."""
    wide = dtype.str[1:] in _WIDE
    shape = (*shape, 2) if wide else shape
    end = begin + math.prod(shape)
    leaf = words[begin:end].reshape(shape)
    if not wide and dtype.kind != "u":
        to = jnp.int32 if dtype.kind == "i" else jnp.float32
        leaf = jax.lax.bitcast_convert_type(leaf, to)
    return leaf, end
