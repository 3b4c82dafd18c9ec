# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""DynamicEmb's dump directories: raw arrays, one file a kind, table and rank."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from jax_dynemb_torch._integrity import (
    DamagedFileError,
    file_bytes,
    read_entries,
    read_json,
    verify_files,
)
from jax_dynemb_torch._table import EXTRA_KEYS, Table

_KEYS = "{table}_emb_keys.rank_{rank}.world_size_{size}"
_VALUES = "{table}_emb_values.rank_{rank}.world_size_{size}"


def dump_tables(directory: Path) -> list[str]:
    """Names of the tables of a dump, those that checksums.json names included."""
    marker = "_emb_keys.rank_"
    there = {file.name for file in directory.iterdir()}
    if any(marker in name for name in there):
        there |= (read_entries(directory) or {}).keys()
    return sorted({name.rsplit(marker, 1)[0] for name in there if marker in name})


def load_dump(directory: Path, name: str) -> Table:
    """A table over a dump; the rows of a dump of one rank are mapped, not read.

    Those of several ranks are copied into one tensor, file by file.

    Raises:
      DamagedFileError: files are missing, altered or do not fit together.
    """
    _verify(directory, name)
    size = _world_size(directory, name)
    _check_routing(directory, name, size)
    ranks = [_rank(directory, name, rank, size) for rank in range(size)]
    keys, first = torch.cat([keys for keys, _ in ranks]), _path(_KEYS, directory, name)
    reserved = (keys >= -4) & (keys <= -1)
    if reserved.any():
        problem = f"it holds {int(reserved.sum())} of the reserved keys -4 to -1"
        raise DamagedFileError(first, problem, "Dump it again without them.")
    ordered = keys.sort()[0]
    if (ordered[1:] == ordered[:-1]).any():
        raise DamagedFileError(first, "a key comes twice in the dump")
    rows = _joined(_path(_VALUES, directory, name), [rows for _, rows in ranks])
    extra = torch.zeros(2, rows.shape[1])
    return Table(torch.cat([keys, torch.tensor(EXTRA_KEYS)]), rows, extra)


def _path(kind: str, directory: Path, name: str, rank: int = 0, size: int = 0) -> Path:
    """Of a file; of the first that is there, where the number of ranks is left out."""
    if not size:
        size = _world_size(directory, name)
    return directory / kind.format(table=name, rank=rank, size=size)


def _verify(directory: Path, name: str) -> None:
    """Compares the files that are read here with checksums.json, if there is one."""
    entries = read_entries(directory)
    if entries is None:
        return
    pattern = re.compile(
        rf"{re.escape(name)}_(emb_(keys|values)\.rank_\d+\.world_size_\d+|opt_args\.json)"
    )
    own = {each: e for each, e in entries.items() if pattern.fullmatch(each)}
    for file in directory.iterdir():
        if pattern.fullmatch(file.name) and file.name not in own:
            raise DamagedFileError(file, "checksums.json does not name it")
    verify_files(directory, own.items())


def _world_size(directory: Path, name: str) -> int:
    pattern = re.compile(
        rf"{re.escape(name)}_emb_keys\.rank_([0-9]{{1,6}})\.world_size_([0-9]{{1,6}})"
    )
    found = [m for file in directory.iterdir() if (m := pattern.fullmatch(file.name))]
    sizes = {int(match[2]) for match in found}
    ranks = sorted(int(match[1]) for match in found)
    if len(sizes) != 1 or ranks != list(range(*sizes)):
        size = max(sizes, default=1)
        missing = next((rank for rank in range(size) if rank not in ranks), 0)
        raise DamagedFileError(
            directory / _KEYS.format(table=name, rank=missing, size=size),
            f"the dump of '{name}' is not complete: it has the ranks {ranks} of "
            f"{sorted(sizes)}",
            "Dump it again into an empty directory.",
        )
    return sizes.pop()


def _check_routing(directory: Path, name: str, size: int) -> None:
    path = directory / f"{name}_opt_args.json"
    fields = read_json(path) if path.exists() else {}
    if size > 1 and fields.get("dist_type") == "continuous":
        raise ValueError(
            f"{path}: dist_type is 'continuous', so the files hold keys that are only "
            "known within a rank. Dump with 'roundrobin', or on one rank."
        )


def _rank(
    directory: Path, name: str, rank: int, size: int
) -> tuple[torch.Tensor, torch.Tensor]:
    keys = _mapped(_path(_KEYS, directory, name, rank, size), torch.int64)
    path = _path(_VALUES, directory, name, rank, size)
    values = _mapped(path, torch.float32)
    if len(keys) == 0:
        if len(values):
            raise DamagedFileError(path, f"it holds {len(values)} numbers of no keys")
        return keys, values.view(0, 0)
    if len(values) == 0 or len(values) % len(keys):
        raise DamagedFileError(
            path,
            f"it holds {len(values)} numbers, which is no multiple of the {len(keys)} "
            "keys beside it: the dump is damaged, or not of float32 rows",
        )
    return keys, values.view(len(keys), -1)


def _mapped(path: Path, dtype: torch.dtype) -> torch.Tensor:
    size = file_bytes(path)
    if size % dtype.itemsize:
        problem = f"it has {size} bytes, which is no whole number of {dtype}"
        raise DamagedFileError(path, problem)
    items = size // dtype.itemsize
    if items == 0:
        return torch.empty(0, dtype=dtype)
    return torch.from_file(str(path), shared=False, size=items, dtype=dtype)


def _joined(path: Path, ranks: list[torch.Tensor]) -> torch.Tensor:
    ranks = [rows for rows in ranks if len(rows)]
    if len(ranks) == 1:
        return ranks[0]
    dims = {rows.shape[1] for rows in ranks}
    if len(dims) != 1:
        problem = (
            "the dump holds no rows, so their width is not known"
            if not dims
            else f"the ranks' rows have different widths: {sorted(dims)}"
        )
        raise DamagedFileError(path, problem)
    joined = torch.empty(sum(map(len, ranks)), *dims)
    begin = 0
    for rows in ranks:
        joined[begin : begin + len(rows)] = rows
        begin += len(rows)
    return joined
