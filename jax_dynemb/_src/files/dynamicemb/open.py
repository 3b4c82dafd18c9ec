# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A DynamicEmb dump as tables by name."""

from __future__ import annotations

from pathlib import Path

from jax_dynemb._src.files.disk import progress_bar
from jax_dynemb._src.files.dynamicemb.dump import open_dump, stored_dump
from jax_dynemb._src.rows import StoredTable


def stored_dumps(
    path: Path, names: list[str], verify: bool, quiet: bool
) -> dict[str, StoredTable]:
    """Opens tables of a dump by name; with ``verify`` checks their checksums."""
    found = {name: open_dump(path, name) for name in names}
    if verify:
        total = sum(dump.data_bytes for dump in found.values())
        with progress_bar("verifying", total, quiet) as advance:
            for dump in found.values():
                dump.verify(advance)
    return {name: stored_dump(dump) for name, dump in found.items()}
