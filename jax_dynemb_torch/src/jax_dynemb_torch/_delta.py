# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""What changed in a table, as jax_dynemb writes it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch

from jax_dynemb_torch._integrity import (
    Chain,
    DamagedFileError,
    read_chain,
    table_of_delta,
)
from jax_dynemb_torch._safetensors import TensorFile, open_file
from jax_dynemb_torch._table_checks import check_keys


class Delta(NamedTuple):
    """Newer rows of a table.

    Attributes:
      keys: int64[n].
      rows: float32[n, dim].
      removed: int64[m], ids that left.
      until: the first step whose rows may be missing, or None.
      link: what the next delta names this one by.
    """

    keys: torch.Tensor
    rows: torch.Tensor
    removed: torch.Tensor
    until: int | None
    link: str


def deltas_of(path: Path, table: str) -> list[Path]:
    """The deltas of a table: a file, or those in a directory, in order.

    Raises:
      DamagedFileError: those in the directory are not all there.
      FileNotFoundError: there is no such file or directory.
    """
    if path.is_dir():
        chain: Chain = read_chain(path, table)
        return [each.path for each in chain.deltas]
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; give a delta of '{table}'.")
    return [path]


def is_delta(path: Path) -> bool:
    """Whether a file is named like a delta."""
    return table_of_delta(path) is not None


def read_delta(
    path: Path, table: str, dim: int, until: int | None, link: str | None = None
) -> Delta | None:
    """Reads a delta and checks that it continues a table.

    Args:
      path: the file.
      table: the table's name.
      dim: columns of its rows.
      until: how far it is known.
      link: what the file before is named by, if that is known.

    Returns:
      What changed, or None if the table is known that far already.

    Raises:
      DamagedFileError: it is altered, or no delta.
      ValueError: it does not continue the table.
    """
    file = open_file(path, delta=True, check=False)
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
    previous = file.fields.get("previous")
    if None not in (previous, link) and previous != link:
        raise ValueError(
            f"{path} does not continue what was applied last: a delta is missing, or "
            "belongs to another export. Apply them in order, or load a new export."
        )
    file = open_file(path, delta=True)
    newest = until if file.until is None else file.until
    return Delta(*changes_in(file, table, dim), newest, file.header.link)


def changes_in(
    file: TensorFile, table: str, dim: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Keys, float32 rows and removed keys, which fit together.

    They are copies, since a file may go or be written again while its rows are served.
    """
    keys, rows = file.header.tensor("keys"), file.header.tensor("rows")
    if rows.shape[1:] != (dim,):
        raise ValueError(
            f"{file.path} has rows of shape {list(rows.shape)}; those of table "
            f"'{table}' have {dim} columns."
        )
    removed = file.tensors.get("removed", torch.empty(0, dtype=torch.int64))
    whole = keys.dtype == "I64" and removed.dtype == torch.int64
    if not whole or removed.dim() != 1 or keys.shape != rows.shape[:1]:
        problem = f"its keys, {keys.dtype}{list(keys.shape)}, do not fit its rows"
        raise DamagedFileError(file.path, problem)
    scaled = rows.dtype == "I8"
    if not scaled and rows.dtype not in ("F32", "BF16", "F16"):
        raise DamagedFileError(file.path, f"its rows are {rows.dtype}")
    if scaled and file.header.tensor("scales").shape != keys.shape:
        raise DamagedFileError(file.path, "its scales do not fit its rows")
    check_keys(file.path, "keys", file.tensors["keys"])
    check_keys(file.path, "removed", removed)
    if torch.isin(removed, file.tensors["keys"]).any():
        problem = "it has a key that is changed and removed at once"
        raise DamagedFileError(file.path, problem)
    decoded = file.tensors["rows"].float()
    if scaled:
        decoded = decoded * file.tensors["scales"].float().unsqueeze(1)
    return file.tensors["keys"].clone(), decoded.clone(), removed.clone()
