# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The safetensors files of a table: one with all rows, and deltas beside it.

``<table>.safetensors`` holds ``keys`` (int64, ascending) and ``rows``; a delta,
``<table>.delta-000001.safetensors``, holds the keys and rows that changed and, as
``removed``, the keys that left. Each file says in its metadata where it begins and ends
(``since``, ``until``), so that a missing one is noticed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jax_dynemb.stored._schema import Schema, check_version
from jax_dynemb.stored._table import StoredTable
from jax_dynemb.table import Exported

METADATA_KEY = "jax_dynemb"
_DELTA = re.compile(r"(.+)\.delta-(\d{6})\.safetensors")
_BLOCK_ROWS = 65_536


@dataclasses.dataclass(frozen=True)
class Series:
    """The files of one table.

    Attributes:
      base: the file with all rows.
      deltas: the others, in order.
      metadata: of the base.
      until: where the last file ends.
    """

    base: Path
    deltas: tuple[Path, ...]
    metadata: Mapping[str, Any]
    until: int | None

    @property
    def name(self) -> str:
        """Of the table."""
        return self.base.name.removesuffix(".safetensors")

    @property
    def files(self) -> list[Path]:
        """All files, the newest first."""
        return [*reversed(self.deltas), self.base]

    def next_delta(self) -> Path:
        """The path of one more delta."""
        number = len(self.deltas) + 1
        return self.base.with_name(f"{self.name}.delta-{number:06d}.safetensors")

    def keys(self) -> np.ndarray:
        """The keys that a reader of all files holds: int64[n], ascending."""
        known = np.empty(0, np.int64)
        for path in reversed(self.files):
            with opened(path) as file:
                known = np.union1d(known, file.get_tensor("keys"))
                if "removed" in file.keys():  # noqa: SIM118 (not a dict)
                    known = np.setdiff1d(known, file.get_tensor("removed"))
        return known

    def chunks(self) -> Iterator[Exported]:
        """The rows that a reader of all files holds; each in its newest form."""
        for path, place, keys in self._newest():
            with opened(path) as file:
                for start in range(0, len(keys), _BLOCK_ROWS):
                    part = slice(start, start + _BLOCK_ROWS)
                    some = _rows(file, place[part], self.metadata["dim"])
                    scores = np.ones(len(some), np.uint64)
                    yield Exported(keys[part], some, scores, {})

    def index(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Keys; the files have no scores."""
        for _, _, keys in self._newest():
            yield keys, np.ones(len(keys), np.uint64)

    def _newest(self) -> Iterator[tuple[Path, np.ndarray, np.ndarray]]:
        """Of each file the places and keys that no later file speaks of."""
        spoken_of = np.empty(0, np.int64)
        for path in self.files:
            with opened(path) as file:
                keys = file.get_tensor("keys")
                place = np.flatnonzero(~np.isin(keys, spoken_of))
                yield path, place, keys[place]
                spoken_of = np.union1d(spoken_of, keys)
                if "removed" in file.keys():  # noqa: SIM118 (not a dict)
                    spoken_of = np.union1d(spoken_of, file.get_tensor("removed"))


def open_series(base: Path) -> Series:
    """Finds the deltas of a table and checks that none is missing.

    Raises:
      ValueError: the file is not ours, or the files are not one series.
    """
    metadata = read_metadata(base)
    name = base.name.removesuffix(".safetensors")
    deltas = sorted(
        path
        for path in base.parent.iterdir()
        if (match := _DELTA.fullmatch(path.name)) and match[1] == name
    )
    until = metadata.get("until")
    for number, path in enumerate(deltas, 1):
        own = read_metadata(path)
        match = _DELTA.fullmatch(path.name)
        assert match is not None
        if int(match[2]) != number or own["since"] != until:
            raise ValueError(
                f"{path} begins at {own['since']}, but the file before it ends at "
                f"{until}: a delta is missing, or belongs to another export."
            )
        until = own["until"]
    return Series(base, tuple(deltas), metadata, until)


def stored_series(series: Series) -> StoredTable:
    """The table that a reader of all files holds; integer rows become float32."""
    metadata = series.metadata
    schema = Schema(
        name=series.name,
        dim=metadata["dim"],
        param_dtype=metadata["dtype"],
        optimizer={"kind": ""},
        config={"deltas": len(series.deltas), **metadata},
    )
    with opened(series.base) as file:
        count = file.get_slice("keys").get_shape()[0]
    count = len(series.keys()) if series.deltas else count
    return StoredTable(schema, count, {}, series.chunks, series.index)


def base_files(directory: Path) -> list[Path]:
    """The files of a directory that hold whole tables."""
    return sorted(
        path
        for path in directory.glob("*.safetensors")
        if not _DELTA.fullmatch(path.name)
    )


def read_metadata(path: Path) -> dict[str, Any]:
    """What a file says about itself.

    Raises:
      ValueError: it is not a file of this library.
    """
    with opened(path) as file:
        text = (file.metadata() or {}).get(METADATA_KEY)
    if text is None:
        raise ValueError(f"{path} was not written by jax_dynemb: it has no metadata.")
    fields = json.loads(text)
    check_version(fields, path)
    return fields


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Any]:
    """A safetensors file, memory-mapped.

    Raises:
      ImportError: safetensors is not installed.
      ValueError: the file is damaged.
    """
    safetensors = import_safetensors()
    try:
        handle = safetensors.safe_open(path, framework="numpy")
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path} is damaged or no safetensors file: {error}") from None
    with handle as file:
        yield file


@functools.cache
def import_safetensors() -> Any:
    """The package, which is optional.

    Raises:
      ImportError: it is not installed.
    """
    try:
        import safetensors.numpy
    except ImportError as error:
        raise ImportError(
            "This needs safetensors: pip install 'jax-dynemb[export]'."
        ) from error
    return safetensors


def _rows(file: Any, place: np.ndarray, dim: int) -> np.ndarray:
    """Rows in ascending places; integers times their scale are float32[n, dim]."""
    rows = _some(file.get_slice("rows"), place)
    if "scales" not in file.keys():  # noqa: SIM118 (not a dict)
        return rows
    if rows.dtype == np.uint8:  # two columns a byte, each plus eight
        columns = np.stack([rows & 15, rows >> 4], axis=-1).reshape(len(rows), -1)
        rows = columns[:, :dim].astype(np.float32) - 8
    return rows.astype(np.float32) * _some(file.get_slice("scales"), place)[:, None]


def _some(rows: Any, place: np.ndarray) -> np.ndarray:
    if len(place) == 0:
        return rows[0:0]
    first, last = int(place[0]), int(place[-1]) + 1
    return rows[first:last][place - first]
