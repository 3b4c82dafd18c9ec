# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tables as the dump directory of NVIDIA's DynamicEmb."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jax_dynemb._src.engines import States
from jax_dynemb._src.files.disk import new_directory, progress_bar, write_side_file
from jax_dynemb._src.files.dynamicemb.format import OPTIMIZERS
from jax_dynemb._src.files.dynamicemb.write_table import DynamicEmbReport, TableWriter
from jax_dynemb._src.files.live import collection_of, live_table
from jax_dynemb._src.rows import StoredTable

Counts = Mapping[str, tuple[np.ndarray, np.ndarray]]
_DIST_TYPES = ("roundrobin", "hash_roundrobin")
_MAX_DIM = 1024
_EXACT_FLOAT32 = 1 << 24


def dynamicemb(
    path: str | os.PathLike[str],
    coll: Any,
    state: States | None = None,
    *,
    optimizer: bool = True,
    counters: bool | Counts = True,
    ranks: int = 1,
    dist_type: str = "roundrobin",
    now: int | None = None,
    compound: Mapping[str, Sequence[str]] | None = None,
    quiet: bool = False,
) -> dict[str, DynamicEmbReport]:
    """Writes tables as DynamicEmb dumps them; its loaders read the directory.

    Rows go through the host chunk by chunk. The directory appears when it is complete.
    DynamicEmb's buckets of 128 slots drop rows silently when they are full. The
    smallest ``num_embeddings`` that loses none is found by trying it on the keys. It is
    printed and returned.

    Args:
      path: a new directory, what DynamicEmb calls a collection's.
      coll: the tables; or a module with one collection, such as ``model.sparse``.
      state: their state; None of a module, which has it.
      optimizer: write optimizer states too: SGD, Adagrad, row-wise Adagrad and Adam.
      counters: admission counts by table, (keys int64[m], frequencies int64[m]);
        True writes those of tables that count by key, ``jde.admission.Exact``.
      ranks: into so many files; DynamicEmb reads any number on any number of GPUs.
      dist_type: which rank owns a key: "roundrobin" or "hash_roundrobin".
      now: the time of the dump in nanoseconds, which ages are counted from.
      compound: by LFU table, the order of the scores of a compound strategy,
        ("timestamp", "lfu") or ("lfu", "timestamp"), as the tuple has it there. The
        table keeps no times: rows get ``now`` less one nanosecond for each lookup
        since their last use, which orders them as they were used.
      quiet: print nothing.

    Returns:
      What was written, by table.

    Raises:
      FileExistsError: the path is there already.
      RuntimeError: the state was donated to an earlier call.
      TypeError: ``coll`` is neither ``Tables`` nor a module.
      ValueError: DynamicEmb could not read it; the sentence says why.
    """
    coll, state = collection_of("dynamicemb", coll, state)
    tables = {name: live_table(coll, state, name) for name in coll.tables}
    return write_dynamicemb(
        Path(path),
        tables,
        optimizer=optimizer,
        counters=counters,
        ranks=ranks,
        dist_type=dist_type,
        now=now,
        compound=compound,
        quiet=quiet,
    )


def write_dynamicemb(
    path: Path,
    tables: Mapping[str, StoredTable],
    *,
    optimizer: bool = True,
    counters: bool | Counts = True,
    ranks: int = 1,
    dist_type: str = "roundrobin",
    now: int | None = None,
    compound: Mapping[str, Sequence[str]] | None = None,
    quiet: bool = False,
) -> dict[str, DynamicEmbReport]:
    """``dynamicemb`` of tables wherever they lie."""
    if dist_type not in _DIST_TYPES:
        raise ValueError(
            f"dist_type must be one of {_DIST_TYPES}, not {dist_type!r}: DynamicEmb "
            "can not read its own 'continuous' dumps again."
        )
    if ranks < 1:
        raise ValueError(f"ranks must be 1 or more, not {ranks}")
    for table in tables.values():
        _check(table, optimizer)
    given = counters if isinstance(counters, Mapping) else {}
    if counters is True:
        known = {
            n: t.admission_counts
            for n, t in tables.items()
            if t.admission_counts is not None
        }
        given = {name: read() for name, read in known.items()}
    columns = _columns(tables, compound or {})
    moment = time.time_ns() if now is None else now
    writers = {
        name: TableWriter(
            table,
            optimizer,
            ranks,
            dist_type,
            moment,
            given.get(name),
            columns.get(name),
        )
        for name, table in tables.items()
    }
    reports = {}
    with new_directory(Path(path)) as draft:
        total = sum(table.rows for table in tables.values())
        with progress_bar("dynamicemb", total, quiet) as advance:
            for name, writer in writers.items():
                reports[name] = writer.write(draft, advance)
        known = {}
        for writer in writers.values():
            known |= writer.entries
        write_side_file(draft, known)
    reports = _with_common_notes(reports, tables)
    if not quiet:
        _print(reports)
    return reports


def _columns(
    tables: Mapping[str, StoredTable], compound: Mapping[str, Sequence[str]]
) -> dict[str, tuple[str, ...]]:
    """The score columns of compound strategies, by table."""
    result = {}
    for name, order in compound.items():
        if name not in tables or tables[name].schema.score_strategy != "lfu":
            raise ValueError(
                f"compound: '{name}' is no table with score_strategy='lfu'; leave it "
                "out."
            )
        strategies = tuple(getattr(each, "name", each).lower() for each in order)
        if sorted(strategies) != ["lfu", "timestamp"]:
            raise ValueError(
                f"compound: table '{name}' has {tuple(order)}, but DynamicEmb combines "
                "only timestamp and lfu: give ('timestamp', 'lfu') in its order."
            )
        result[name] = strategies
    return result


def _check(table: StoredTable, optimizer: bool) -> None:
    schema = table.schema
    if schema.dim > _MAX_DIM:
        raise ValueError(
            f"Table '{schema.name}' has dim {schema.dim}; DynamicEmb reads up to "
            f"{_MAX_DIM}."
        )
    if optimizer and schema.optimizer.get("kind") not in OPTIMIZERS:
        raise ValueError(
            f"Table '{schema.name}': DynamicEmb has no optimizer like this one "
            f"({schema.optimizer.get('kind') or 'unknown'}); it has "
            f"{list(OPTIMIZERS)}. Pass optimizer=False to leave its states out."
        )


def _with_common_notes(
    reports: dict[str, DynamicEmbReport], tables: Mapping[str, StoredTable]
) -> dict[str, DynamicEmbReport]:
    notes = {name: list(report.notes) for name, report in reports.items()}
    dims = {name: table.schema.dim for name, table in tables.items()}
    if len(set(dims.values())) > 1:
        for each in notes.values():
            each.append(
                f"DynamicEmb's inference collection takes one dim, these are {dims}: "
                "load tables of one dim at a time (table_names=...)."
            )
    for name in list(reports)[:-1]:
        if reports[name].num_embeddings >= _EXACT_FLOAT32:
            notes[name].append(
                "its inference loader computes wrong offsets for tables after one of "
                "2**24 rows or more: load this table last, or alone."
            )
    return {
        name: dataclasses.replace(report, notes=tuple(notes[name]))
        for name, report in reports.items()
    }


def _print(reports: Mapping[str, DynamicEmbReport]) -> None:
    from rich.console import Console

    console = Console()
    for name, report in reports.items():
        console.print(
            f"{name}: {report.rows} rows; num_embeddings={report.num_embeddings} is "
            "the smallest that loses none in DynamicEmb",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
        for note in report.notes:
            console.print(
                f"{name}: {note}", highlight=False, markup=False, soft_wrap=True
            )
