# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""What changed in a table, as jax_dynemb writes it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import torch

from jax_dynemb_torch._safetensors import open_file

_NAME = re.compile(r"(.+)\.delta-\d+\.safetensors")


class Delta(NamedTuple):
    """Newer rows of a table.

    Attributes:
      keys: int64[n].
      rows: float32[n, dim].
      removed: int64[m], ids that left.
      until: the first step whose rows may be missing, or None.
    """

    keys: torch.Tensor
    rows: torch.Tensor
    removed: torch.Tensor
    until: int | None


def deltas_of(path: Path, table: str) -> list[Path]:
    """The deltas of a table: a file, or those in a directory, in order.

    Raises:
      FileNotFoundError: there is no such file or directory.
    """
    if path.is_dir():
        return [
            file
            for file in sorted(path.glob("*.safetensors"))
            if (match := _NAME.fullmatch(file.name)) and match[1] == table
        ]
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; give a delta of '{table}'.")
    return [path]


def is_delta(path: Path) -> bool:
    """Whether a file is named like a delta."""
    return _NAME.fullmatch(path.name) is not None


def read_delta(path: Path, table: str, dim: int, until: int | None) -> Delta | None:
    """Reads a delta and checks that it continues a table.

    Args:
      path: the file.
      table: the table's name.
      dim: columns of its rows.
      until: how far it is known.

    Returns:
      What changed, or None if the table is known that far already.

    Raises:
      ValueError: it does not continue the table.
    """
    file = open_file(path)
    if file.fields.get("kind", "delta") != "delta":
        raise ValueError(f"{path} is a whole table; give it to replace().")
    owner = file.fields.get("table", table)
    if owner != table:
        raise ValueError(f"{path} is a delta of table '{owner}', not of '{table}'.")
    if until is not None and file.until is not None and file.until <= until:
        return None
    if until is not None and file.since is not None and file.since > until:
        raise ValueError(
            f"{path} has the rows since step {file.since}, but those since {until} are "
            "missing. Apply the deltas in order, or load a new export."
        )
    if file.tensors["rows"].shape[1:] != (dim,):
        raise ValueError(
            f"{path} has rows of shape {list(file.tensors['rows'].shape)}; those of "
            f"table '{table}' have {dim} columns."
        )
    removed = file.tensors.get("removed", torch.empty(0, dtype=torch.int64))
    newest = until if file.until is None else file.until
    # Copied: the file may be deleted or written again while the rows are served.
    keys, rows = file.tensors["keys"].clone(), file.tensors["rows"].float().clone()
    return Delta(keys, rows, removed.clone(), newest)
