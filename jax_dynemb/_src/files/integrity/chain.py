# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""An export and its deltas: one chain, in which no file may be missing.

``<table>.safetensors`` has all rows, ``<table>.delta-000001.safetensors`` what changed
since, and so on. Each delta names the file before by the checksum of its header, which
has those of all its bytes. ``<table>.manifest.json`` names the newest file, since the
others can not tell that it is gone.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from .errors import DamagedFileError
from .json import check_version, read_json
from .side_file import sum_of_json
from .tensor_header import MIXED_INDEX_VERSION, Header, read_header

SUFFIX = ".safetensors"
_DELTA = re.compile(r"(.+)\.delta-([0-9]{6,})\.safetensors", re.DOTALL)
_FIX = "Copy the export again with all of its files, or export the table anew."


@dataclasses.dataclass(frozen=True)
class Chain:
    """The files of one table in a directory."""

    table: str
    base: Header | None  # the file with all rows; None if there are deltas only
    deltas: tuple[Header, ...]  # the others, in order

    @property
    def files(self) -> list[Header]:
        """All of them, the oldest first."""
        return [*([] if self.base is None else [self.base]), *self.deltas]

    @property
    def until(self) -> int | None:
        """The first step whose rows may be missing, if the files say so."""
        return self.files[-1].fields.get("until")


def table_of_delta(path: Path) -> str | None:
    """The table that a file is a delta of, by its name."""
    match = _DELTA.fullmatch(path.name)
    return None if match is None else match[1]


def base_files(folder: Path) -> list[Path]:
    """Lists the files that hold whole tables; DamagedFileError if one is missing."""
    found = sorted(p for p in folder.glob(f"*{SUFFIX}") if table_of_delta(p) is None)
    names = {path.name.removesuffix(SUFFIX) for path in found}
    for path in sorted(folder.iterdir()):
        table = table_of_delta(path)
        if path.name.endswith(".manifest.json"):
            table = path.name.removesuffix(".manifest.json")
        if table is not None and table not in names:
            problem = f"it is missing, although {path.name} is there"
            raise DamagedFileError(folder / f"{table}{SUFFIX}", problem, _FIX)
    return found


def manifest_path(folder: Path, table: str) -> Path:
    """Where the newest file of a table is named."""
    return folder / f"{table}.manifest.json"


def read_chain(folder: Path, table: str) -> Chain:
    """Finds the files of a table and checks that they are one chain."""
    path = folder / f"{table}{SUFFIX}"
    base = read_table_header(path) if path.exists() else None
    paths = sorted(
        (int(match[2]), each)
        for each in folder.iterdir()
        if (match := _DELTA.fullmatch(each.name)) and match[1] == table
    )
    deltas = [read_delta_header(each) for _, each in paths]
    chain = Chain(table, base, tuple(deltas))
    for header in chain.files:
        owner = header.fields.get("table", table)
        if owner != table:
            problem = f"it is of the table {owner!r}, which its name does not say"
            raise DamagedFileError(header.path, problem, _FIX)
    for place, (number, each) in enumerate(paths):
        if base is not None and number != place + 1:
            _missing(each, f"it is number {number}, but the file before {place}")
    for before, after in zip(chain.files, chain.files[1:], strict=False):
        _check_link(before, after)
    if chain.files:
        _check_newest(folder, chain)
    return chain


def read_table_header(path: Path) -> Header:
    """Reads the header of a file with all rows of a table, or DamagedFileError."""
    header = read_header(path)
    if not header.fields:
        problem = "it was not written by jax_dynemb: it has no metadata"
        raise DamagedFileError(path, problem)
    check_version(header.fields, MIXED_INDEX_VERSION)
    if header.fields.get("kind", "table") != "table":
        problem = "it is a delta, but its name is that of a whole table"
        raise DamagedFileError(path, problem, _FIX)
    _check_range(header)
    return header


def read_delta_header(path: Path) -> Header:
    """Reads the header of a delta, or raises DamagedFileError."""
    header = read_header(path)
    check_version(header.fields, MIXED_INDEX_VERSION)
    if header.fields.get("kind", "delta") != "delta":
        problem = "it is a whole table, but it should be a delta"
        raise DamagedFileError(path, problem, "Load it as a table, or replace() one.")
    _check_range(header)
    return header


def _check_link(before: Header, after: Header) -> None:
    """A delta goes on where the file before it ends."""
    until, since = before.fields.get("until"), after.fields.get("since")
    if until is not None and since is not None and since != until:
        _missing(
            after.path, f"it begins at {since}, but the file before ends at {until}"
        )
    link = after.fields.get("previous")
    if link is not None and link != before.link:
        _missing(after.path, f"it does not continue {before.path.name}")


def _missing(path: Path, problem: str) -> None:
    problem += ": a delta is missing, or belongs to another export"
    raise DamagedFileError(path, problem, _FIX)


def _check_newest(folder: Path, chain: Chain) -> None:
    """Compares with the manifest. Later files may follow, if they continue the chain.

    A writer killed between a delta and its entry leaves such a file.
    """
    path = manifest_path(folder, chain.table)
    if not path.exists():
        if chain.base is not None and any(f.sums is not None for f in chain.files):
            problem = "it is missing, so that the newest delta may be too"
            raise DamagedFileError(path, problem, _FIX)
        return
    fields = read_json(path)
    body = {name: fields[name] for name in fields if name != "crc32"}
    if fields.whole("crc32") != sum_of_json(body):
        raise DamagedFileError(path, "its contents do not match their checksum", _FIX)
    check_version(fields)
    if fields.text("table") != chain.table:
        raise DamagedFileError(path, f"it is of the table {fields['table']!r}", _FIX)
    named = {fields.text("newest"): fields.text("link")}
    if chain.base is not None:
        named[chain.base.path.name] = fields.text("base")
    links = {header.path.name: header.link for header in chain.files}
    for name, link in named.items():
        if name not in links:
            problem = f"it names {name!r}, which is missing"
            raise DamagedFileError(path, problem, _FIX)
        if links[name] != link:
            problem = f"it is not the one that {path.name} names"
            raise DamagedFileError(folder / name, problem, _FIX)


def _check_range(header: Header) -> None:
    """Where rows begin and end; checked here once for all that compare them."""
    fields = header.fields
    for name in ("since", "until"):
        if fields.get(name) is not None:
            fields.whole(name)
    since, until = fields.get("since"), fields.get("until")
    if since is not None and until is not None and since > until:
        problem = f"it begins at {since} and ends before, at {until}"
        raise DamagedFileError(header.path, problem)
    if fields.get("head") is not None:
        fields.wholes("head")
    for name in ("table", "previous"):
        if fields.get(name) is not None:
            fields.text(name)
