# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Writes the parts of a publication, and removes old ones."""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jax_dynemb._src.engines import States
from jax_dynemb._src.engines.shard import counter_values, export_index
from jax_dynemb._src.files.disk import new_directory
from jax_dynemb._src.files.integrity import (
    DENSE,
    FORMAT_VERSION,
    TABLES,
    Channel,
    Header,
    Part,
    delta_path,
    dense_path,
    part_fields,
    read_delta_header,
    read_header,
    read_part,
    read_table_header,
    segment_path,
    snapshot_path,
)
from jax_dynemb._src.files.live import live_table
from jax_dynemb._src.files.safetensors import (
    Series,
    TensorFile,
    stored_series,
    write_safetensors,
)
from jax_dynemb._src.rows import Schema, StoredTable
from jax_dynemb._src.serving.capture import Captured, Changes
from jax_dynemb._src.table import Mark, Tables, identity_in, log_head


def write_snapshot(
    channel: Channel,
    coll: Tables,
    state: States,
    number: int,
    marks: Mapping[str, Mark],
    dtype: str,
    step: int,
    dense: Mapping[str, Any],
) -> Part:
    """Writes whole tables of a state, as the begin of a history."""
    found = {name: _live(coll, state, name) for name in marks}
    tables = {
        name: {"rows": _all_rows(coll, state, name), "mark": mark.to_json()}
        for name, mark in marks.items()
    }
    moment = Captured(step, time.time(), {}, {}, dense)
    return _snapshot(channel, found, number, tables, dtype, moment, None)


def _live(coll: Tables, state: States, name: str) -> StoredTable:
    """Returns a table, of several processes the rows that lie on this one."""
    if jax.process_count() == 1:
        return live_table(coll, state, name)
    config = coll.engine.catalog.dynamic[name]
    counters = counter_values(coll.hash_engine.with_own_counters(state, name))
    shards = coll.hash_engine.shards(state, name)
    return StoredTable(
        schema=Schema.of(config, counters["step"]),
        rows=sum(len(keys) for keys, _ in export_index(shards)),
        counters=counters,
        chunks=lambda: coll.export(state, name),
        index=lambda: export_index(shards),
        head=log_head(coll, state, name),
        identity=identity_in(coll, state, name),
    )


def _all_rows(coll: Tables, state: States, name: str) -> int:
    return counter_values(coll.hash_engine.with_own_counters(state, name))["rows"]


def compact(channel: Channel, coll: Tables, base: Part, last: Part, dtype: str) -> Part:
    """Makes a snapshot of an earlier one and the segments up to a part."""
    base = channel.fetch("snapshot", base.number)
    numbers = channel.numbers("segment")
    numbers = [n for n in numbers if base.number < n <= last.number]
    segments = [channel.fetch("segment", number) for number in numbers]
    last = segments[-1]
    found = {name: _joined(coll, name, base, segments, last) for name in last.tables}
    moment = Captured(last.step, last.time, {}, {}, {})
    source = dense_path(last)
    return _snapshot(
        channel,
        found,
        last.number,
        last.tables,
        dtype,
        moment,
        last.token,
        source,
    )


def _joined(
    coll: Tables, name: str, base: Part, segments: list[Part], last: Part
) -> StoredTable:
    header = read_table_header(base.path / TABLES / f"{name}.safetensors")
    deltas: tuple[Header, ...] = tuple(
        read_delta_header(delta_path(each.path, name))
        for each in segments
        if name in each.files
    )
    config = coll.engine.catalog.dynamic[name]
    series = Series(header, deltas, header.tensor("keys").shape[0], config.dim)
    schema = Schema.of(config, series.step or 0)
    mark = Mark.from_json(last.tables[name]["mark"])
    stored = stored_series(series)
    counters = {**stored.counters, "clock": mark.clock - 1}
    return dataclasses.replace(
        stored, schema=schema, counters=counters, head=mark.head, identity=mark.identity
    )


def _snapshot(
    channel: Channel,
    found: Mapping[str, StoredTable],
    number: int,
    tables: Mapping[str, Any],
    dtype: str,
    moment: Captured,
    token: str | None,
    dense_file: Path | None = None,
) -> Part:
    target = snapshot_path(channel.folder, number)
    with new_directory(target) as draft:
        write_safetensors(
            draft / TABLES, found, dtype=dtype, counters=False, quiet=True
        )
        if dense_file is not None:
            shutil.copyfile(dense_file, draft / DENSE)
            dense = read_header(draft / DENSE).link
        else:
            dense = _write_dense(draft, moment)
        files = {
            name: read_table_header(draft / TABLES / f"{name}.safetensors").link
            for name in found
        }
        fields = part_fields(
            number,
            "",
            moment.step,
            moment.time,
            tables,
            files,
            token,
            processes=jax.process_count(),
            dense=dense,
        )
        _write_fields(draft, fields)
        channel.check()
    return read_part(target)


def _write_fields(draft: Path, fields: Mapping[str, Any]) -> None:
    # new_directory waits for the disk, once for all files.
    text = json.dumps(fields, indent=1)
    (draft / "publication.json").write_text(text, encoding="utf-8")


def write_segment(
    channel: Channel,
    number: int,
    last: Part,
    captured: Captured,
    found: Mapping[str, Changes],
    dtype: str,
) -> Part:
    """Writes what changed since a part."""
    target = segment_path(channel.folder, number)
    files = {}
    with new_directory(target) as draft:
        for name, changes in found.items():
            if changes.columns is not None:
                files[name] = _write_delta(
                    draft, name, changes, last.tables[name], dtype
                )
        dense = _write_dense(draft, captured)
        tables = {
            name: {"rows": changes.rows, "mark": changes.mark.to_json()}
            for name, changes in found.items()
        }
        fields = part_fields(
            number,
            last.token,
            captured.step,
            captured.time,
            tables,
            files,
            processes=jax.process_count(),
            dense=dense,
        )
        _write_fields(draft, fields)
        channel.check()
    return read_part(target)


def _write_delta(
    folder: Path, name: str, changes: Changes, before: Mapping[str, Any], dtype: str
) -> str:
    assert changes.columns is not None
    fields = {
        "format_version": FORMAT_VERSION,
        "kind": "delta",
        "table": name,
        "dim": changes.stored.shape[1],
        "dtype": dtype,
        "since": Mark.from_json(before["mark"]).clock,
        "until": changes.mark.clock,
    }
    like = {each: (x.dtype, x.shape) for each, x in changes.columns.items()}
    shape = len(changes.order), changes.stored.shape[1]
    like["rows"] = changes.stored.dtype, shape
    with TensorFile(delta_path(folder, name), like, fields) as file:
        for each, array in changes.columns.items():
            file.append(each, array)
        for rows in changes.blocks():
            file.append("rows", rows)
    return file.link


def _write_dense(folder: Path, captured: Captured) -> str:
    """Writes the dense arrays, if any, and returns the link of their file."""
    arrays = {name: np.asarray(x) for name, x in captured.dense.items()}
    if not arrays:
        return ""
    widest = dict(sorted(arrays.items(), key=lambda each: -each[1].itemsize))
    like = {name: (x.dtype, x.shape) for name, x in widest.items()}
    fields = {"format_version": FORMAT_VERSION, "kind": "dense"}
    with TensorFile(folder / DENSE, like, fields) as file:
        for name, array in widest.items():
            file.append(name, array)
    return file.link


def remove_old(channel: Channel, keep: int) -> None:
    """Removes parts that no subscriber needs: those before the last few snapshots."""
    snapshots = channel.numbers("snapshot")
    if len(snapshots) <= keep:
        return
    oldest = snapshots[-keep]
    for number in snapshots[:-keep]:
        channel.remove("snapshot", number)
    for number in channel.numbers("segment"):
        if number <= oldest:
            channel.remove("segment", number)
