# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The safetensors files of a table: one with all rows, and deltas beside it.

``<table>.safetensors`` holds ``keys`` (int64, ascending) and ``rows``. A delta,
``<table>.delta-000001.safetensors``, holds the keys and rows that changed and, as
``removed``, the keys that are no longer stored. Each file says in its metadata where it
begins and ends (``since``, ``until``), so that a missing one is noticed.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from jax_dynemb._src.files.disk import progress_bar
from jax_dynemb._src.files.integrity import (
    SUFFIX,
    Advance,
    Chain,
    DamagedFileError,
    Header,
    read_chain,
    read_table_header,
    table_of_delta,
    verify,
)
from jax_dynemb._src.files.safetensors.counts import check_counts, stored_counts
from jax_dynemb._src.files.safetensors.tensors import (
    check_delta,
    check_table,
    read_tensor,
)
from jax_dynemb._src.rows import (
    Exported,
    Identity,
    Schema,
    StoredTable,
    among,
    distinct,
    held_last,
    identity_of,
    last_holders,
)

_MOST_ROWS, _MOST_BYTES = 1 << 16, 1 << 24  # of a chunk, as table/chunks.py has them


@dataclasses.dataclass(frozen=True)
class Series:
    """The files of one table, whose headers have been checked."""

    base: Header  # the file with all rows
    deltas: tuple[Header, ...]  # the others, in order
    rows: int
    dim: int

    @property
    def name(self) -> str:
        """Returns the name of the table."""
        return self.base.path.name.removesuffix(SUFFIX)

    @property
    def files(self) -> list[Header]:
        """All files, the newest first."""
        return [*reversed(self.deltas), self.base]

    @property
    def until(self) -> int | None:
        """Where the last file ends."""
        return self.files[0].fields.get("until")

    @property
    def step(self) -> int | None:
        """How many updates the table had had, if the last file says so."""
        fields = self.files[0].fields
        return fields.whole("step") if fields.get("step") is not None else None

    @property
    def head(self) -> tuple[int, ...] | None:
        """Where the log of removed keys was, at the end of the last file that says."""
        fields = self.files[0].fields
        return tuple(fields.wholes("head")) if fields.get("head") else None

    @property
    def identity(self) -> Identity | None:
        """Reads of which run and moment the last file is; None if it does not say."""
        header = self.files[0]
        try:
            return identity_of(header.fields)
        except ValueError as error:
            raise DamagedFileError(header.path, str(error)) from None

    @property
    def data_bytes(self) -> int:
        """Returns how many bytes ``verify`` reads of all files."""
        return sum(each.data_bytes for each in self.files if each.sums is not None)

    def verify(self, advance: Advance | None = None) -> None:
        """Compares all files with the checksums that they have."""
        for each in self.files:
            verify(each, advance)

    def next_delta(self) -> Path:
        """Returns the path of one more delta."""
        number = len(self.deltas) + 1
        return self.base.path.with_name(f"{self.name}.delta-{number:06d}.safetensors")

    def keys(self) -> np.ndarray:
        """The keys that a reader of all files holds: int64[n], ascending."""
        named, last = self._last_words
        keys = read_tensor(self.base, "keys")
        stored = last % 2 == 1  # not removed
        return distinct(keys[~among(keys, named)], named[stored])

    def chunks(self) -> Iterator[Exported]:
        """The rows that a reader of all files holds; each in its newest form."""
        for file, place, keys in self._pieces():
            rows = rows_of(file, place, self.dim)
            yield Exported(keys, rows, np.ones(len(keys), np.uint64), {})

    def encoded(self, dtype: str) -> Iterator[dict[str, np.ndarray]] | None:
        """Yields keys, rows and their scales as the files hold them.

        Returns None unless all files hold rows of that format.
        """
        if any(file.fields.get("dtype") != dtype for file in self.files):
            return None  # deltas of tables have floats, and name no format
        columns = [n for n in ("rows", "scales") if n in self.base.tensors]
        return (
            {"keys": keys} | {name: _some(file, name, place) for name in columns}
            for file, place, keys in self._pieces()
        )

    def index(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Keys; the files have no scores."""
        for _, _, keys in self._newest():
            yield keys, np.ones(len(keys), np.uint64)

    def _pieces(self) -> Iterator[tuple[Header, np.ndarray, np.ndarray]]:
        """Cuts what ``_newest`` yields to the sizes of chunks."""
        count = min(_MOST_ROWS, max(1, _MOST_BYTES // (4 * self.dim)))
        for file, place, keys in self._newest():
            for start in range(0, len(keys), count):
                part = slice(start, start + count)
                yield file, place[part], keys[part]

    def _newest(self) -> Iterator[tuple[Header, np.ndarray, np.ndarray]]:
        """Yields for each file the places and keys that no later file names."""
        for number, file in reversed(list(enumerate(self.deltas))):
            keys = read_tensor(file, "keys")
            place = np.flatnonzero(held_last(keys, 2 * number + 1, self._last_words))
            yield file, place, keys[place]
        keys = read_tensor(self.base, "keys")
        place = np.flatnonzero(~among(keys, self._last_words[0]))
        yield self.base, place, keys[place]

    @functools.cached_property
    def _last_words(self) -> tuple[np.ndarray, np.ndarray]:
        """Finds the last word on a key: of delta n, 2n if removed, 2n + 1 if stored."""
        none = np.empty(0, np.int64)
        return last_holders(
            [
                read_tensor(file, name) if name in file.tensors else none
                for file in self.deltas
                for name in ("removed", "keys")
            ]
        )


def open_series(base: Path) -> Series:
    """Finds the files of a table; checks headers and keys, not yet checksums."""
    table = base.name.removesuffix(SUFFIX)
    chain: Chain = read_chain(base.parent, table)
    header = read_table_header(base) if chain.base is None else chain.base
    rows, dim = check_table(header)
    check_counts(header)
    for delta in chain.deltas:
        for name in ("since", "until"):
            delta.fields.whole(name)
        check_delta(delta, dim)
    return Series(header, chain.deltas, rows, dim)


def stored_series(series: Series) -> StoredTable:
    """The table that a reader of all files holds; integer rows become float32."""
    fields = series.base.fields
    schema = Schema(
        name=series.name,
        dim=series.dim,
        param_dtype=fields.text("dtype"),
        optimizer={"kind": ""},
        config={"deltas": len(series.deltas), **fields},
    )
    later = series.keys() if series.deltas else np.empty(0, np.int64)
    count = len(later) if series.deltas else series.rows
    counters = {} if series.step is None else {"step": series.step}
    counts = stored_counts(series.base, later)
    read = series.chunks, series.index
    return StoredTable(schema, count, counters, *read, encoded=series.encoded, **counts)


def rows_of(file: Header, place: np.ndarray, dim: int) -> np.ndarray:
    """Rows in ascending places; integers times their scale are float32[n, dim]."""
    rows = _some(file, "rows", place)
    if "scales" not in file.tensors:
        return rows
    if rows.dtype == np.uint8:  # two columns a byte, each plus eight
        columns = np.stack([rows & 15, rows >> 4], axis=-1).reshape(len(rows), -1)
        rows = columns[:, :dim].astype(np.float32) - 8
    return rows.astype(np.float32) * _some(file, "scales", place)[:, None]


def _some(file: Header, name: str, place: np.ndarray) -> np.ndarray:
    if len(place) == 0:
        return read_tensor(file, name, 0, 0)
    first, last = int(place[0]), int(place[-1]) + 1
    found = read_tensor(file, name, first, last)
    return found if len(place) == len(found) else found[place - first]


def stored_exports(
    files: list[Path], verify: bool, quiet: bool
) -> dict[str, StoredTable]:
    """Opens files of whole tables by name, each with the deltas beside it."""
    if deltas := [file for file in files if table_of_delta(file)]:
        problem = "it is a delta, which has some rows of a table only"
        fix = "Give the directory that it is in."
        raise DamagedFileError(deltas[0], problem, fix)
    found = [open_series(file) for file in files]
    if verify:
        total = sum(each.data_bytes for each in found)
        with progress_bar("verifying", total, quiet) as advance:
            for each in found:
                each.verify(advance)
    return {each.name: stored_series(each) for each in found}
