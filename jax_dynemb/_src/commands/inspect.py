# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""``python -m jax_dynemb inspect PATH``: what the tables of some files hold."""

from __future__ import annotations

import argparse
import difflib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.filesize import decimal
from rich.table import Table

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.commands.console import console
from jax_dynemb._src.commands.open import add_verify, open_tables
from jax_dynemb._src.commands.page import page
from jax_dynemb._src.engines.shard import PACKED
from jax_dynemb._src.rows import PIN, Schema, StoredTable, use_counts

_BINS = 8
_BAR = 24  # characters
# Keys by size: below zero, then by powers of 2**8.
_KEY_EDGES = [0, *(1 << bits for bits in range(8, 63, 8))]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument("path", type=Path, help="checkpoint, dump or export")
    parser.add_argument("--table", metavar="NAME", help="show this table alone")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page too")
    parser.add_argument("--json", action="store_true", help="print JSON instead")
    add_verify(parser)


def main(arguments: argparse.Namespace) -> int:
    """Prints; returns the exit status."""
    kind, tables = open_tables(
        arguments.path, verify=not arguments.no_verify, quiet=False
    )
    if arguments.table is not None:
        tables = {arguments.table: one_of(tables, arguments.table)}
    if arguments.html is not None:
        title = f"{arguments.path.name}: {kind}"
        arguments.html.write_text(page(title, tables), encoding="utf-8")
    described = {name: describe(table) for name, table in tables.items()}
    size = sum(f.stat().st_size for f in _files(arguments.path))
    if arguments.json:
        print(json.dumps({"kind": kind, "bytes": size, "tables": described}, indent=1))
        return 0
    title, out = f"{arguments.path}: {kind}, {decimal(size)}", console()
    out.print(title, highlight=False, markup=False, soft_wrap=True)
    out.print(_overview(described))
    for name, fields in described.items():
        for what in ("scores", "keys"):
            if fields[what]:
                out.print(_histogram(f"{name}: {what}", fields[what]))
    return 0


def one_of(tables: Mapping[str, StoredTable], name: str) -> StoredTable:
    """Returns the table of a name; ValueError says which there are."""
    if name not in tables:
        near = difflib.get_close_matches(name, tables, 1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        raise ValueError(
            f"There is no table '{name}'; the tables are {sorted(tables)}.{hint}"
        )
    return tables[name]


def describe(table: StoredTable) -> dict[str, Any]:
    """Counts what a table holds; reads its keys and scores, not its rows."""
    schema = table.schema
    slots = schema.num_buckets * _ffi.constants()["bucket_capacity"]
    rows, least, most = 0, None, None
    keys = np.zeros(len(_KEY_EDGES) + 1, np.int64)
    for some, scores in table.index():
        rows += len(some)
        keys += np.bincount(
            np.searchsorted(_KEY_EDGES, some, side="right"), minlength=len(keys)
        )
        if len(some):
            scores = _shown(table, scores)
            low, high = int(scores.min()), int(scores.max())
            least = low if least is None else min(least, low)
            most = high if most is None else max(most, high)
    states = {name: list(shape) for name, shape in schema.states.items()}
    return {
        "rows": rows,
        "dim": schema.dim,
        "dtype": schema.param_dtype,
        "slots": slots,
        "load_factor": rows / slots if slots else None,
        "optimizer": schema.optimizer.get("kind", ""),
        "states": states,
        "score_strategy": schema.score_strategy,
        "hash": _hash(schema),
        "row_bytes": schema.row_bytes,
        "counters": dict(table.counters),
        "scores": _scores(table, least, most),
        "keys": _named_keys(keys),
    }


def _hash(schema: Schema) -> str:
    """Whether the table has a seed, not which: it is a secret."""
    if schema.num_buckets == 0:
        return ""
    return "seeded" if schema.hash_seed else "plain"


def _shown(table: StoredTable, scores: np.ndarray) -> np.ndarray:
    """Returns the part of a score that its strategy uses."""
    schema, scores = table.schema, scores & ~PIN
    if schema.lfu_halflife:
        clock = table.counters.get("clock", 0)
        return use_counts(scores, schema.lfu_halflife, clock).astype(np.uint64)
    return scores >> np.uint64(32) if schema.score_strategy in PACKED else scores


def _scores(
    table: StoredTable, least: int | None, most: int | None
) -> list[tuple[str, int]]:
    if least is None or most is None or least == most:
        return [] if least is None else [(str(least), table.rows)]
    width = max(1, -(-(most - least + 1) // _BINS))
    counts = np.zeros(_BINS, np.int64)
    for _, scores in table.index():
        shown = _shown(table, scores)
        places = (shown - np.uint64(least)) // np.uint64(width)
        counts += np.bincount(places.astype(np.int64), minlength=_BINS)
    starts = [least + i * width for i in range(_BINS)]
    return [
        (_range(start, min(most, start + width - 1)), int(count))
        for start, count in zip(starts, counts, strict=True)
        if start <= most
    ]


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"


def _named_keys(counts: np.ndarray) -> list[tuple[str, int]]:
    names = ["negative", "below 2**8"]
    names += [f"2**{bits} to 2**{bits + 8}" for bits in range(8, 56, 8)]
    names += ["2**56 and more"]
    return [(n, int(c)) for n, c in zip(names, counts, strict=True) if c]


def _overview(described: dict[str, dict[str, Any]]) -> Table:
    table = Table("table", "rows", "dim", "dtype", "slots", "load", "optimizer")
    table.add_column("scores by")
    table.add_column("hash")
    table.add_column("rows in memory")
    for name, fields in described.items():
        load = fields["load_factor"]
        table.add_row(
            name,
            f"{fields['rows']:,}",
            str(fields["dim"]),
            fields["dtype"],
            f"{fields['slots']:,}" if fields["slots"] else "-",
            "-" if load is None else f"{load:.3f}",
            " ".join([fields["optimizer"] or "-", *fields["states"]]),
            fields["score_strategy"] or "-",
            fields["hash"] or "-",
            decimal(fields["rows"] * fields["row_bytes"]),
        )
    return table


def _histogram(title: str, bins: list[tuple[str, int]]) -> Table:
    table = Table(title, "rows", "", box=None, pad_edge=False)
    highest = max(count for _, count in bins)
    for name, count in bins:
        table.add_row(name, f"{count:,}", "█" * round(_BAR * count / max(1, highest)))
    return table


def _files(path: Path) -> Iterator[Path]:
    yield from [path] if path.is_file() else (f for f in path.rglob("*") if f.is_file())
