# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tables as parquet files: one row a row, for warehouses and data frames."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jax_dynemb.stored import StoredTable
from jax_dynemb.stored._files import new_directory
from jax_dynemb.stored._progress import progress_bar


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
