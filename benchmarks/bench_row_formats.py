# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A serving lookup with rows of each format, beside float32 and the bytes to move.

    python benchmarks/bench_row_formats.py
    python benchmarks/bench_row_formats.py --rows 400000 --ids 81920  # a CPU

Ids are uniform, so that nearly every row comes from memory: this is where the bytes of
rows decide. A bag sums ``--bag`` rows; with 1 a row is copied for each id. The bytes
are those of ids, rows (with scales) and outputs; the index is not counted.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jax_dynemb as jde

FORMATS = ("float32", "bfloat16", "float8_e4m3fn", "int8", "int4")
INSERTED_AT_ONCE = 1 << 20


def filled(rows: int, dim: int, pooling: Any, dtype: str) -> tuple[Any, Any]:
    """Makes a table with so many rows of a float dtype."""
    config = jde.TableConfig(
        "t", dim, int(rows * 1.3), pooling=pooling, param_dtype=dtype
    )
    coll = jde.Tables([config])

    def touch(state: Any, ids: Any) -> Any:
        return coll.lookup(state, {"t": ids})[2]

    options = jde.compiler_options()
    insert = jax.jit(touch, donate_argnums=0, compiler_options=options)
    state = coll.init(0)
    for first in range(0, rows, INSERTED_AT_ONCE):
        keys = np.arange(first, first + INSERTED_AT_ONCE)
        state = insert(state, jde.ids(np.where(keys < rows, keys, -1)))
    return coll, state


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


def case(rows: int, count: int, dim: int, bag: int, repeats: int) -> list[dict]:
    """Measures every format with ids of one shape."""
    pooling = "sum" if bag > 1 else None
    bags = count // bag
    shape = (4, bags, bag) if pooling else (4, bags)
    ids = np.random.default_rng(0).integers(0, rows, shape)
    lines: list[dict] = []
    for name in FORMATS:
        is_float = name in ("float32", "bfloat16")
        if is_float or not lines:
            coll, state = filled(rows, dim, pooling, name)
        elif lines[-1]["rows"] == "bfloat16":
            coll, state = filled(rows, dim, pooling, "float32")
        served, tables = jde.export.frozen(
            coll, state, dtype=None if is_float else name
        )
        row_bytes = tables["t"].values.nbytes // tables["t"].values.shape[0]
        ms = find_ms(served, tables, ids, repeats)
        moved = bags * bag * (row_bytes + 8) + bags * dim * 4
        lines.append(
            {
                "rows": name,
                "bag": bag,
                "row_bytes": row_bytes,
                "ms": round(ms, 4),
                "megabytes": round(moved / 1e6, 1),
                "gigabytes_per_second": round(moved / ms / 1e6, 1),
                "times_float32": round(lines[0]["ms"] / ms, 2) if lines else 1.0,
                "floor_times_float32": round(lines[0]["megabytes"] * 1e6 / moved, 2)
                if lines
                else 1.0,
            }
        )
        print(json.dumps(lines[-1]), flush=True)
    return lines


def main() -> None:
    """Prints a line for each format, pooled and not."""
    parser = argparse.ArgumentParser(description="Lookups of each row format.")
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--ids", type=int, default=1_048_560)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--bag", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    print(f"{jax.devices()[0].device_kind}, {options.rows} rows of {options.dim}")
    lines = []
    for bag in (options.bag, 1):
        lines += case(options.rows, options.ids, options.dim, bag, options.repeats)
    if options.json:
        options.json.write_text(json.dumps(lines, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
