# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Leaves that are no arrays: numbers, strings and bytes, as orbax can store them.

Each comes back as the type that it was. What could not is refused by ``save``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from jax_dynemb._src.kind_of import kind_of

_EXACT = (bool, int, float, str)
_ARRAYS = (np.ndarray, np.memmap)
_LEAST, _MOST = -(2**63), 2**64 - 1  # of a whole number, in a file


def check_leaves(leaves: Mapping[tuple[str, ...], Any]) -> None:
    """Refuses leaves that ``restore`` could not give back as they are."""
    for path, leaf in leaves.items():
        name = "/".join(path)
        if isinstance(leaf, jax.Array | np.ndarray | np.generic):
            _check_array(name, leaf)
        elif isinstance(leaf, int) and not _LEAST <= leaf <= _MOST:
            raise ValueError(
                f"'{name}' is {leaf}, and a checkpoint stores ints from -2**63 to "
                "2**64 - 1. Save it as a string: str(x)."
            )
        elif not _comes_back(leaf):
            raise TypeError(
                f"'{name}' is {kind_of(leaf)}, which a checkpoint does not store. Save "
                "arrays, numbers, strings, bytes and None; leave the rest out, or "
                "turn it into one of these."
            )


def _check_array(name: str, leaf: Any) -> None:
    plain = isinstance(leaf, jax.Array | np.generic) or type(leaf) in _ARRAYS
    if not plain or not (isinstance(leaf, jax.Array) or _is_numeric(leaf.dtype)):
        raise TypeError(
            f"'{name}' is a {type(leaf).__name__} of dtype {leaf.dtype}, and a "
            "checkpoint stores numbers in the byte order of the machine, without "
            "masks. Make a plain array of these, or strings: x.tolist()."
        )
    if leaf.size == 0:
        raise ValueError(
            f"'{name}' is an array of shape {list(leaf.shape)}, without elements, "
            "which orbax does not store. Leave it out of the tree."
        )


def _is_numeric(dtype: np.dtype) -> bool:
    ours = dtype.kind == "V" and dtype.fields is None and dtype.type is not np.void
    return (dtype.kind in "biufc" or ours) and dtype.isnative


def _comes_back(leaf: Any) -> bool:
    try:
        stored = as_stored(leaf)
        same = leaf != leaf or as_given(leaf, stored) == leaf  # or not a number
        return type(stored) in _EXACT and same
    except (TypeError, ValueError):
        return False


def as_stored(leaf: Any) -> Any:
    """Returns what orbax stores of a leaf, or reads for it; arrays as they are."""
    if isinstance(leaf, np.generic) and not isinstance(leaf, np.str_ | np.bytes_):
        return np.asarray(leaf)
    if isinstance(leaf, bytes):
        return leaf.decode("latin-1")
    if type(leaf) not in _EXACT:
        if isinstance(leaf, str):
            return str.__str__(leaf)  # an Enum has another one
        base = next((kind for kind in _EXACT if isinstance(leaf, kind)), None)
        return leaf if base is None else base(leaf)
    return leaf


def as_given(leaf: Any, stored: Any) -> Any:
    """Returns a value that orbax read for ``as_stored``, as the type of a leaf."""
    if isinstance(leaf, np.generic) and isinstance(stored, np.ndarray):
        return stored[()]
    if isinstance(leaf, bytes):
        return type(leaf)(stored.encode("latin-1"))
    if isinstance(leaf, _EXACT) and type(leaf) is not type(stored):
        return type(leaf)(stored)
    return stored
