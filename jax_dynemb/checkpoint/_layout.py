# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Where things lie in a directory of checkpoints.

<directory>/<step>/state/    arrays, as orbax writes them
                         jax_dynemb.json    tables and leaves, with a version
                         checksums.json     of all files here
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from jax_dynemb.checkpoint import _checksums
from jax_dynemb.stored import check_version

Directory = str | os.PathLike[str]

ITEM = "state"
SCHEMA_FILE = "jax_dynemb.json"


def resolved(directory: Directory) -> Path:
    """The absolute path of a directory.

    Raises:
      ValueError: it is an address of something else.
    """
    if "://" in os.fspath(directory):
        raise ValueError(
            f"{directory} is not a directory of this machine's file systems. Mount it, "
            "or save with orbax itself: tables are ordinary arrays to it."
        )
    return Path(directory).expanduser().absolute()


def steps(directory: Directory) -> list[int]:
    """The steps of the complete checkpoints of a directory, in order."""
    path = resolved(directory)
    if not path.is_dir():
        return []
    return sorted(
        int(each.name)
        for each in path.iterdir()
        if each.name.isdigit() and (each / ITEM / _checksums.FILE).is_file()
    )


def latest(directory: Directory) -> int | None:
    """The step of the newest complete checkpoint, or None."""
    return max(steps(directory), default=None)


def read_fields(step_directory: Path) -> dict[str, Any]:
    """The JSON beside the arrays.

    Raises:
      ValueError: it is of a newer version.
    """
    path = step_directory / ITEM / SCHEMA_FILE
    fields = json.loads(path.read_text(encoding="utf-8"))
    check_version(fields, path)
    return fields


def open_array(step_directory: Path, name: str) -> Any:
    """One array as a tensorstore, to be read piece by piece.

    Args:
      step_directory: of the checkpoint.
      name: its path, joined by "/".
    """
    try:
        import tensorstore
    except ImportError as error:
        raise ImportError(
            "Reading checkpoints needs tensorstore: pip install "
            "'jax-dynemb[checkpoint]'."
        ) from error
    # orbax writes a directory for each array; before, it wrote one store for all.
    item, array = step_directory / ITEM, name.replace("/", ".")
    store = {"driver": "file", "path": f"{item / array}/"}
    if not (item / array).is_dir():
        store = {"driver": "ocdbt", "base": f"file://{item}/", "path": f"{array}/"}
    return tensorstore.open({"driver": "zarr", "kvstore": store}, read=True).result()
