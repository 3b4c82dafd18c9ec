# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The tables of a path, whatever its format is; verified before they are read."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

from jax_dynemb import stored
from jax_dynemb._errors import DamagedFileError
from jax_dynemb.checkpoint import _checksums, _layout, _stored
from jax_dynemb.commands import _parquet
from jax_dynemb.stored import StoredTable, progress_bar


def add_verify(parser: argparse.ArgumentParser) -> None:
    """The switch that this command and ``inspect`` have."""
    parser.add_argument(
        "--no-verify",
        action="store_true",
        help="do not compare the files with their checksums",
    )


def open_tables(
    path: Path, *, verify: bool = True, quiet: bool = True
) -> tuple[str, dict[str, StoredTable]]:
    """Says what the path is, and its tables by name.

    Args:
      path: a directory of checkpoints (the latest is read) or one of them, a DynamicEmb
        dump, a safetensors export or one file of it, the same in parquet.
      verify: compare the files with the checksums that they have.
      quiet: show no progress meanwhile.

    Raises:
      DamagedFileError: a file is missing, cut off, altered or malformed.
      FileNotFoundError: there is no such path.
      ValueError: it is nothing of these.
    """
    if not path.exists():
        raise FileNotFoundError(f"There is no {path}.")
    if path.is_file() and path.suffix == ".safetensors":
        return "safetensors file", _exported([path], verify, quiet)
    if path.is_file() and path.suffix == ".parquet":
        return "parquet file", _parquets([path], verify, quiet)
    if path.is_dir():
        if (folder := _checkpoint(path)) is not None:
            return f"checkpoint of step {folder.name}", _saved(folder, verify, quiet)
        if names := stored.dumped_tables(path):
            return "DynamicEmb dump", _dumped(path, names, verify, quiet)
        if found := stored.base_files(path):
            return "safetensors export", _exported(found, verify, quiet)
        if found := _parquet.files_of(path):
            return "parquet files", _parquets(found, verify, quiet)
    raise ValueError(
        f"{path} is neither a checkpoint, nor a DynamicEmb dump, nor a safetensors "
        "export, nor parquet files."
    )


def _checkpoint(path: Path) -> Path | None:
    """The directory of a step: the path itself, or its latest."""
    item = path / _layout.ITEM
    if any((item / each).is_file() for each in (_layout.SCHEMA_FILE, _checksums.FILE)):
        return path.absolute()
    newest = max([*_layout.steps(path), *_layout.robbed(path)], default=None)
    return None if newest is None else path.absolute() / str(newest)


def _saved(folder: Path, verify: bool, quiet: bool) -> dict[str, StoredTable]:
    item = folder / _layout.ITEM
    if verify:
        total = _checksums.bytes_of(item)
        with progress_bar("verifying", total, quiet) as advance:
            _checksums.verify_checksums(item, advance=advance)
    tables = _stored.open_tables(folder)
    names = [path.split("/")[-1] for path in tables]
    unique = len(set(names)) == len(names)
    found = {
        path.split("/")[-1] if unique else path.replace("/", "."): table
        for path, table in tables.items()
    }
    # Files are named by the schema, where tables of two models may be namesakes.
    return {
        name: dataclasses.replace(
            table, schema=dataclasses.replace(table.schema, name=name)
        )
        for name, table in found.items()
    }


def _dumped(
    path: Path, names: list[str], verify: bool, quiet: bool
) -> dict[str, StoredTable]:
    found = {name: stored.open_dump(path, name) for name in names}
    if verify:
        total = sum(dump.data_bytes for dump in found.values())
        with progress_bar("verifying", total, quiet) as advance:
            for dump in found.values():
                dump.verify(advance)
    return {name: stored.stored_dump(dump) for name, dump in found.items()}


def _exported(files: list[Path], verify: bool, quiet: bool) -> dict[str, StoredTable]:
    if deltas := [file for file in files if stored.table_of_delta(file)]:
        problem = "it is a delta, which has some rows of a table only"
        fix = "Give the directory that it is in."
        raise DamagedFileError(deltas[0], problem, fix)
    found = [stored.open_series(file) for file in files]
    if verify:
        total = sum(each.data_bytes for each in found)
        with progress_bar("verifying", total, quiet) as advance:
            for each in found:
                each.verify(advance)
    return {each.name: stored.stored_series(each) for each in found}


def _parquets(files: list[Path], verify: bool, quiet: bool) -> dict[str, StoredTable]:
    if verify:
        total = sum(file.stat().st_size for file in files if file.is_file())
        with progress_bar("verifying", total, quiet) as advance:
            _parquet.verify(files, advance)
    return {file.stem: _parquet.read_parquet(file) for file in files}
