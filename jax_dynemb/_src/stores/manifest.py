# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Manifests: what each commit of a log consists of, and which commits there are."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.files.disk import new_file, write_json
from jax_dynemb._src.files.integrity import (
    FORMAT_VERSION,
    DamagedFileError,
    Fields,
    check_version,
    file_bytes,
    is_whole,
    read_json,
    sum_of_json,
)
from jax_dynemb._src.rows import Identity, identity_of
from jax_dynemb._src.stores.layout import Layout

COMMITS = "commits"
SEGMENTS = "segments"
NEWEST = "commits/NEWEST"
_TRIES = 100  # of a reader beside a writer
_REMEMBERED = 64  # commits that a manifest names as those before it


class Segment(NamedTuple):
    """A finished segment, as C++ has it."""

    number: int
    bytes: int
    records: int
    tail_crc: int


@dataclasses.dataclass(frozen=True)
class Manifest:
    """Describes one commit."""

    tag: str
    number: int  # grows with each commit of a log
    # Numbers of the commits that it came from, the latest first.
    before: tuple[int, ...]
    step: int
    store: int  # a random number that all segments of the log have
    layout: Layout
    segments: tuple[Segment, ...]  # in order of number
    live_crc: int  # CRC-32C of the file that says which records are live
    rows: int
    digest: int  # the sum of the hashes of their keys
    # The table and the moment that the rows are of; None if nothing said it.
    identity: Identity | None = None
    # Whether a file names the newest commit; older versions wrote none.
    is_named: bool = True


class Newest(NamedTuple):
    """Names the newest commit, since the others can not tell that it is gone."""

    tag: str
    # Its number. A commit of a higher one may follow: a writer was killed before it
    # named that one here.
    number: int


def segment_path(folder: Path, number: int) -> Path:
    """Where a segment lies."""
    return folder / SEGMENTS / f"{number:010d}.segment"


def live_path(folder: Path, number: int) -> Path:
    """Where the live bits of a commit lie."""
    return folder / COMMITS / f"{number:010d}.live"


def manifest_path(folder: Path, tag: str) -> Path:
    """Where a manifest lies."""
    return folder / COMMITS / f"{tag}.json"


def write_manifest(folder: Path, manifest: Manifest, live: np.ndarray) -> None:
    """Writes both files of a commit, which is one when the second has its name.

    ``live`` is uint64[...], the bits of all segments one after the other.
    """
    with new_file(live_path(folder, manifest.number)) as draft:
        draft.write_bytes(live.tobytes())
    fields = {
        "format_version": FORMAT_VERSION,
        "tag": manifest.tag,
        "number": manifest.number,
        "before": list(manifest.before[:_REMEMBERED]),
        "step": manifest.step,
        "store": manifest.store,
        "schema": manifest.layout.to_json(),
        "segments": [list(each) for each in manifest.segments],
        "live_crc32c": _crc32c(live),
        "rows": manifest.rows,
        "digest": manifest.digest,
        "is_named": True,
    }
    if manifest.identity is not None:
        fields["identity"] = manifest.identity.to_json()
    with new_file(manifest_path(folder, manifest.tag)) as draft:
        write_json(draft, fields | {"crc32": sum_of_json(fields)})


def write_newest(folder: Path, newest: Newest) -> None:
    """Names the newest commit of a log."""
    fields = {"format_version": FORMAT_VERSION, **newest._asdict()}
    with new_file(folder / NEWEST) as draft:
        write_json(draft, fields | {"crc32": sum_of_json(fields)})


def read_newest(folder: Path) -> Newest | None:
    """Reads which commit is the newest; None in a log of an older version."""
    if not (folder / NEWEST).exists():
        return None
    fields = _checked(folder / NEWEST)
    return Newest(fields.text("tag"), fields.whole("number"))


def read_manifest(path: Path) -> Manifest:
    """Reads and checks the manifest of a commit, or raises DamagedFileError."""
    fields = _checked(path)
    if fields.text("tag") != path.stem:
        raise DamagedFileError(path, f"it is the manifest of {fields['tag']!r}")
    return Manifest(
        tag=path.stem,
        number=fields.whole("number"),
        before=tuple(fields.wholes("before")),
        step=fields.whole("step"),
        store=fields.whole("store"),
        layout=_layout(fields),
        segments=_segments(fields),
        live_crc=fields.whole("live_crc32c", 2**32 - 1),
        rows=fields.whole("rows"),
        digest=fields.whole("digest"),
        identity=_identity(fields),
        is_named=fields.get("is_named") is True,
    )


def read_live(folder: Path, manifest: Manifest) -> list[np.ndarray]:
    """Reads each segment's live records: uint64[ceil(records / 64)] each."""
    path = live_path(folder, manifest.number)
    words = [-(-each.records // 64) for each in manifest.segments]
    if file_bytes(path) != 8 * sum(words):
        raise DamagedFileError(path, f"it has not {8 * sum(words)} bytes")
    live = np.fromfile(path, np.uint64)
    if len(live) != sum(words) or _crc32c(live) != manifest.live_crc:
        raise DamagedFileError(path, "its checksum does not fit")
    return np.split(live, np.cumsum(words)[:-1]) if words else []


def manifests(folder: Path) -> tuple[list[Manifest], list[DamagedFileError]]:
    """Reads a log's manifests, the first commit first; and the errors of the others."""
    for _ in range(_TRIES):
        good, bad, vanished = [], [], False
        for path in sorted((folder / COMMITS).glob("*.json")):
            before = _file_version(path)
            try:
                good.append(read_manifest(path))
            except (DamagedFileError, FileNotFoundError) as error:
                # A writer may have removed it, and even have made it again since.
                if before is None or _file_version(path) != before:
                    vanished = True
                elif isinstance(error, DamagedFileError):
                    bad.append(error)
        if not vanished:
            return sorted(good, key=lambda each: each.number), bad
    raise OSError(f"{folder}: commits come faster than they can be read")


def _file_version(path: Path) -> tuple[int, int, int] | None:
    """Tells a file from one that replaces it; None: there is none."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns


def _checked(path: Path) -> Fields:
    fields = read_json(path)
    check_version(fields)
    body = {name: value for name, value in fields.items() if name != "crc32"}
    if sum_of_json(body) != fields["crc32"]:
        raise DamagedFileError(path, "its checksum does not fit")
    return fields


def _identity(fields: Fields) -> Identity | None:
    try:
        return identity_of(fields)
    except ValueError as error:
        raise DamagedFileError(fields.path, str(error)) from None


def _crc32c(live: np.ndarray) -> int:
    return _ffi.cpu_module().crc32c(np.ascontiguousarray(live).view(np.uint8))


def _layout(fields: Fields) -> Layout:
    given = fields.fields("schema")
    shapes = given.fields("states")
    given.whole("dim", 1 << 24)
    for name in shapes:
        if any(size > 1 << 24 for size in shapes.wholes(name)):
            raise DamagedFileError(fields.path, f"its state {name!r} is too wide")
    try:
        return Layout.from_json(given)
    except (ValueError, TypeError, AttributeError) as error:
        if isinstance(error, DamagedFileError):
            raise
        raise DamagedFileError(fields.path, f"its schema is none: {error}") from error


def _segments(fields: Fields) -> tuple[Segment, ...]:
    given: Any = fields["segments"]
    good = isinstance(given, list) and all(
        isinstance(each, list) and len(each) == 4 and all(map(is_whole, each))
        for each in given
    )
    if not good or any(each[2] >= 2**32 or each[3] >= 2**32 for each in given):
        raise DamagedFileError(fields.path, "its segments are no lists of four numbers")
    return tuple(Segment(*each) for each in given)
