# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tables as parquet files: one row a row, for warehouses and data frames; and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jax_dynemb.stored import Schema, StoredTable
from jax_dynemb.stored._files import new_directory
from jax_dynemb.stored._progress import progress_bar
from jax_dynemb.table import Exported

_BLOCK_ROWS = 65_536


def write_parquet(path: Path, tables: Mapping[str, StoredTable]) -> None:
    """Writes ``<table>.parquet`` for each table into a new directory.

    Columns: key int64, row fixed_size_list<float>[dim], score uint64, and each
    optimizer state under its name.
    """
    pyarrow, parquet = _import()
    total = sum(table.rows for table in tables.values())
    with new_directory(path) as draft, progress_bar("parquet", total) as advance:
        for name, table in tables.items():
            schema = _schema(pyarrow, table)
            target = draft / f"{name}.parquet"
            with parquet.ParquetWriter(target, schema) as writer:
                for chunk in table.chunks():
                    columns = [
                        pyarrow.array(chunk.keys),
                        _lists(pyarrow, chunk.rows),
                        pyarrow.array(chunk.scores),
                    ]
                    columns += [
                        _lists(pyarrow, chunk.optimizer_state[state])
                        for state in table.schema.states
                    ]
                    writer.write_table(
                        pyarrow.Table.from_arrays(columns, schema=schema)
                    )
                    advance(len(chunk.keys))


def read_parquet(path: Path) -> StoredTable:
    """The table of a file that ``write_parquet`` wrote, or of one with its columns.

    Raises:
      ValueError: it has no columns "key" and "row".
    """
    _, parquet = _import()
    file = parquet.ParquetFile(path)
    columns = {field.name: field.type for field in file.schema_arrow}
    size = getattr(columns.get("row"), "list_size", None)
    if "key" not in columns or size is None:
        raise ValueError(
            f"{path} has the columns {list(columns)}; a table has key (int64) and row "
            "(fixed_size_list<float>[dim]), and may have score and optimizer states."
        )
    states = {
        name: (kind.list_size,) if hasattr(kind, "list_size") else ()
        for name, kind in columns.items()
        if name not in ("key", "row", "score")
    }

    def read(*names: str) -> Iterator[dict[str, np.ndarray]]:
        here = [name for name in names if name in columns]
        for batch in file.iter_batches(_BLOCK_ROWS, columns=here):
            arrays = {name: _array(batch.column(name)) for name in here}
            scores = arrays.get("score", np.ones(len(batch)))
            yield arrays | {"score": scores.astype(np.uint64)}

    def chunks() -> Iterator[Exported]:
        for each in read("key", "row", "score", *states):
            kept = {name: each[name] for name in states}
            yield Exported(each["key"], each["row"], each["score"], kept)

    def index() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for each in read("key", "score"):
            yield each["key"], each["score"]

    schema = Schema(path.stem, size, optimizer={"kind": ""}, states=states)
    return StoredTable(schema, file.metadata.num_rows, {}, chunks, index)


def _array(column: Any) -> np.ndarray:
    size = getattr(column.type, "list_size", None)
    if size is None:
        return column.to_numpy(zero_copy_only=False)
    return column.flatten().to_numpy(zero_copy_only=False).reshape(-1, size)


def _schema(pyarrow: Any, table: StoredTable) -> Any:
    def numbers(shape: tuple[int, ...]) -> Any:
        one = pyarrow.float32()
        return pyarrow.list_(one, shape[0]) if shape else one

    fields = [
        ("key", pyarrow.int64()),
        ("row", numbers((table.schema.dim,))),
        ("score", pyarrow.uint64()),
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
