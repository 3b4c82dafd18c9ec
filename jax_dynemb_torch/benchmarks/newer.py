# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Measures a segment of 5,000 rows on top of ever more newer rows, on a CPU.

    python benchmarks/newer.py
    python benchmarks/newer.py --newer 4000000 --dim 32

Once with arrays that grow, as the subscriber has them, and once with a new table for
each segment, as ``apply_delta`` makes it; and a lookup of 4,096 ids in both.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

from jax_dynemb_torch._newer import Newer
from jax_dynemb_torch._snapshot import Snapshot
from jax_dynemb_torch._table import EXTRA_KEYS, Table

SEGMENT, LOOKUP = 5000, 4096


def milliseconds(call, times: int) -> float:
    """The median of some calls."""
    taken = []
    for _ in range(times):
        begin = time.perf_counter()
        call()
        taken.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(taken)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--newer", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=128)
    options = parser.parse_args()
    torch.set_num_threads(1)
    extra = torch.zeros(2, options.dim)
    base = Table(torch.tensor([0, *EXTRA_KEYS]), torch.zeros(1, options.dim), extra)
    keys = torch.randperm(4 * options.newer)[: options.newer] + 1
    rows, none = torch.randn(SEGMENT, options.dim), torch.empty(0, dtype=torch.int64)
    grown = Snapshot(base, Newer.empty(options.dim), None)
    taken = []
    for begin in range(0, options.newer, SEGMENT):
        some = keys[begin : begin + SEGMENT]
        start = time.perf_counter()
        grown = grown.followed(some, rows[: len(some)], none)
        taken.append(1e3 * (time.perf_counter() - start))
    all_rows = torch.randn(options.newer, options.dim)
    rebuilt = Snapshot(base, None, None).updated(keys, all_rows, none, None)
    ids = keys[torch.randint(options.newer, (LOOKUP,))]

    def follow() -> None:
        nonlocal grown
        grown = grown.followed(keys[:SEGMENT], rows, none)

    print(f"{options.newer:,} newer rows of dim {options.dim}, one thread")
    print(f"{'':22}{'grows':>10}{'new table':>12}")
    mean = sum(taken) / len(taken)
    print(f"{'segment, mean so far':22}{mean:9.1f} ms")
    print(f"{'segment, longest':22}{max(taken):9.1f} ms")
    new = milliseconds(follow, 20)
    old = milliseconds(lambda: rebuilt.updated(keys[:SEGMENT], rows, none, None), 5)
    print(f"{'segment':22}{new:9.1f} ms{old:9.1f} ms")
    new = milliseconds(lambda: grown.rows(ids), 50)
    old = milliseconds(lambda: rebuilt.rows(ids), 50)
    print(f"{'lookup of 4,096 ids':22}{new:9.2f} ms{old:9.2f} ms")


if __name__ == "__main__":
    main()
