# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Sizes of the tables of a checkpoint, for a run that begins with smaller ones."""

from __future__ import annotations

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.files.checkpoint import layout as _layout
from jax_dynemb._src.files.checkpoint.fields import read_fields
from jax_dynemb._src.files.checkpoint.restore import chosen_step
from jax_dynemb._src.rows import Schema


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
    chosen = chosen_step(path, None if step is None else _layout.whole_step(step))
    fields = read_fields(path / str(chosen))
    room, found = _ffi.constants()["bucket_capacity"], {}
    for schema in map(Schema.from_json, fields["tables"].values()):
        if schema.name in found:
            raise ValueError(
                f"capacities: two models of this checkpoint have a table "
                f"'{schema.name}': give their tables different names."
            )
        if schema.num_buckets:
            found[schema.name] = schema.num_buckets * room
    return found
