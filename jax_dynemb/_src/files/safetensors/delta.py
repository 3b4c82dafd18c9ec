# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Writes what changed since an export, as one more file beside it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from jax_dynemb._src.engines import States
from jax_dynemb._src.engines.shard import counter_values
from jax_dynemb._src.files.disk import new_file, one_at_a_time, remove_left_behind
from jax_dynemb._src.files.integrity import FORMAT_VERSION, base_files
from jax_dynemb._src.files.live import check_whole, collection_of
from jax_dynemb._src.files.safetensors.series import Series, open_series
from jax_dynemb._src.files.safetensors.tensor_file import TensorFile, write_manifest
from jax_dynemb._src.rows import Exported, check_ancestor
from jax_dynemb._src.table import Tables, identity_in, log_head, with_removed


def delta(
    path: str | os.PathLike[str], coll: Any, state: States | None = None
) -> dict[str, Path | None]:
    """Writes what changed in tables since they were exported there, or since a delta.

    Readers apply the files in the order of their numbers and then hold the same rows as
    the tables. Removed keys are those in the table's log, if it has one that reaches
    back to the last file. Otherwise what the files before hold is compared with what
    the table holds. So it does not matter which process exported them, or when.

    Call it between an update and the next lookup, as ``Tables.export`` says.

    Args:
      path: the directory of ``jde.export.safetensors``.
      coll: the tables; those that were exported there get a delta. Or a module with
        one collection.
      state: their state; None of a module, which has it.

    Returns:
      By table the new file, or None if nothing changed.

    Threads and processes that call it for one directory take turns.

    Raises:
      DamagedFileError: a file there is missing or altered.
      ValueError: there is no export of these tables, or it is of another run, or of a
        history that a restore left. Nothing was written then.
      OSError: the disk is full or refuses; it names the path.
    """
    coll, state = collection_of("delta", coll, state)
    folder = Path(path)
    if not folder.is_dir():
        raise FileNotFoundError(f"There is no directory {path}.")
    with one_at_a_time(folder):
        return _write_all(folder, coll, state)


def _write_all(path: Path, coll: Tables, state: States) -> dict[str, Path | None]:
    bases = {file.name.removesuffix(".safetensors"): file for file in base_files(path)}
    if not bases.keys() & coll.tables.keys():
        raise ValueError(
            f"{path} has no export of {list(coll.tables)}. Write one first with "
            "jde.export.safetensors."
        )
    for name in bases.keys() & coll.tables.keys():
        check_whole(coll, state, name)
    until = coll.get_score(state)
    series = {
        name: open_series(base) for name, base in bases.items() if name in coll.tables
    }
    for each in series.values():
        each.verify()
    for name, each in series.items():
        _check_continues(coll, state, name, each, until[name])
    remove_left_behind(path, "*.safetensors")
    remove_left_behind(path, "*.manifest.json")
    return {
        name: _write(coll, state, name, each, until[name])
        for name, each in series.items()
    }


def _check_continues(
    coll: Tables, state: States, name: str, series: Series, until: int
) -> None:
    """Refuses files of another run or history than the table's."""
    what = f"The export of table '{name}' in {series.base.path.parent}"
    fix = "Export the tables again into another directory: jde.export.safetensors."
    noted = series.identity  # of damage it raises by itself
    try:
        check_ancestor(identity_in(coll, state, name), noted, what)
    except ValueError as error:
        raise ValueError(f"{error} {fix}") from None
    if series.until is None or series.until > until:
        raise ValueError(
            f"{what} ends at {series.until}, but the table is at {until}: it is of "
            f"another run. {fix}"
        )


def _write(
    coll: Tables, state: States, name: str, series: Series, until: int
) -> Path | None:
    assert series.until is not None  # _check_continues
    removed = np.empty(0, np.int64)
    keys, rows = [removed], [np.empty((0, coll.tables[name].dim), np.float32)]
    changes, head = _changes(coll, state, name, series, series.until)
    for chunk in changes:
        if chunk.removed is not None:
            removed = chunk.removed
        keys.append(chunk.keys)
        rows.append(chunk.rows.astype(np.float32))
    all_keys = np.concatenate(keys)
    if len(all_keys) == 0 and len(removed) == 0:
        return None
    order = np.argsort(all_keys)
    tensors = {
        "keys": all_keys[order],
        "removed": np.sort(removed),
        "rows": np.concatenate(rows)[order],
    }
    fields = {
        "format_version": FORMAT_VERSION,
        "kind": "delta",
        "table": name,
        "dim": coll.tables[name].dim,
        "since": series.until,
        "until": until,
        "previous": series.files[0].link,
        "step": counter_values(coll.hash_engine.with_own_counters(state, name))["step"],
    }
    if (identity := identity_in(coll, state, name)) is not None:
        fields["identity"] = identity.to_json()
    if head is not None:
        fields["head"] = list(head)
    target = series.next_delta()
    like = {each: (array.dtype, array.shape) for each, array in tensors.items()}
    with new_file(target) as draft, TensorFile(draft, like, fields) as file:
        for each, array in tensors.items():
            file.append(each, array)
    write_manifest(target.parent, name, series.base.link, target.name, file.link)
    return target


def _changes(
    coll: Tables, state: States, name: str, series: Series, since: int
) -> tuple[Iterator[Exported], tuple[int, ...] | None]:
    """Streams what changed, removed keys first; and the head of the log."""
    head, before = log_head(coll, state, name), series.head
    if head is not None and before is not None:
        removed, head = coll.take_removed(state, name, before)
        if removed is not None:
            return with_removed(coll, state, name, since, removed), head
    known = series.keys()
    return coll.export(state, name, since=since, known_keys=known), head
