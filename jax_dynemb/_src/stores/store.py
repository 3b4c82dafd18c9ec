# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Defines stores: rows by key below the tables of a program."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

import numpy as np

from jax_dynemb._src.rows import Exported, Identity
from jax_dynemb._src.stores.layout import Layout

_AT_ONCE = 1 << 16  # rows that are read
_RESERVED = np.uint64(2**64 - 4)  # and above: -4 to -1, see jde.ids


@runtime_checkable
class Store(Protocol):
    """Keeps the rows of one table by key, outside of the program's arrays.

    Keys are int64[n] or uint64[n], any but -4 to -1. A row is ``layout.row_bytes``
    bytes: its score, its columns, its optimizer states (``Layout``). Every method takes
    any number of keys, none too, and may be called from several threads.

    What a crash leaves of the rows is different for each store: see
    docs/concepts/stores.md. A store whose ``open`` brings back the rows of a commit has
    an attribute ``goes_back`` that is True. Below a table, other stores keep a row that
    came up for five commits, so that checkpoints that are kept find it there.

    Attributes:
      layout: how rows lie in bytes.
    """

    @property
    def layout(self) -> Layout:
        """How rows lie in bytes."""
        ...

    def get(self, keys: Any) -> tuple[np.ndarray, np.ndarray]:
        """Reads rows.

        Args:
          keys: of the rows; one may come several times.

        Returns:
          bool[n], which keys have a row; and uint8[n, row_bytes], zeros for the others.

        Raises:
          DamagedFileError: a row is not what was put.
        """
        ...

    def put(self, keys: Any, packed: np.ndarray, step: int = 0) -> np.ndarray:
        """Writes rows over those that their keys have.

        Of a key that comes twice, the last row counts.

        Args:
          keys: of the rows.
          packed: uint8[n, row_bytes], what ``Layout.pack`` returns.
          step: of the training that made the rows, for people and for readers.

        Returns:
          bool[n], which rows are stored. A store without room refuses rows, and their
          keys keep the rows that they have.

        Raises:
          OSError: the disk or the server refuses; some rows may have been stored.
          ValueError: a reserved key, or rows of another width.
        """
        ...

    def discard(self, keys: Any) -> int:
        """Removes rows; returns how many there were."""
        ...

    def commit(self, tag: str, step: int | None = None) -> None:
        """Makes the rows as they are now last, under a name.

        Args:
          tag: letters, digits, ".", "_" and "-"; a name that exists is replaced.
          step: to remember; that of the last put if None.
        """
        ...

    def open(self, tag: str | None = None) -> None:
        """Goes back to a commit, exactly, where ``goes_back`` is True.

        Args:
          tag: of the commit; the last one if None.

        Raises:
          FileNotFoundError: there is no such commit.
        """
        ...

    def keys(self) -> np.ndarray:
        """Lists the keys that have a row: int64[n], in any order."""
        ...

    def stats(self) -> dict[str, Any]:
        """Counts rows, bytes and what has happened, by name."""
        ...


def rows_of_store(store: Store, keys: np.ndarray) -> Iterator[Exported]:
    """Reads the rows of keys int64[n], some at a time; keys may have none."""
    for begin in range(0, len(keys), _AT_ONCE):
        some = keys[begin : begin + _AT_ONCE]
        found, packed = store.get(some)
        yield store.layout.unpack(some[found], packed[found])


def as_keys(keys: Any) -> np.ndarray:
    """Makes uint64[n] of the keys of a call; refuses reserved ones."""
    array = np.asarray(keys)
    if array.size == 0 and array.dtype.kind == "f":  # np.asarray([]) is float64
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise TypeError(
            f"keys must be integers of 64 bits, not {array.dtype}. Hash other values "
            "with jde.hash_ids."
        )
    if array.ndim != 1:
        raise ValueError(
            f"keys must be one array of n keys, not of shape {array.shape}. Pairs of "
            "words from jde.ids become keys by np.asarray(ids).view(np.int64)[..., 0]."
        )
    if array.dtype != np.uint64:
        array = array.astype(np.int64, copy=False).view(np.uint64)
    reserved = array >= _RESERVED
    if reserved.any():
        raise ValueError(
            f"{int(reserved.sum())} keys are -1 to -4, which are padding or reserved "
            "(as unsigned: from 2**64 - 4 on). Leave them out."
        )
    return np.ascontiguousarray(array)


def as_rows(packed: Any, count: int, layout: Layout) -> np.ndarray:
    """Checks the rows of a call: uint8[n, row_bytes]."""
    array = np.asarray(packed)
    if array.dtype != np.uint8:
        raise TypeError(
            f"rows must be uint8[n, {layout.row_bytes}] from store.layout.pack, not "
            f"{array.dtype}"
        )
    if array.shape != (count, layout.row_bytes):
        raise ValueError(
            f"{count} keys need rows of shape {(count, layout.row_bytes)}, not "
            f"{array.shape}. store.layout.pack makes them."
        )
    return np.ascontiguousarray(array)


def as_tag(tag: str) -> str:
    """Refuses a commit's name that could not be a file's everywhere."""
    plain = isinstance(tag, str) and tag.replace("-", "").replace("_", "")
    good = plain and plain.replace(".", "").isalnum() and plain.isascii()
    if not good or tag.startswith(".") or len(tag) > 100:
        raise ValueError(
            f"a tag is 1 to 100 letters, digits, '.', '_' or '-' and begins with none "
            f"of '.', such as 'step-1000'; not {tag!r}"
        )
    return tag


def as_signed(keys: np.ndarray) -> np.ndarray:
    """Keys uint64[n] as int64[n]."""
    return keys.view(np.int64)


@runtime_checkable
class Identified(Protocol):
    """Describes a store that remembers of which table and moment its rows are.

    A commit keeps the identity, and ``open`` brings it back. A store may also have a
    method ``identity_at(tag)``, which reads that of a commit. A restore calls it before
    ``open``, so that a store that does not fit stays as it is.

    Attributes:
      identity: as it was noted last; None if nothing is known.
    """

    identity: Identity | None
