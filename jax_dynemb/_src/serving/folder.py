# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Writes the parts of a publication, holds its lease, and removes old parts."""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
import shutil
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jax_dynemb._src.engines import States
from jax_dynemb._src.files.disk import new_directory, write_json
from jax_dynemb._src.files.integrity import (
    DENSE,
    FORMAT_VERSION,
    TABLES,
    Header,
    Part,
    delta_path,
    numbers_in,
    part_fields,
    read_delta_header,
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
from jax_dynemb._src.table import Mark, Tables

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None


_REMOVED = "removed-"  # of names that no reader looks for


class Lease:
    """Holds a folder for one publisher: a lock, and a token that each write compares.

    The lock goes with its process. The token protects where a file system has no locks,
    or where a process that was stopped for long comes back.
    """

    def __init__(self, folder: Path):
        """Takes the folder; RuntimeError if another publisher has it."""
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "publisher.json"
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        self._token = secrets.token_hex(16)
        if fcntl is not None:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                owner = self._path.read_text() or "another process"
                os.close(self._file)
                raise RuntimeError(
                    f"{folder} has a publisher already ({owner}): end that process, or "
                    "publish into another folder."
                ) from None
            except OSError:
                pass  # a file system without locks
        owner = {"host": socket.gethostname(), "pid": os.getpid(), "token": self._token}
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, json.dumps(owner).encode(), 0)
        os.fsync(self._file)

    def check(self) -> None:
        """Raises RuntimeError if another publisher has taken the folder since."""
        if self._token not in self._path.read_text():
            raise RuntimeError(
                f"Another publisher has taken {self._path.parent}: this one writes "
                "nothing more. Its folder holds what that one publishes."
            )

    def release(self) -> None:
        """Lets go; may be called twice."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def write_snapshot(
    folder: Path,
    lease: Lease,
    coll: Tables,
    state: States,
    number: int,
    marks: Mapping[str, Mark],
    dtype: str,
    step: int,
    dense: Mapping[str, Any],
) -> Part:
    """Writes whole tables of a state, as the begin of a history."""
    found = {name: live_table(coll, state, name) for name in marks}
    tables = {
        name: {"rows": found[name].rows, "mark": mark.to_json()}
        for name, mark in marks.items()
    }
    moment = Captured(step, time.time(), {}, {}, dense)
    return _snapshot(folder, lease, found, number, tables, dtype, moment, None)


def compact(
    folder: Path, lease: Lease, coll: Tables, base: Part, last: Part, dtype: str
) -> Part:
    """Makes a snapshot of an earlier one and the segments up to a part."""
    segments = [
        read_part(segment_path(folder, n))
        for n in range(base.number + 1, last.number + 1)
    ]
    found = {name: _joined(coll, name, base, segments, last) for name in last.tables}
    moment = Captured(last.step, last.time, {}, {}, {})
    source = last.path / DENSE
    return _snapshot(
        folder,
        lease,
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
    folder: Path,
    lease: Lease,
    found: Mapping[str, StoredTable],
    number: int,
    tables: Mapping[str, Any],
    dtype: str,
    moment: Captured,
    token: str | None,
    dense_file: Path | None = None,
) -> Part:
    target = snapshot_path(folder, number)
    with new_directory(target) as draft:
        write_safetensors(
            draft / TABLES, found, dtype=dtype, counters=False, quiet=True
        )
        if dense_file is not None and dense_file.exists():
            shutil.copyfile(dense_file, draft / DENSE)
        else:
            _write_dense(draft, moment)
        files = {
            name: read_table_header(draft / TABLES / f"{name}.safetensors").link
            for name in found
        }
        fields = part_fields(number, "", moment.step, moment.time, tables, files, token)
        write_json(draft / "publication.json", fields)
        lease.check()
    return read_part(target)


def write_segment(
    folder: Path,
    lease: Lease,
    last: Part,
    captured: Captured,
    found: Mapping[str, Changes],
    dtype: str,
) -> Part:
    """Writes what changed since a part."""
    number = last.number + 1
    target = segment_path(folder, number)
    files = {}
    with new_directory(target) as draft:
        for name, changes in found.items():
            if changes.columns is not None:
                files[name] = _write_delta(
                    draft, name, changes, last.tables[name], dtype
                )
        _write_dense(draft, captured)
        tables = {
            name: {"rows": changes.rows, "mark": changes.mark.to_json()}
            for name, changes in found.items()
        }
        fields = part_fields(
            number, last.token, captured.step, captured.time, tables, files
        )
        write_json(draft / "publication.json", fields)
        lease.check()
    return read_part(target)


def _write_delta(
    folder: Path, name: str, changes: Changes, before: Mapping[str, Any], dtype: str
) -> str:
    assert changes.columns is not None
    fields = {
        "format_version": FORMAT_VERSION,
        "kind": "delta",
        "table": name,
        "dim": changes.columns["rows"].shape[1],
        "dtype": dtype,
        "since": Mark.from_json(before["mark"]).clock,
        "until": changes.mark.clock,
    }
    like = {each: (x.dtype, x.shape) for each, x in changes.columns.items()}
    with TensorFile(delta_path(folder, name), like, fields) as file:
        for each, array in changes.columns.items():
            file.append(each, array)
    return file.link


def _write_dense(folder: Path, captured: Captured) -> None:
    arrays = {name: np.asarray(x) for name, x in captured.dense.items()}
    if not arrays:
        return
    widest = dict(sorted(arrays.items(), key=lambda each: -each[1].itemsize))
    like = {name: (x.dtype, x.shape) for name, x in widest.items()}
    fields = {"format_version": FORMAT_VERSION, "kind": "dense"}
    with TensorFile(folder / DENSE, like, fields) as file:
        for name, array in widest.items():
            file.append(name, array)


def remove_old(folder: Path, keep: int) -> None:
    """Removes parts that no subscriber needs: those before the last few snapshots."""
    for left in folder.glob(f"{_REMOVED}*"):  # by a process that was killed
        shutil.rmtree(left, ignore_errors=True)
    snapshots = numbers_in(folder, "snapshot")
    if len(snapshots) <= keep:
        return
    oldest = snapshots[-keep]
    old = [snapshot_path(folder, number) for number in snapshots[:-keep]]
    segments = numbers_in(folder, "segment")
    old += [segment_path(folder, number) for number in segments if number <= oldest]
    for path in old:  # all of it at once, since a reader may be there
        removed = path.rename(path.with_name(_REMOVED + path.name))
        shutil.rmtree(removed, ignore_errors=True)
