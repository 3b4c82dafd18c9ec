# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The files of ``jax_dynemb.export.safetensors`` into tables."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from jax_dynemb._src.admission import Frequency
from jax_dynemb._src.engines import States
from jax_dynemb._src.engines.shard import set_counters
from jax_dynemb._src.files.disk import progress_bar
from jax_dynemb._src.files.integrity import base_files
from jax_dynemb._src.files.live import Imported, check_room, fill_table, lost_rows
from jax_dynemb._src.files.safetensors.series import Series, open_series, stored_series
from jax_dynemb._src.ops import TableState
from jax_dynemb._src.rows import Exported, Keys, StoredTable
from jax_dynemb._src.table import Tables, with_counter


def safetensors(
    path: str | os.PathLike[str],
    coll: Tables,
    state: States | None = None,
    *,
    tables: Iterable[str] | None = None,
    allow_drop: bool = False,
    quiet: bool = False,
) -> Imported:
    """Reads an export for serving with the deltas beside it, to serve or train on.

    The files hold keys and rows: optimizers start fresh, and rows are scored as new.
    The count of updates comes along where the optimizer keeps nothing beside it. Counts
    of ids that wait for admission do too; deltas leave them as they were. What an
    unknown id reads is the config's ``eval_initializer``, not the file's.

    Args:
      path: the directory of the export.
      coll: the tables to fill, under the names they have in the export.
      state: to be filled, its rows are replaced and its arrays donated; new if None.
      tables: only these.
      allow_drop: leave out rows that find no place in a smaller table, with a warning.
      quiet: no progress bar.

    Returns:
      The state, admission counts and notes. A table that admits by frequency goes on
      with the counts of the export.

    Every file is read and compared with its checksums before the state is touched.

    Raises:
      DamagedFileError: a file is missing or altered; the state lives on.
      ValueError: there is no such table, it does not fit, or it has too few slots
        for the rows; the state lives on.
    """
    names = list(coll.tables if tables is None else tables)
    series = {name: _open(Path(path), coll, name) for name in names}
    to_read = sum(each.data_bytes for each in series.values())
    with progress_bar("verifying", to_read, quiet) as advance:
        for each in series.values():
            each.verify(advance)
    found = {name: stored_series(each) for name, each in series.items()}
    check_room(coll, {n: _keys(table) for n, table in found.items()}, allow_drop)
    new, notes = dict(coll.init(0) if state is None else state), []
    counters = {
        n: table.admission_counts()
        for n, table in found.items()
        if table.admission_counts
    }
    total = sum(table.rows for table in found.values())
    with progress_bar("safetensors", total, quiet) as advance:
        for name, table in found.items():
            arrays, chunks = coll.state_name(name), _counted(table, advance)
            rows = fill_table(coll, new, name, chunks, optimizer=False, scores=False)
            new[arrays], more = _with_step(coll, name, new[arrays], table)
            new[arrays], changed = with_counter(coll, name, new[arrays], table)
            more += [*changed, *_older_counts(coll, name, series[name])]
            notes += [f"Table '{name}': {note}" for note in more]
            notes += lost_rows(name, rows, table.rows)
    return Imported(new, counters, tuple(notes))


def _with_step(
    coll: Tables, name: str, state: TableState, table: StoredTable
) -> tuple[TableState, list[str]]:
    """Takes over the count of updates, unless it belongs to states that are gone."""
    step = table.counters.get("step", 0)
    if not step:
        return state, []
    if coll.tables[name].states or state.extra:
        return state, [
            f"its optimizer starts fresh: {step} updates came before, but the files "
            "hold no states of rows."
        ]
    return set_counters(state, {"step": step}, coll.hash_engine.counter_rows(name)), []


def _older_counts(coll: Tables, name: str, series: Series) -> list[str]:
    """Says that counts are older than rows."""
    counts = {"counted_keys", "sketch"} & series.base.tensors.keys()
    rule = coll.tables[name].admission
    if not (counts and series.deltas and isinstance(rule, Frequency)):
        return []
    return [
        "its counts of ids without a row are those of the export: the deltas beside "
        f"it ({len(series.deltas)}) have none."
    ]


def _open(path: Path, coll: Tables, name: str) -> Series:
    if not path.is_dir():
        raise FileNotFoundError(f"There is no directory {path}.")
    found = [file.name.removesuffix(".safetensors") for file in base_files(path)]
    if name not in found:
        raise ValueError(f"{path} has no table '{name}'. Tables there: {found}.")
    series, config = open_series(path / f"{name}.safetensors"), coll.tables[name]
    if series.dim != config.dim:
        raise ValueError(
            f"Table '{name}' was exported with dim {series.dim}, but its config has "
            f"dim {config.dim}."
        )
    return series


def _keys(table: StoredTable) -> Keys:
    return lambda: (keys for keys, _ in table.index())


def _counted(table: StoredTable, advance: Callable[[int], None]) -> Iterator[Exported]:
    for chunk in table.chunks():
        advance(len(chunk.keys))
        yield chunk
