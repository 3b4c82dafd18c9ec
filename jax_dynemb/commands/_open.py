# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The tables of a path, whatever its format is."""

from __future__ import annotations

from pathlib import Path

from jax_dynemb.checkpoint import _layout, _stored
from jax_dynemb.commands._parquet import read_parquet
from jax_dynemb.stored import StoredTable
from jax_dynemb.stored import _dynamicemb as dumps
from jax_dynemb.stored import _safetensors as exports


def open_tables(path: Path) -> tuple[str, dict[str, StoredTable]]:
    """Says what the path is, and its tables by name.

    Args:
      path: a directory of checkpoints (the latest is read) or one of them, a DynamicEmb
        dump, a safetensors export or one file of it, the same in parquet.

    Raises:
      FileNotFoundError: there is no such path.
      ValueError: it is nothing of these.
    """
    if not path.exists():
        raise FileNotFoundError(f"There is no {path}.")
    if path.is_file() and path.suffix == ".safetensors":
        return "safetensors file", _exported([path])
    if path.is_file() and path.suffix == ".parquet":
        return "parquet file", {path.stem: read_parquet(path)}
    if path.is_dir():
        if (folder := _checkpoint(path)) is not None:
            return f"checkpoint of step {folder.name}", _saved(folder)
        if names := dumps.dumped_tables(path):
            return "DynamicEmb dump", {
                name: dumps.stored_dump(dumps.open_dump(path, name)) for name in names
            }
        if found := exports.base_files(path):
            return "safetensors export", _exported(found)
        if found := sorted(path.glob("*.parquet")):
            return "parquet files", {file.stem: read_parquet(file) for file in found}
    raise ValueError(
        f"{path} is neither a checkpoint, nor a DynamicEmb dump, nor a safetensors "
        "export, nor parquet files."
    )


def _checkpoint(path: Path) -> Path | None:
    """The directory of a step: the path itself, or its latest."""
    if (path / _layout.ITEM / _layout.SCHEMA_FILE).is_file():
        return path.absolute()
    newest = _layout.latest(path)
    return None if newest is None else path.absolute() / str(newest)


def _saved(folder: Path) -> dict[str, StoredTable]:
    tables = _stored.open_tables(folder)
    names = [path.split("/")[-1] for path in tables]
    unique = len(set(names)) == len(names)
    return {
        path.split("/")[-1] if unique else path.replace("/", "."): table
        for path, table in tables.items()
    }


def _exported(files: list[Path]) -> dict[str, StoredTable]:
    series = map(exports.open_series, files)
    return {each.name: exports.stored_series(each) for each in series}
