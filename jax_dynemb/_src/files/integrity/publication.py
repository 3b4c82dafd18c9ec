# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Reads what a publisher writes into a folder: snapshots and segments.

``snapshot-<n>`` holds whole tables, ``segment-<n>`` what changed between n - 1 and n. A
directory has its name when it is complete. Its ``publication.json`` names the one
before by a token, so a reader notices a gap, another run or another history. A reader
begins with any snapshot and goes on with the segments that follow its number.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .errors import DamagedFileError
from .json import FORMAT_VERSION, Fields, check_version, read_json
from .tensor_header import Header

PUBLICATION = "publication.json"
_TRAINS = "tensor_trains"
TABLES = "tables"
DENSE = "dense.safetensors"


@dataclasses.dataclass(frozen=True)
class Part:
    """Says what one directory of a publication holds.

    Attributes:
      path: the directory.
      number: its place in the sequence.
      previous: token of the number before; "" where a history begins.
      token: names it.
      step: what the publisher called the step of the rows.
      time: seconds since 1970 on the publisher's clock, when the rows were copied.
      tables: by name what the publisher says of each: its rows, and its mark.
      files: by table, the link of its file; those that are not there did not change.
      processes: that publish at the same moments, each its shards.
      dense: the link of the file of dense arrays; "" without one, and None where an
        earlier version did not say.
    """

    path: Path
    number: int
    previous: str
    token: str
    step: int
    time: float
    tables: Mapping[str, Any]
    files: Mapping[str, str]
    processes: int = 1
    dense: str | None = None

    @property
    def is_snapshot(self) -> bool:
        """Whether it holds whole tables."""
        return self.path.name.startswith("snapshot-")


def snapshot_path(folder: Path, number: int) -> Path:
    """Returns where a snapshot lies."""
    return folder / f"snapshot-{number:012d}"


def segment_path(folder: Path, number: int) -> Path:
    """Returns where a segment lies."""
    return folder / f"segment-{number:012d}"


def part_path(folder: Path, kind: str, number: int) -> Path:
    """Returns where a part of a kind lies."""
    return (snapshot_path if kind == "snapshot" else segment_path)(folder, number)


def delta_path(segment: Path, table: str) -> Path:
    """Returns where a segment has the changes of a table."""
    return segment / f"{table}.delta-000001.safetensors"


def train_path(table: str, field: str) -> str:
    """Returns what an array of a tensor train is called beside the dense ones."""
    return f"{_TRAINS}/{table}/{field}"


def split_dense(arrays: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Separates dense arrays from those of tensor trains, by table and field."""
    dense, trains = {}, {}
    for name, array in arrays.items():
        if name.startswith(f"{_TRAINS}/"):
            table, _, field = name.removeprefix(f"{_TRAINS}/").rpartition("/")
            trains.setdefault(table, {})[field] = array
        else:
            dense[name] = array
    return dense, trains


def numbers_in(folder: Path, kind: str) -> list[int]:
    """Lists the numbers of the snapshots or segments in a folder, ascending."""
    names = (entry.name for entry in os.scandir(folder))
    parts = (name.split("-", 1) for name in names if name.startswith(f"{kind}-"))
    return sorted(int(number) for _, number in parts if number.isdigit())


def token_of(previous: str, fields: Mapping[str, Any]) -> str:
    """Returns the token of a part from what it says and the token before."""
    text = json.dumps([previous, fields], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def part_fields(
    number: int,
    previous: str,
    step: int,
    time: float,
    tables: Mapping[str, Any],
    files: Mapping[str, str],
    token: str | None = None,
    processes: int = 1,
    dense: str | None = None,
) -> dict[str, Any]:
    """Returns what ``publication.json`` holds.

    A snapshot of the rows of a segment has the token of that, so that a reader may come
    from either.
    """
    fields = {
        "format_version": FORMAT_VERSION,
        "number": number,
        "previous": previous,
        "step": step,
        "time": time,
        "tables": dict(tables),
        "files": dict(files),
    }
    if dense is not None:
        fields["dense"] = dense
    if processes > 1:
        fields["processes"] = processes
    own = token_of(previous, fields)
    return fields | {"token": token or own, "check": own}


def read_part(path: Path) -> Part:
    """Reads what a directory holds; DamagedFileError if that is not what was written.

    Raises:
      FileNotFoundError: it is not there, or was removed as an old one.
    """
    if not path.is_dir():
        raise FileNotFoundError(f"{path} is not there.")
    return part_of(path, read_json(path / PUBLICATION))


def part_of(path: Path, fields: Fields) -> Part:
    """Returns what ``publication.json`` says; DamagedFileError if it was altered."""
    check_version(fields)
    said = {n: fields[n] for n in fields if n not in ("token", "check")}
    if token_of(fields.text("previous"), said) != fields.text("check"):
        raise DamagedFileError(fields.path, "its contents do not match their checksum")
    return Part(
        path,
        fields.whole("number"),
        fields.text("previous"),
        fields.text("token"),
        fields.whole("step"),
        fields.number("time"),
        fields.fields("tables"),
        fields.fields("files"),
        fields.whole("processes") if "processes" in fields else 1,
        fields.text("dense") if "dense" in fields else None,
    )


def dense_path(part: Part) -> Path | None:
    """Returns the file of a part's dense arrays; None if it has none.

    Raises:
      DamagedFileError: it is missing, or the whole part was removed as an old one.
    """
    path = part.path / DENSE
    if part.dense == "":
        return None
    if path.exists():
        return path
    if part.dense is None and part.path.exists():
        return None
    raise DamagedFileError(path, "it is missing")


def check_dense(part: Part, header: Header) -> None:
    """Raises DamagedFileError if dense arrays are not those of their part."""
    if part.dense is not None and header.link != part.dense:
        raise DamagedFileError(header.path, "it is of another part")
