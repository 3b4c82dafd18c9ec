# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tables as safetensors files, for serving without JAX."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jax_dynemb._src.engines import States
from jax_dynemb._src.files.disk import new_directory, progress_bar
from jax_dynemb._src.files.integrity import FORMAT_VERSION, MIXED_INDEX_VERSION
from jax_dynemb._src.files.live import collection_of, live_table
from jax_dynemb._src.files.safetensors.counts import counts_of_table
from jax_dynemb._src.files.safetensors.perfect_hash import MIXED, perfect_hash
from jax_dynemb._src.files.safetensors.sort import Columns, SortedRows
from jax_dynemb._src.files.safetensors.tensor_file import TensorFile, write_manifest
from jax_dynemb._src.files.safetensors.tensors import RowFormat, row_format
from jax_dynemb._src.rows import Schema, StoredTable

# The keys of the two rows behind the last: that of padding, and of an unknown id.
EXTRA_KEYS = np.array([-1, -2], np.int64)
_MAX_ROWS = 2**30  # what the hash can tell apart


def safetensors(
    path: str | os.PathLike[str],
    coll: Any,
    state: States | None = None,
    *,
    dtype: Any = "float32",
    tables: Iterable[str] | None = None,
    default_row: Any = None,
    counters: bool = True,
    index: bool = True,
    sort_bytes: int = 1 << 30,
    quiet: bool = False,
) -> None:
    """Writes tables for serving: one directory with a ``<table>.safetensors`` each.

    A file holds "keys" int64[n], ascending, and "rows" [n, dim], with "scales"
    float32[n] where they are integers. Behind the last row stand "extra_rows" [2, dim]:
    zeros for padding, and the row of an id that is not stored. The latter stands before
    the others too, as "first_row". With a perfect hash of the keys, which is stored as
    well, ``jax_dynemb_torch`` finds them. The metadata say what the table is.
    docs/concepts/serving.md has the details.

    Rows go through the host in pieces of ``sort_bytes``, larger tables by way of
    temporary files beside the target. The index takes about 60 bytes a row in memory.
    The directory appears when it is complete.

    Args:
      path: a new directory.
      coll: the tables; or a module with one collection, such as ``model.sparse``.
      state: their state; None of a module, which has it.
      dtype: of the stored rows: "float32", "bfloat16", or "int8" or "int4" with a
        scale for each row.
      tables: names; all if None.
      default_row: what an id that is not stored reads, a number or float[dim]; None
        takes it from the table's ``eval_initializer``.
      counters: write the counts of ids that wait for admission too, 16 bytes an id,
        or the sketch of the table. Only ``jde.import_.safetensors`` reads them.
      index: False leaves the hash out; readers then build it when they load the file.
        It is left out too in the rare case that the keys have none (keys that were
        chosen for that). Readers then search among the keys.
      sort_bytes: rows that are sorted in memory at a time.
      quiet: show no progress.

    Raises:
      FileExistsError: the path is there already.
      RuntimeError: the state was donated to an earlier call.
      TypeError: ``coll`` is neither ``Tables`` nor a module.
      ValueError: unknown ids have no single row, or an unknown dtype or table.
    """
    coll, state = collection_of("safetensors", coll, state)
    names = coll.tables if tables is None else tables
    if unknown := sorted(set(names) - set(coll.tables)):
        raise ValueError(f"tables {unknown} are not among {sorted(coll.tables)}")
    write_safetensors(
        Path(path),
        {name: live_table(coll, state, name) for name in names},
        dtype=dtype,
        default_row=default_row,
        counters=counters,
        index=index,
        sort_bytes=sort_bytes,
        quiet=quiet,
    )


def write_safetensors(
    path: Path,
    tables: Mapping[str, StoredTable],
    *,
    dtype: Any = "float32",
    default_row: Any = None,
    counters: bool = True,
    index: bool = True,
    sort_bytes: int = 1 << 30,
    quiet: bool = False,
) -> None:
    """``safetensors`` of tables wherever they lie."""
    stored = row_format(dtype)
    writers = [
        _Writer(table, stored, default_row, counters, index, sort_bytes)
        for table in tables.values()
    ]
    total = 2 * sum(table.rows for table in tables.values())  # read, then written
    with (
        new_directory(path) as draft,
        progress_bar("safetensors", total, quiet) as advance,
    ):
        for writer in writers:
            writer.write(draft, advance)


class _Writer:
    """Writes the file of one table."""

    def __init__(
        self,
        table: StoredTable,
        stored: RowFormat,
        default_row: Any,
        counters: bool,
        index: bool,
        sort_bytes: int,
    ):
        schema = table.schema
        self._table, self._stored = table, stored
        self._counters, self._index = counters, index
        self._extra = _extra_rows(schema, default_row)
        row_bytes = 8 + stored.width(schema.dim) * np.dtype(stored.dtype).itemsize
        self._parts = -(-table.rows * row_bytes // sort_bytes)
        if table.rows > _MAX_ROWS:
            raise ValueError(
                f"Table '{schema.name}' has {table.rows} rows; a file holds at most "
                f"{_MAX_ROWS}. Split its features over several tables."
            )

    def write(self, folder: Path, advance: Callable[[int], None]) -> None:
        """Collects and sorts the rows, makes the hash, writes."""
        rows = SortedRows(self._encoded(advance), self._parts, folder)
        keys = rows.keys()
        counts, more = counts_of_table(self._table) if self._counters else ({}, {})
        small = {"keys": keys, "extra_keys": EXTRA_KEYS} | counts
        if self._index:
            small |= _index(keys)
        if not self._stored.levels:
            self._extra = self._extra.astype(self._stored.dtype)
        path = folder / f"{self._table.schema.name}.safetensors"
        metadata = self._metadata(_version(small)) | more
        with TensorFile(path, self._tensors(small), metadata) as file:
            for name, array in small.items():
                file.append(name, array)
            if not self._stored.levels:
                file.append("first_row", self._extra[1:])
            file.append("extra_rows", self._extra)
            for chunk in rows:
                for name in chunk.keys() - {"keys"}:
                    file.append(name, chunk[name])
                advance(len(chunk["keys"]))
        write_manifest(folder, self._table.schema.name, file.link, path.name, file.link)

    def _encoded(self, advance: Callable[[int], None]) -> Iterator[Columns]:
        chunks = self._table.encoded(self._stored.name)
        if chunks is None:
            chunks = (
                {"keys": chunk.keys} | self._stored.encode(chunk.rows)
                for chunk in self._table.chunks()
            )
        for chunk in chunks:
            yield chunk
            advance(len(chunk["keys"]))

    def _tensors(self, small: Columns) -> dict[str, tuple[Any, tuple[int, ...]]]:
        """Wide types first; float rows between their extra ones."""
        n = len(small["keys"])
        tensors = {name: (array.dtype, array.shape) for name, array in small.items()}
        rows = (self._stored.dtype, (n, self._stored.width(self._table.schema.dim)))
        extra = (self._extra.dtype, self._extra.shape)
        if self._stored.levels:
            scales = (np.dtype(np.float32), (n,))
            return tensors | {"extra_rows": extra, "scales": scales, "rows": rows}
        first = (self._extra.dtype, self._extra[1:].shape)
        return tensors | {"first_row": first, "rows": rows, "extra_rows": extra}

    def _metadata(self, version: int) -> dict[str, Any]:
        schema, counters = self._table.schema, self._table.counters
        fields = {
            "format_version": version,
            "kind": "table",
            "table": schema.name,
            "dim": schema.dim,
            "dtype": self._stored.name,
            "config": schema.to_json(),
        }
        fields |= {
            name: counters[name] for name in ("seed", "step") if name in counters
        }
        if "clock" in counters:
            fields["until"] = counters["clock"] + 1  # as Tables.get_score counts
        if self._table.head is not None:
            fields["head"] = list(self._table.head)
        if self._table.identity is not None:
            fields["identity"] = self._table.identity.to_json()
        return fields


def _index(keys: np.ndarray) -> Columns:
    """Returns the hash of all keys and the extra ones: padding is found like any id."""
    made = perfect_hash(np.concatenate([keys, EXTRA_KEYS]))
    if made is None:
        return {}
    return {f"index_{name}": array for name, array in made._asdict().items()}


def _version(tensors: Columns) -> int:
    """The least version of readers that understand the index."""
    numbers = tensors.get("index_numbers")
    mixed = numbers is not None and numbers[-1] == MIXED
    return MIXED_INDEX_VERSION if mixed else FORMAT_VERSION


def _extra_rows(schema: Schema, default_row: Any) -> np.ndarray:
    """float32[2, dim]: the row of padding, and that of unknown ids."""
    if default_row is None:
        initializer = schema.config.get("eval_initializer", {"value": 0.0})
        if "value" not in initializer:
            raise ValueError(
                f"Table '{schema.name}': its eval_initializer "
                f"({initializer['kind']}) gives every unknown id another row, which a "
                "file can not hold. Say what they should read: default_row=0.0, or a "
                "row."
            )
        default_row = initializer["value"]
    extra = np.zeros((2, schema.dim), np.float32)
    extra[1] = default_row
    return extra
