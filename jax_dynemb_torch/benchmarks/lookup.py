# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""What finding keys costs: DynamicEmbeddingBag beside torch.nn.EmbeddingBag.

    python benchmarks/lookup.py --rows 1e7 --dim 64 --bag 10

nn.EmbeddingBag gets ids that were numbered before; DynamicEmbeddingBag finds 64-bit ids
first. Both read the same rows. They take turns with new random ids each time, all of
them known (the worst case for caches), and the smallest time of each counts, since
whatever else runs on the machine only adds. Binary search is shown for comparison.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable

import torch

from jax_dynemb_torch import DynamicEmbeddingBag, Source
from jax_dynemb_torch._snapshot import Snapshot
from jax_dynemb_torch._table import EXTRA_KEYS, Table

BATCHES = (1, 8, 64, 512, 1024, 4096, 8192)


class Candidates:
    """Three ways to the same rows.

    Args:
      rows: how many.
      dim: columns of a row.
    """

    def __init__(self, rows: int, dim: int):
        self.keys = torch.randint(-(2**63), 2**63 - 1, (rows,)).unique()
        weight = torch.randn(len(self.keys) + 2, dim)
        weight[-2:] = 0
        self.static = torch.nn.EmbeddingBag.from_pretrained(weight, mode="sum")
        self.stored = torch.cat([self.keys, torch.tensor(EXTRA_KEYS)])
        table = Table(self.stored, weight, weight[-2:])
        source = Source("t", Snapshot(table, None, None))
        self.dynamic = DynamicEmbeddingBag(source, mode="sum")

    def binary(self, ids: torch.Tensor) -> torch.Tensor:
        """Sorted keys, binary search."""
        flat = ids.view(-1)
        place = torch.searchsorted(self.keys, flat)
        found = self.stored.index_select(0, place) == flat
        return self.static(torch.where(found, place, len(self.keys)).view(ids.shape))

    def least_times(self, shape: tuple[int, int], seconds: float) -> list[float]:
        """The smallest time of each in microseconds, taken in turns."""
        functions: list[Callable] = [self.static, self.dynamic, self.binary]
        numbers = functools.partial(torch.randint, len(self.keys), shape)
        first = numbers()
        for function in functions[1:]:
            torch.testing.assert_close(self.static(first), function(self.keys[first]))
        best = [float("inf")] * 3
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            for place, function in enumerate(functions):
                ids = numbers() if place == 0 else self.keys[numbers()]
                begin = time.perf_counter()
                function(ids)
                best[place] = min(best[place], time.perf_counter() - begin)
        return [1e6 * each for each in best]


def main() -> None:
    """Prints a table of microseconds a call."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=float, default=1e6)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--bag", type=int, default=1, help="ids of a bag")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each line")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    candidates = Candidates(int(options.rows), options.dim)
    print(
        f"\n{len(candidates.keys)} rows of {options.dim} float32, "
        f"bags of {options.bag}, {options.threads} thread(s), microseconds a call\n\n"
        "| batch | nn.EmbeddingBag | DynamicEmbeddingBag | ratio "
        "| binary search, ratio |\n| --- | --- | --- | --- | --- |"
    )
    with torch.inference_mode():
        for batch in BATCHES:
            shape = (batch, options.bag)
            static, ours, search = candidates.least_times(shape, options.seconds)
            print(
                f"| {batch} | {static:.1f} | {ours:.1f} | {ours / static:.2f} |"
                f" {search / static:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
