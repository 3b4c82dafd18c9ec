# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""``python -m jax_dynemb convert PATH OUT --to FORMAT``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from jax_dynemb._src.commands.open import add_verify, open_tables
from jax_dynemb._src.files.dynamicemb import OPTIMIZERS, write_dynamicemb
from jax_dynemb._src.files.parquet import write_parquet
from jax_dynemb._src.files.safetensors import write_safetensors
from jax_dynemb._src.rows import SKETCH_HAS_NO_IDS, StoredTable

Writer = Callable[[Path, Mapping[str, StoredTable]], object]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument("path", type=Path, help="checkpoint, dump or export")
    parser.add_argument("out", type=Path, help="a new directory")
    parser.add_argument("--to", required=True, choices=list(WRITERS))
    add_verify(parser)


def main(arguments: argparse.Namespace) -> int:
    """Converts; returns the exit status."""
    kind, tables = open_tables(
        arguments.path, verify=not arguments.no_verify, quiet=False
    )
    WRITERS[arguments.to](arguments.out, tables)
    if arguments.to == "parquet":
        for name in (n for n, table in tables.items() if table.sketch is not None):
            print(f"{name}: {SKETCH_HAS_NO_IDS}", file=sys.stderr)
    rows = sum(table.rows for table in tables.values())
    print(
        f"{arguments.path} ({kind}): {rows:,} rows of {len(tables)} tables are in "
        f"{arguments.out} as {arguments.to}.",
        file=sys.stderr,
    )
    return 0


def _to_dynamicemb(path: Path, tables: Mapping[str, StoredTable]) -> None:
    """Writes optimizer states where every table has those of a known optimizer."""
    kinds = [table.schema.optimizer.get("kind") for table in tables.values()]
    known = all(kind in OPTIMIZERS for kind in kinds)
    write_dynamicemb(path, tables, optimizer=known)


WRITERS: dict[str, Writer] = {
    "dynamicemb": _to_dynamicemb,
    "parquet": write_parquet,
    "safetensors": write_safetensors,
}
