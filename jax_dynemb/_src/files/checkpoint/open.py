# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A directory of checkpoints as the tables of one step, and their sizes, by name."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.files.checkpoint import checksums as _checksums
from jax_dynemb._src.files.checkpoint import layout as _layout
from jax_dynemb._src.files.checkpoint import stored as _stored
from jax_dynemb._src.files.disk import progress_bar
from jax_dynemb._src.rows import StoredTable


def find_checkpoint(path: Path) -> Path | None:
    """Returns the directory of a step: the path itself, or its latest; None without."""
    item = path / _layout.ITEM
    if any((item / each).is_file() for each in (_layout.SCHEMA_FILE, _checksums.FILE)):
        return path.absolute()
    newest = max([*_layout.steps(path), *_layout.robbed(path)], default=None)
    return None if newest is None else path.absolute() / str(newest)


def stored_checkpoint(
    folder: Path, verify: bool, quiet: bool
) -> dict[str, StoredTable]:
    """Opens a checkpoint's tables by name; ``verify`` compares all files first."""
    item = folder / _layout.ITEM
    _checksums.check_links(item)
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


def capacities(directory: _layout.Directory, step: int | None = None) -> dict[str, int]:
    """Reads how many rows the tables of a checkpoint have room for.

    Tables that grew are larger than their configs say. A run that goes on grows its
    new tables to these sizes before it restores, so that every row finds its place.

    Args:
      directory: of ``save``.
      step: which checkpoint; the latest if None.

    Returns:
      Slots by table name, as ``Tables.grow`` takes them; tensor trains are left out.

    Raises:
      DamagedFileError: the checkpoint is damaged.
      FileNotFoundError: there is no such checkpoint.
      ValueError: two models in it have a table of one name.

    Example:
      >>> sizes = jde.checkpoint.capacities(directory)  # doctest: +SKIP
      >>> coll, state = coll.grow(coll.init(), sizes)  # doctest: +SKIP
      >>> restored = jde.checkpoint.restore(
      ...     directory, state, tables=coll
      ... )  # doctest: +SKIP
    """
    path = _layout.resolved(directory)
    saved = _stored.Saved.read(path / str(_layout.chosen_step(path, step)))
    room, found = _ffi.constants()["bucket_capacity"], {}
    for schema in saved.schemas.values():
        if schema.name in found:
            raise ValueError(
                f"capacities: two models of this checkpoint have a table "
                f"'{schema.name}': give their tables different names."
            )
        if schema.num_buckets:
            found[schema.name] = schema.num_buckets * room
    return found
