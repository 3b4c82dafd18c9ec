# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""DynamicEmb's dump directories: raw arrays, one file a kind, table and rank."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from jax_dynemb_torch._table import EXTRA_KEYS, Table

_KEYS = "{table}_emb_keys.rank_{rank}.world_size_{size}"
_VALUES = "{table}_emb_values.rank_{rank}.world_size_{size}"


def dump_tables(directory: Path) -> list[str]:
    """Names of the tables whose dumps lie in a directory."""
    files = directory.glob("*_emb_keys.rank_0.world_size_*")
    return sorted({file.name.rsplit("_emb_keys.rank_", 1)[0] for file in files})


def load_dump(directory: Path, name: str) -> Table:
    """A table over a dump; the rows of a dump of one rank are mapped, not read.

    Those of several ranks are copied into one tensor, file by file.

    Raises:
      ValueError: files are missing or do not fit together.
    """
    size = _world_size(directory, name)
    _check_routing(directory, name, size)
    ranks = [_rank(directory, name, rank, size) for rank in range(size)]
    keys = torch.cat([keys for keys, _ in ranks])
    reserved = (keys >= -4) & (keys <= -1)
    if reserved.any():
        raise ValueError(
            f"{directory}: table '{name}' holds {int(reserved.sum())} of the reserved "
            "keys -4 to -1; dump it again without them."
        )
    rows = _joined([rows for _, rows in ranks])
    extra = torch.zeros(2, rows.shape[1])
    return Table(torch.cat([keys, torch.tensor(EXTRA_KEYS)]), rows, extra)


def _world_size(directory: Path, name: str) -> int:
    prefix = f"{name}_emb_keys.rank_"
    found = [
        file.name.removeprefix(prefix).split(".world_size_")
        for file in directory.iterdir()
        if file.name.startswith(prefix)
    ]
    sizes = {int(size) for _, size in found}
    ranks = sorted(int(rank) for rank, _ in found)
    if len(sizes) != 1 or ranks != list(range(*sizes)):
        raise ValueError(
            f"{directory}: the dump of '{name}' is not complete: it has the ranks "
            f"{ranks} of {sorted(sizes)}. Dump it again into an empty directory."
        )
    return sizes.pop()


def _check_routing(directory: Path, name: str, size: int) -> None:
    path = directory / f"{name}_opt_args.json"
    fields = json.loads(path.read_text()) if path.exists() else {}
    if size > 1 and fields.get("dist_type") == "continuous":
        raise ValueError(
            f"{path}: dist_type is 'continuous', so the files hold keys that are only "
            "known within a rank. Dump with 'roundrobin', or on one rank."
        )


def _rank(
    directory: Path, name: str, rank: int, size: int
) -> tuple[torch.Tensor, torch.Tensor]:
    place = {"table": name, "rank": rank, "size": size}
    keys = _mapped(directory / _KEYS.format(**place), torch.int64)
    path = directory / _VALUES.format(**place)
    values = _mapped(path, torch.float32)
    if len(keys) == 0:
        return keys, values.view(0, 0)
    if len(values) == 0 or len(values) % len(keys):
        raise ValueError(
            f"{path} holds {len(values)} numbers, which is no multiple of the "
            f"{len(keys)} keys beside it; the dump is damaged, or not of float32 rows."
        )
    return keys, values.view(len(keys), -1)


def _mapped(path: Path, dtype: torch.dtype) -> torch.Tensor:
    if not path.exists():
        raise ValueError(f"{path} is missing; the dump is not complete.")
    items = path.stat().st_size // dtype.itemsize
    if items == 0:
        return torch.empty(0, dtype=dtype)
    return torch.from_file(str(path), shared=False, size=items, dtype=dtype)


def _joined(ranks: list[torch.Tensor]) -> torch.Tensor:
    ranks = [rows for rows in ranks if len(rows)]
    if len(ranks) == 1:
        return ranks[0]
    dims = {rows.shape[1] for rows in ranks}
    if len(dims) != 1:
        raise ValueError(
            "the dump holds no rows, so their width is not known"
            if not dims
            else f"the ranks' rows have different widths: {sorted(dims)}"
        )
    joined = torch.empty(sum(map(len, ranks)), *dims)
    begin = 0
    for rows in ranks:
        joined[begin : begin + len(rows)] = rows
        begin += len(rows)
    return joined
