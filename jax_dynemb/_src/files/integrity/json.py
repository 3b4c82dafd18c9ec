# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""JSON of files that may be damaged: bounded, strict, of checked types and version."""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .errors import DamagedFileError

_MOST_BYTES = 1 << 26
_LARGEST = 2**64 - 1


def file_bytes(path: Path) -> int:
    """Returns the size of a file, which may be no device or pipe that never ends."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        raise DamagedFileError(path, "it is missing") from None
    if not stat.S_ISREG(status.st_mode):
        raise DamagedFileError(path, "it is no regular file")
    return status.st_size


def file_inside(folder: Path, name: str, source: Path) -> Path:
    """Returns the path of a name in ``source``; it may not leave the folder."""
    parts = name.split("/")
    if not name or "\\" in name or "\0" in name or {"", ".", ".."} & set(parts):
        raise DamagedFileError(source, f"it names {name!r}, outside of {folder}")
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise DamagedFileError(source, f"{name!r} is a link to outside of {folder}")
    return path


def read_json(path: Path) -> Fields:
    """Reads the object in a JSON file; DamagedFileError if it is none, or too large."""
    size = file_bytes(path)
    if size > _MOST_BYTES:
        raise DamagedFileError(path, f"it has {size} bytes, too many for JSON")
    return parse_json(path, path.read_bytes())


def parse_json(path: Path, data: bytes | str) -> Fields:
    """Returns the object in the UTF-8 text of a JSON file; no name comes twice."""
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
        found = json.loads(text, object_pairs_hook=_distinct, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        problem = f"it can not be read as JSON ({str(error)[:200]})"
        raise DamagedFileError(path, problem) from None
    if not isinstance(found, dict):
        raise DamagedFileError(path, "its JSON is no object")
    return Fields(path, found)


class Fields(Mapping[str, Any]):
    """Holds the entries of a JSON object by name; its methods check their types."""

    def __init__(self, path: Path, entries: Mapping[str, Any]):
        self.path = path
        self._entries = entries

    def __getitem__(self, name: str) -> Any:
        if name not in self._entries:
            raise DamagedFileError(self.path, f"it has no {name!r}")
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def get(self, name: str, default: Any = None) -> Any:
        """An entry of any type, or the default."""
        return self._entries.get(name, default)

    def whole(self, name: str, most: int = _LARGEST) -> int:
        """A whole number from 0 to ``most``."""
        value = self[name]
        if not is_whole(value) or value > most:
            self._fail(name, f"a whole number from 0 to {most}")
        return value

    def number(self, name: str) -> float:
        """A finite number."""
        value = self[name]
        plain = isinstance(value, int | float) and not isinstance(value, bool)
        if not plain or not math.isfinite(value):
            self._fail(name, "a finite number")
        return value

    def text(self, name: str) -> str:
        """A string."""
        if not isinstance(self[name], str):
            self._fail(name, "a string")
        return self[name]

    def texts(self, name: str) -> list[str]:
        """A list of strings."""
        value = self[name]
        if not isinstance(value, list) or any(not isinstance(v, str) for v in value):
            self._fail(name, "a list of strings")
        return value

    def wholes(self, name: str) -> list[int]:
        """A list of whole numbers."""
        value = self[name]
        if not isinstance(value, list) or not all(map(is_whole, value)):
            self._fail(name, "a list of whole numbers")
        return value

    def fields(self, name: str) -> Fields:
        """An object."""
        if not isinstance(self[name], dict):
            self._fail(name, "an object")
        return Fields(self.path, self[name])

    def _fail(self, name: str, wanted: str) -> None:
        found = repr(self[name])[:80]
        raise DamagedFileError(self.path, f"its {name!r} is {found}, not {wanted}")


def is_whole(value: Any) -> bool:
    """Whether a value of JSON is a whole number from 0 to 2**64 - 1."""
    return type(value) is int and 0 <= value <= _LARGEST


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name comes twice")
    return found


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


FORMAT_VERSION = 1
_PACKAGE = __name__.split(".")[0]


def check_version(fields: Fields, newest: int = FORMAT_VERSION) -> None:
    """Refuses a format without a version, or newer than this package."""
    version = fields.get("format_version")
    if not is_whole(version) or not 1 <= version <= newest:
        raise DamagedFileError(
            fields.path,
            f"its format_version is {version!r}, and this {_PACKAGE} reads versions up "
            f"to {newest}",
            f"Write it with jax_dynemb, or upgrade {_PACKAGE}.",
        )
