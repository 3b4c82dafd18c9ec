# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Which leaves a checkpoint can hold, and their names as names of files.

Numbers, strings and bytes are stored as orbax can store them, and each comes back as
the type that it was. What could not, or would share a file, is refused by ``save``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import numpy as np

from jax_dynemb._src.files.checkpoint import checksums as _checksums
from jax_dynemb._src.files.checkpoint.layout import SCHEMA_FILE
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


_MOST_BYTES = 255  # of a file's name
# Orbax and this package write these beside the arrays.
_TAKEN = {SCHEMA_FILE, _checksums.FILE, "_METADATA", "_sharding", "array_metadatas"}
_TAKEN |= {"commit_success.txt", "manifest.ocdbt", "ocdbt.process_0", "d"}
_CHECKSUMS = re.compile(r"checksums\.\d+\.json")


def check_names(paths: Iterable[tuple[str, ...]]) -> None:
    """Refuses two leaves of one file, and names that are none of a file."""
    owners: dict[str, tuple[str, ...]] = {}
    for path in paths:
        file = ".".join(path)
        if problem := _problem(file):
            raise ValueError(
                f"The leaf {list(path)} of the tree can not be saved: {problem}. "
                "Rename the key of the dict, or the attribute."
            )
        for name in {file, "/".join(path)}:
            other = owners.setdefault(name, path)
            if other != path:
                raise _same_file(other, path)
    for file, path in owners.items():
        for i in (i for i, letter in enumerate(file) if letter == "/"):
            if (other := owners.get(file[:i], path)) != path:
                raise _same_file(other, path)


def _problem(file: str) -> str | None:
    parts = file.split("/")
    if "\0" in file or {"", ".", ".."} & set(parts):
        return "its name is empty, or leads out of the checkpoint"
    if parts[0] in _TAKEN or _CHECKSUMS.fullmatch(parts[0]):
        return f"'{parts[0]}' is a file of every checkpoint"
    if any(len(os.fsencode(part)) > _MOST_BYTES for part in parts):
        return f"its name has more than {_MOST_BYTES} bytes, too many for a file"
    return None


def _same_file(one: tuple[str, ...], other: tuple[str, ...]) -> ValueError:
    return ValueError(
        f"The leaves {list(one)} and {list(other)} of the tree would share a file. "
        "Rename one of them: without '.' and '/' in the keys of dicts there are no "
        "such pairs."
    )
