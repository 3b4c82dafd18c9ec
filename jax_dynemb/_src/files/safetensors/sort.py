# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Sorts rows by their keys, of tables that memory does not hold twice.

A table yields its rows in the order of hashes. A small one is sorted in memory. A large
one goes through files that hold a range of keys each, and these are sorted one by one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

import numpy as np

Columns = dict[str, np.ndarray]


class SortedRows:
    """Takes chunks with "keys" int64[n] and other rows; yields all with ascending keys.

    The first chunk cuts the ``parts``, so its keys should be a fair sample. One part is
    in memory at a time; of several, the others are in files in ``folder``.
    """

    def __init__(self, chunks: Iterable[Columns], parts: int, folder: Path):
        chunks = (chunk for chunk in chunks if len(chunk["keys"]))
        first = next(chunks, None)
        self._parts: list[_Part] = []
        self._ascend = True  # all chunks, as those of files
        if first is None:
            return
        like = {name: array[:0] for name, array in first.items()}
        self._parts = [
            _FilePart(like, folder / f"part-{n}") if parts > 1 else _Part()
            for n in range(max(parts, 1))
        ]
        sample = np.sort(first["keys"])
        self._bounds = sample[np.arange(1, len(self._parts)) * len(sample) // parts]
        for chunk in itertools.chain([first], chunks):
            self._add(chunk)

    def keys(self) -> np.ndarray:
        """int64[n], ascending."""
        parts = [np.sort(part.keys(), kind=self._kind()) for part in self._parts]
        return np.concatenate([np.empty(0, np.int64), *parts])

    def __iter__(self) -> Iterator[Columns]:
        """Every row once; what has been read is given up."""
        while self._parts:
            columns = self._parts.pop(0).take()
            order = np.argsort(columns["keys"], kind=self._kind())
            yield {name: array[order] for name, array in columns.items()}

    def _kind(self) -> Literal["stable"] | None:
        """Names the faster sort: a stable one merges runs that ascend."""
        return "stable" if self._ascend else None

    def _add(self, chunk: Columns) -> None:
        keys = chunk["keys"]
        self._ascend = self._ascend and bool((keys[1:] > keys[:-1]).all())
        number = np.searchsorted(self._bounds, keys, side="right")
        order = np.argsort(number, kind="stable")
        edges = np.searchsorted(number[order], np.arange(len(self._parts) + 1))
        for part, begin, end in zip(self._parts, edges, edges[1:], strict=False):
            if begin < end:
                rows = order[begin:end]
                part.add({name: array[rows] for name, array in chunk.items()})


class _Part:
    """Rows in memory."""

    def __init__(self) -> None:
        self._chunks: list[Columns] = []

    def add(self, chunk: Columns) -> None:
        self._chunks.append(chunk)

    def keys(self) -> np.ndarray:
        return np.concatenate([chunk["keys"] for chunk in self._chunks])

    def take(self) -> Columns:
        chunks, self._chunks = self._chunks, []
        return {n: np.concatenate([c[n] for c in chunks]) for n in chunks[0]}


class _FilePart(_Part):
    """Rows in files, one a column."""

    def __init__(self, like: Columns, path: Path):
        self._like, self._path = like, path
        for name in like:
            self._file(name).touch()

    def add(self, chunk: Columns) -> None:
        for name, array in chunk.items():
            with self._file(name).open("ab") as file:
                file.write(array.reshape(-1).view(np.uint8).data)

    def keys(self) -> np.ndarray:
        return self._read("keys")

    def take(self) -> Columns:
        columns = {name: self._read(name) for name in self._like}
        for name in columns:
            self._file(name).unlink()
        return columns

    def _read(self, name: str) -> np.ndarray:
        like = self._like[name]
        data = np.fromfile(self._file(name), np.uint8).view(like.dtype)
        return data.reshape(-1, *like.shape[1:])

    def _file(self, name: str) -> Path:
        return self._path.with_suffix(f".{name}")
