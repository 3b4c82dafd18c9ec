# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The tables of a path, whatever its format is; verified before they are read."""

from __future__ import annotations

import argparse
from pathlib import Path

from jax_dynemb._src.files.checkpoint import find_checkpoint, stored_checkpoint
from jax_dynemb._src.files.dynamicemb import dumped_tables, stored_dumps
from jax_dynemb._src.files.integrity import base_files
from jax_dynemb._src.files.parquet import parquet_files, stored_parquet
from jax_dynemb._src.files.safetensors import stored_exports
from jax_dynemb._src.rows import StoredTable


def add_verify(parser: argparse.ArgumentParser) -> None:
    """Adds the switch that ``inspect`` and ``convert`` have."""
    parser.add_argument(
        "--no-verify",
        action="store_true",
        help="do not compare the files with their checksums",
    )


def open_tables(
    path: Path, *, verify: bool = True, quiet: bool = True
) -> tuple[str, dict[str, StoredTable]]:
    """Returns what the path is, and its tables by name.

    It is a directory of checkpoints (the latest is read) or one of them. Or a
    DynamicEmb dump, a safetensors export or one file of it, the same in parquet.

    Raises:
      DamagedFileError: a file is missing, cut off, altered or malformed.
      FileNotFoundError: there is no such path.
      ValueError: it is nothing of these.
    """
    if not path.exists():
        raise FileNotFoundError(f"There is no {path}.")
    if path.is_file() and path.suffix == ".safetensors":
        return "safetensors file", stored_exports([path], verify, quiet)
    if path.is_file() and path.suffix == ".parquet":
        return "parquet file", stored_parquet([path], verify, quiet)
    if path.is_dir():
        if (folder := find_checkpoint(path)) is not None:
            tables = stored_checkpoint(folder, verify, quiet)
            return f"checkpoint of step {folder.name}", tables
        if names := dumped_tables(path):
            return "DynamicEmb dump", stored_dumps(path, names, verify, quiet)
        if found := base_files(path):
            return "safetensors export", stored_exports(found, verify, quiet)
        if found := parquet_files(path):
            return "parquet files", stored_parquet(found, verify, quiet)
    raise ValueError(
        f"{path} is neither a checkpoint, nor a DynamicEmb dump, nor a safetensors "
        "export, nor parquet files."
    )
