# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tables as parquet files: one row a row, for warehouses and data frames; and back."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jax_dynemb._src.files.disk import (
    library_errors,
    new_directory,
    progress_bar,
    write_side_file,
)
from jax_dynemb._src.files.integrity import (
    NAME,
    Advance,
    DamagedFileError,
    file_bytes,
    read_entries,
    verify_files,
)
from jax_dynemb._src.rows import Exported, Schema, StoredTable

_BLOCK_ROWS = 65_536
_COUNTS = "counts"  # a folder: no table has the name of a file in one


def write_parquet(path: Path, tables: Mapping[str, StoredTable]) -> None:
    """Writes ``<table>.parquet`` for each table into a new directory.

    Columns: key int64, row fixed_size_list<float>[dim], score uint64, pinned bool, and
    each optimizer state under its name. Counts of ids without a row, where they are
    kept by id, are in ``counts/<table>.parquet``: key int64, count int64.
    """
    pyarrow, parquet = _import()
    total = sum(table.rows for table in tables.values())
    with new_directory(path) as draft, progress_bar("parquet", total) as advance:
        for name, table in tables.items():
            schema = _schema(pyarrow, table)
            target = draft / f"{name}.parquet"
            with parquet.ParquetWriter(
                target, schema, write_page_checksum=True
            ) as writer:
                for chunk in table.chunks():
                    pinned = chunk.pinned
                    if pinned is None:  # the source knows of no pins
                        pinned = np.zeros(len(chunk.keys), bool)
                    columns = [
                        pyarrow.array(chunk.keys),
                        _lists(pyarrow, chunk.rows),
                        pyarrow.array(chunk.scores),
                        pyarrow.array(pinned),
                    ]
                    columns += [
                        _lists(pyarrow, chunk.optimizer_state[state])
                        for state in table.schema.states
                    ]
                    writer.write_table(
                        pyarrow.Table.from_arrays(columns, schema=schema)
                    )
                    advance(len(chunk.keys))
            if table.admission_counts is not None:
                _write_counts(draft / _COUNTS / target.name, *table.admission_counts())
        write_side_file(draft)


def _write_counts(path: Path, keys: np.ndarray, counts: np.ndarray) -> None:
    pyarrow, parquet = _import()
    path.parent.mkdir(exist_ok=True)
    columns = {"key": keys, "count": counts.astype(np.int64)}
    parquet.write_table(pyarrow.table(columns), path, write_page_checksum=True)


def parquet_files(folder: Path) -> list[Path]:
    """The parquet files of a directory, those that checksums.json names included."""
    found = set(folder.glob("*.parquet"))
    if found or (folder / NAME).exists():
        entries = read_entries(folder) or {}
        found |= {folder / name for name in entries if name.endswith(".parquet")}
    return sorted(path for path in found if path.parent == folder)


def _verify(files: Sequence[Path], advance: Advance) -> None:
    """Compares files, and those of their counts, with checksums beside them, if any."""
    for folder in {file.parent for file in files}:
        entries = read_entries(folder)
        if entries is None:
            continue
        own = [file.name for file in files if file.parent == folder]
        counts = [f"{_COUNTS}/{name}" for name in own]
        own += [n for n in counts if n in entries or (folder / n).exists()]
        for name in own:
            if name not in entries:
                raise DamagedFileError(folder / name, f"{NAME} does not name it")
        verify_files(folder, [(n, entries[n]) for n in own], advance=advance)


def read_parquet(path: Path) -> StoredTable:
    """Reads a table from a file with the columns of ``write_parquet``.

    DamagedFileError if it lacks "key" or "row", has no numbers or too few, or a key
    twice.
    """
    _, parquet = _import()
    file_bytes(path)
    with library_errors(path, TypeError, OSError):
        file = parquet.ParquetFile(path, page_checksum_verification=True)
        columns = {field.name: field.type for field in file.schema_arrow}
        rows = int(file.metadata.num_rows)
    size = getattr(columns.get("row"), "list_size", None)
    if "key" not in columns or size is None or len(columns) != len(file.schema_arrow):
        raise DamagedFileError(
            path,
            f"it has the columns {list(columns)}; a table has key (int64) and row "
            "(fixed_size_list<float>[dim]), and may have score, pinned (bool) and "
            "optimizer states",
            "Write these columns, each once.",
        )
    _check_types(path, columns)
    states = {
        name: (kind.list_size,) if hasattr(kind, "list_size") else ()
        for name, kind in columns.items()
        if name not in ("key", "row", "score", "pinned")
    }

    def read(*names: str) -> Iterator[dict[str, np.ndarray]]:
        here = [name for name in names if name in columns]
        batches = file.iter_batches(_BLOCK_ROWS, columns=here)
        while True:
            with library_errors(path, TypeError, OSError):
                batch = next(batches, None)
                if batch is None:
                    return
                arrays = {name: _array(batch.column(name)) for name in here}
            scores = arrays.get("score", np.ones(len(batch)))
            yield arrays | {"score": scores.astype(np.uint64)}

    def chunks() -> Iterator[Exported]:
        for each in read("key", "row", "score", "pinned", *states):
            kept = {name: each[name] for name in states}
            yield Exported(
                each["key"],
                each["row"],
                each["score"],
                kept,
                pinned=each.get("pinned"),
            )

    def index() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for each in read("key", "score"):
            yield each["key"], each["score"]

    _check_keys(path, rows, [keys for keys, _ in index()])
    schema = Schema(path.stem, size, optimizer={"kind": ""}, states=states)
    counts = path.parent / _COUNTS / path.name
    counted = functools.partial(_read_counts, counts) if counts.exists() else None
    return StoredTable(schema, rows, {}, chunks, index, admission_counts=counted)


def _read_counts(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Reads ids without a row and how often they have occurred, once or more."""
    _, parquet = _import()
    with library_errors(path, TypeError, OSError):
        table = parquet.ParquetFile(path, page_checksum_verification=True).read()
        kinds = {field.name: str(field.type) for field in table.schema}
        if kinds != {"key": "int64", "count": "int64"}:
            raise ValueError(f"it has {kinds}, not int64 'key' and 'count'")
        keys, counts = (_array(table[n].combine_chunks()) for n in ("key", "count"))
    _check_keys(path, len(keys), [keys])
    if (counts < 1).any():
        raise DamagedFileError(path, "one of its counts is below 1")
    return keys, counts


def stored_parquet(
    files: list[Path], verify: bool, quiet: bool
) -> dict[str, StoredTable]:
    """Opens parquet files as tables, by their names; ``verify`` checks checksums."""
    if verify:
        total = sum(file.stat().st_size for file in files if file.is_file())
        with progress_bar("verifying", total, quiet) as advance:
            _verify(files, advance)
    return {file.stem: read_parquet(file) for file in files}


def _check_types(path: Path, columns: Mapping[str, Any]) -> None:
    pyarrow, _ = _import()
    for name, kind in columns.items():
        inner = kind.value_type if hasattr(kind, "list_size") else kind
        types = pyarrow.types
        right, wanted = {
            "key": (types.is_integer, "integers"),
            "score": (types.is_integer, "integers"),
            "pinned": (types.is_boolean, "true or false"),
        }.get(name, (types.is_floating, "floats"))
        is_single = name in ("key", "score", "pinned")
        if not right(inner) or (is_single and inner is not kind):
            problem = f"its column '{name}' has the type {kind}, not {wanted}"
            raise DamagedFileError(path, problem)


def _check_keys(path: Path, rows: int, parts: list[np.ndarray]) -> None:
    keys = np.sort(np.concatenate([np.empty(0, np.int64), *parts]))
    if len(keys) != rows:
        raise DamagedFileError(path, f"it has {len(keys)} keys, not {rows}")
    if (again := np.flatnonzero(keys[1:] == keys[:-1])).size:
        raise DamagedFileError(path, f"the key {keys[again[0]]} comes twice")


def _array(column: Any) -> np.ndarray:
    size = getattr(column.type, "list_size", None)
    if column.null_count:
        raise ValueError(f"{column.null_count} values are missing")
    if size is None:
        found = column.to_numpy(zero_copy_only=False)
        whole = np.issubdtype(found.dtype, np.integer)
        return found.astype(np.int64) if whole and found.dtype.itemsize < 8 else found
    flat = column.flatten()
    if flat.null_count:
        raise ValueError(f"{flat.null_count} numbers are missing")
    found = flat.to_numpy(zero_copy_only=False).astype(np.float32, copy=False)
    return found.reshape(-1, size)


def _schema(pyarrow: Any, table: StoredTable) -> Any:
    def numbers(shape: tuple[int, ...]) -> Any:
        one = pyarrow.float32()
        return pyarrow.list_(one, shape[0]) if shape else one

    fields = [
        ("key", pyarrow.int64()),
        ("row", numbers((table.schema.dim,))),
        ("score", pyarrow.uint64()),
        ("pinned", pyarrow.bool_()),
    ]
    fields += [(name, numbers(shape)) for name, shape in table.schema.states.items()]
    return pyarrow.schema(fields)


def _lists(pyarrow: Any, array: np.ndarray) -> Any:
    flat = pyarrow.array(np.ascontiguousarray(array, np.float32).reshape(-1))
    if array.ndim == 1:
        return flat
    return pyarrow.FixedSizeListArray.from_arrays(flat, array.shape[1])


def _import() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(
            "Parquet files need pyarrow: pip install 'jax-dynemb[parquet]'."
        ) from error
    return pyarrow, pyarrow.parquet
