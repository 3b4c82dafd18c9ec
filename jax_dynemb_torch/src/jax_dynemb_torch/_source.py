# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""From a path to a table: which format it is, and what the table says of itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from jax_dynemb_torch._delta import deltas_of, read_delta
from jax_dynemb_torch._dynamicemb import dump_tables, load_dump
from jax_dynemb_torch._integrity import DamagedFileError, base_files, read_chain
from jax_dynemb_torch._joined import JoinedTables
from jax_dynemb_torch._safetensors import TensorFile, load_table, open_file
from jax_dynemb_torch._snapshot import Snapshot
from jax_dynemb_torch._table import Table

_SUFFIX = ".safetensors"


@dataclasses.dataclass(frozen=True)
class Source:
    """A table that has been loaded.

    Attributes:
      name: of the table.
      snapshot: its rows.
      pooling: "sum" or "mean", or None if the exporter did not say.
      features: that look up this table; the table's name if the exporter did not say.
    """

    name: str
    snapshot: Snapshot
    pooling: str | None = None
    features: tuple[str, ...] = ()


def table_names(path: str | Path) -> list[str]:
    """The tables of an export directory, a file of one, or a DynamicEmb dump.

    Raises:
      DamagedFileError: a table is missing, although other files of it are there.
      FileNotFoundError: there is no table.
    """
    path = Path(path)
    if path.is_file():
        return [path.name.removesuffix(_SUFFIX)]
    if path.is_dir():
        names = [file.name.removesuffix(_SUFFIX) for file in base_files(path)]
        if names := names or dump_tables(path):
            return names
    raise FileNotFoundError(
        f"{path} holds no table: neither <table>.safetensors files of "
        "jax_dynemb.export.safetensors, nor a DynamicEmb dump."
    )


def load(path: str | Path, table: str | None = None) -> Source:
    """Loads one table; rows are mapped into memory and read when they are used.

    Deltas that lie in the directory are applied. Files are read once to compare them
    with their checksums, which takes no memory.

    Args:
      path: an export directory, a file of one, or a DynamicEmb dump directory.
      table: its name; may be left out if there is only one.

    Raises:
      DamagedFileError: a file is missing, cut off or altered.
      FileNotFoundError: there is no table.
      ValueError: no table of that name.
    """
    path, names = Path(path), table_names(path)
    if table is None and len(names) > 1:
        raise ValueError(f"{path} holds several tables; say which: {names}")
    name = names[0] if table is None else table
    if name not in names and not path.is_file():
        raise ValueError(f"{path} holds no table '{name}', but {names}")
    file = path if path.is_file() else path / f"{name}{_SUFFIX}"
    if not file.exists():
        return Source(name, Snapshot(load_dump(path, name), None, None), None, (name,))
    if path.is_file():
        return _of_file(open_file(file), name)
    read_chain(path, name)  # before the rows are read
    source = _of_file(open_file(file), name)
    snapshot = with_deltas(source.snapshot, name, path)
    return dataclasses.replace(source, snapshot=snapshot)


def load_joined(paths: Sequence[Path], table: str) -> Source:
    """Loads one table from several export directories.

    Args:
      paths: directories, each with some of the rows and no deltas.
      table: its name.

    Raises:
      DamagedFileError, FileNotFoundError, ValueError: as ``load``, of any of them.
    """
    sources = [load(path, table) for path in paths]
    bases = [source.snapshot.base for source in sources]
    assert all(source.snapshot.overlay is None for source in sources)
    joined = JoinedTables([base for base in bases if isinstance(base, Table)])
    return dataclasses.replace(sources[0], snapshot=Snapshot(joined, None, None))


def _of_file(file: TensorFile, name: str) -> Source:
    snapshot = Snapshot(load_table(file), None, file.until, file.header.link)
    features = tuple(_texts(file, "feature_names") or (name,))
    pooling = file.config.get("pooling")
    if pooling not in (None, "sum", "mean"):
        raise DamagedFileError(file.path, f"its pooling is {str(pooling)[:80]!r}")
    return Source(name, snapshot, pooling, features)


def _texts(file: TensorFile, name: str) -> list[str]:
    found = file.config.get(name) or []
    if not isinstance(found, list) or any(not isinstance(f, str) for f in found):
        raise DamagedFileError(file.path, f"its {name} are no list of names")
    return found


def with_deltas(snapshot: Snapshot, name: str, path: Path) -> Snapshot:
    """The snapshot after a delta, or after those in a directory."""
    for file in deltas_of(path, name):
        before = snapshot.until, snapshot.link
        delta = read_delta(file, name, snapshot.base.dim, *before)
        if delta is not None:
            snapshot = snapshot.updated(*delta)
    return snapshot
