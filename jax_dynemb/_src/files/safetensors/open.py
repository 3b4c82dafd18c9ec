# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Exported files as tables by name."""

from __future__ import annotations

from pathlib import Path

from jax_dynemb._src.files.disk import progress_bar
from jax_dynemb._src.files.integrity import DamagedFileError, table_of_delta
from jax_dynemb._src.files.safetensors.series import open_series, stored_series
from jax_dynemb._src.rows import StoredTable


def stored_exports(
    files: list[Path], verify: bool, quiet: bool
) -> dict[str, StoredTable]:
    """Opens files of whole tables by name, each with the deltas beside it."""
    if deltas := [file for file in files if table_of_delta(file)]:
        problem = "it is a delta, which has some rows of a table only"
        fix = "Give the directory that it is in."
        raise DamagedFileError(deltas[0], problem, fix)
    found = [open_series(file) for file in files]
    if verify:
        total = sum(each.data_bytes for each in found)
        with progress_bar("verifying", total, quiet) as advance:
            for each in found:
                each.verify(advance)
    return {each.name: stored_series(each) for each in found}
