# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Writes the manifest of an export, which ``_chain`` reads."""

from __future__ import annotations

from pathlib import Path

from jax_dynemb._src.files.disk import new_file, write_json
from jax_dynemb._src.files.integrity import FORMAT_VERSION, manifest_path, sum_of_json


def write_manifest(folder: Path, table: str, base: str, newest: str, link: str) -> None:
    """Names the newest file of a table, and links to it and to the base."""
    body = {
        "format_version": FORMAT_VERSION,
        "table": table,
        "base": base,
        "newest": newest,
        "link": link,
    }
    with new_file(manifest_path(folder, table)) as draft:
        write_json(draft, body | {"crc32": sum_of_json(body)})
