# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A serving lookup with rows of each format, beside float32 and the bytes to move.

    python benchmarks/bench_row_formats.py
    python benchmarks/bench_row_formats.py --dim 128 256 512 --dist uniform zipf
    python benchmarks/bench_row_formats.py --rows 400000 --ids 81920  # a CPU

With uniform ids nearly every row comes from memory: this is where the bytes of rows
decide. Ids of a power law find most of their rows in caches. A bag sums ``--bag``
rows; with 1 a row is copied for each id. The bytes are those of ids, rows (with scales)
and outputs, whether or not a cache has them. The index is not counted.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jax_dynemb as jde
from suite import workloads

FORMATS = ("float32", "bfloat16", "float8_e4m3fn", "int8", "int4")
INSERTED_AT_ONCE = 1 << 20
BATCHES = 4


def tables_of(rows: int, dim: int, pooling: Any, dtype: str) -> jde.Tables:
    """Describes a table that has room for so many rows."""
    config = jde.TableConfig(
        "t", dim, int(rows * 1.3), pooling=pooling, param_dtype=dtype
    )
    return jde.Tables([config])


def filled(rows: int, dim: int, dtype: str) -> Any:
    """Makes the state of a table with so many rows of a float dtype."""
    coll = tables_of(rows, dim, None, dtype)

    def touch(state: Any, ids: Any) -> Any:
        return coll.lookup(state, {"t": ids})[2]

    options = jde.compiler_options()
    insert = jax.jit(touch, donate_argnums=0, compiler_options=options)
    state = coll.init(0)
    for first in range(0, rows, INSERTED_AT_ONCE):
        keys = np.arange(first, first + INSERTED_AT_ONCE)
        state = insert(state, jde.ids(np.where(keys < rows, keys, -1)))
    return state


def find_ms(coll: Any, state: Any, ids: np.ndarray, repeats: int) -> float:
    """Times a lookup, with other ids each time."""

    def look_up(state: Any, ids: Any) -> Any:
        return coll.find(state, {"t": ids})[0]

    run = jax.jit(look_up, compiler_options=jde.compiler_options())
    batches = [jde.ids(each) for each in ids]
    jax.block_until_ready(run(state, batches[0]))
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        outputs = [run(state, each) for each in batches]
        jax.block_until_ready(outputs)
        times.append((time.perf_counter() - start) / len(batches))
    return min(times) * 1e3


def served_tables(
    rows: int, dim: int, formats: list[str]
) -> Iterator[tuple[str, Any, str | None, str]]:
    """Fills a table of each float dtype, and says what is served from it."""
    of_floats = {name: name for name in ("float32", "bfloat16") if name in formats}
    packed = [name for name in formats if name not in of_floats]
    for dtype in of_floats or ["float32"]:
        state = filled(rows, dim, dtype)
        if dtype in formats:
            yield dtype, state, None, dtype
        if dtype == "float32":
            yield from ((name, state, name, dtype) for name in packed)


def case(options: argparse.Namespace, dim: int) -> list[dict]:
    """Measures every format with rows of one dim."""
    ids = {
        dist: workloads.draw(
            dist, BATCHES * options.ids, options.rows, np.random.default_rng(0)
        )
        for dist in options.dist
    }
    lines: list[dict] = []
    for name, state, packed, dtype in served_tables(options.rows, dim, options.only):
        for bag in options.bag:
            coll = tables_of(options.rows, dim, "sum" if bag > 1 else None, dtype)
            served, tables = jde.export.frozen(coll, state, dtype=packed)
            values = tables["t"].values
            row_bytes = values.nbytes // values.shape[0]
            bags = options.ids // bag
            shape = (BATCHES, bags, bag) if bag > 1 else (BATCHES, bags)
            moved = bags * bag * (row_bytes + 8) + bags * dim * 4
            for dist in options.dist:
                words = ids[dist][: BATCHES * bags * bag].reshape(shape)
                ms = find_ms(served, tables, words, options.repeats)
                place = {"dim": dim, "ids": dist, "bag": bag}
                line = place | {"rows": name, "row_bytes": row_bytes}
                line["ms"] = round(ms, 4)
                line["megabytes"] = round(moved / 1e6, 1)
                line["gigabytes_per_second"] = round(moved / ms / 1e6, 1)
                lines.append(line | beside_float32(lines, place, ms, moved))
                print(json.dumps(lines[-1]), flush=True)
    return lines


def beside_float32(
    lines: list[dict], place: dict[str, Any], ms: float, moved: float
) -> dict[str, float]:
    """Compares with the line of float32 of the same dim, ids and bags."""
    wanted = {**place, "rows": "float32"}
    for line in lines:
        if wanted.items() <= line.items():
            bytes_alone = line["megabytes"] * 1e6 / moved
            return {
                "times_float32": round(line["ms"] / ms, 2),
                "bytes_alone": round(bytes_alone, 2),
            }
    return {}


def main() -> None:
    """Prints a line for each format, pooled and not."""
    parser = argparse.ArgumentParser(description="Lookups of each row format.")
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--ids", type=int, default=1_048_560)
    parser.add_argument("--dim", type=int, nargs="+", default=[128])
    parser.add_argument(
        "--dist", nargs="+", choices=("uniform", "zipf"), default=["uniform"]
    )
    parser.add_argument("--bag", type=int, nargs="+", default=[20, 1])
    parser.add_argument("--only", nargs="+", choices=FORMATS, default=list(FORMATS))
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    print(f"{jax.devices()[0].device_kind}, {options.rows} rows")
    lines = [line for dim in options.dim for line in case(options, dim)]
    if options.json:
        options.json.write_text(json.dumps(lines, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
