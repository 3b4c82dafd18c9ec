# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Names of leaves as names of files: what would share a file is refused."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from jax_dynemb._src.files.checkpoint import checksums as _checksums
from jax_dynemb._src.files.checkpoint.layout import SCHEMA_FILE

_MOST_BYTES = 255  # of a file's name
# Orbax and this package write these beside the arrays.
_TAKEN = {SCHEMA_FILE, _checksums.FILE, "_METADATA", "_sharding", "array_metadatas"}
_TAKEN |= {"commit_success.txt", "manifest.ocdbt", "ocdbt.process_0", "d"}
_CHECKSUMS = re.compile(r"checksums\.\d+\.json")


def check_names(paths: Iterable[tuple[str, ...]]) -> None:
    """Refuses two leaves of one file, and names that are none of a file."""
    owners: dict[str, tuple[str, ...]] = {}
    for path in paths:
        file = ".".join(path)
        if problem := _problem(file):
            raise ValueError(
                f"The leaf {list(path)} of the tree can not be saved: {problem}. "
                "Rename the key of the dict, or the attribute."
            )
        for name in {file, "/".join(path)}:
            other = owners.setdefault(name, path)
            if other != path:
                raise _same_file(other, path)
    for file, path in owners.items():
        for i in (i for i, letter in enumerate(file) if letter == "/"):
            if (other := owners.get(file[:i], path)) != path:
                raise _same_file(other, path)


def _problem(file: str) -> str | None:
    parts = file.split("/")
    if "\0" in file or {"", ".", ".."} & set(parts):
        return "its name is empty, or leads out of the checkpoint"
    if parts[0] in _TAKEN or _CHECKSUMS.fullmatch(parts[0]):
        return f"'{parts[0]}' is a file of every checkpoint"
    if any(len(os.fsencode(part)) > _MOST_BYTES for part in parts):
        return f"its name has more than {_MOST_BYTES} bytes, too many for a file"
    return None


def _same_file(one: tuple[str, ...], other: tuple[str, ...]) -> ValueError:
    return ValueError(
        f"The leaves {list(one)} and {list(other)} of the tree would share a file. "
        "Rename one of them: without '.' and '/' in the keys of dicts there are no "
        "such pairs."
    )
