# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""What finding keys costs: DynamicEmbeddingBag beside torch.nn.EmbeddingBag.

    python benchmarks/lookup.py --rows 1e7 --dims 64 --bags 10
    python benchmarks/lookup.py --device cuda --rows 1e7

nn.EmbeddingBag gets ids that were numbered before; DynamicEmbeddingBag finds 64-bit ids
first. Both read the same rows. They take turns with new ids each time, all of them
known (the worst case for caches), and a time counts that a tenth of the calls stay
below: whatever else runs on the machine adds, and a clock may jump. On a GPU a call
ends when its result is there, and the last two columns replay a CUDA graph of it.
"""

from __future__ import annotations

import argparse
import runpy
import time
from collections.abc import Callable
from pathlib import Path

import torch

from jax_dynemb_torch import DynamicEmbeddingBag, Source
from jax_dynemb_torch._perfect_hash import PerfectHash
from jax_dynemb_torch._snapshot import Snapshot
from jax_dynemb_torch._table import EXTRA_KEYS, Table

BATCHES = (1, 8, 64, 512, 1024, 8192)
_POOL = 1 << 21  # ids
_FEWEST = 20  # calls
_SCATTER = 7_368_787  # a prime
_ROOT = Path(__file__).resolve().parents[2]
# What an export builds, in NumPy.
_BUILDER = runpy.run_path(
    str(_ROOT / "jax_dynemb/_src/files/safetensors/perfect_hash.py")
)


class Candidates:
    """Two ways to the same rows.

    Args:
      rows: how many.
      dim: columns of a row.
      device: where they are.
    """

    def __init__(self, rows: int, dim: int, device: str):
        self.keys = torch.randint(-(2**63), 2**63 - 1, (rows,)).unique()
        weight = torch.randn(len(self.keys) + 3, dim)
        weight[0], weight[-2:] = 0, 0
        stored = torch.cat([self.keys, torch.tensor(EXTRA_KEYS)])
        index = PerfectHash(
            *map(torch.as_tensor, _BUILDER["perfect_hash"](stored.numpy()))
        )
        table = Table(stored, weight, weight[-2:], index=index)
        source = Source("t", Snapshot(table, None, None))
        self.dynamic = DynamicEmbeddingBag(source, mode="sum").to(device)
        weight = self.dynamic.snapshot.base.rows
        # Number 0 is the row of the first key.
        self.static = torch.nn.EmbeddingBag.from_pretrained(weight[1:], mode="sum")
        self.keys, self.device = self.keys.to(device), device

    def low_times(
        self, shape: tuple[int, int], skewed: bool, seconds: float
    ) -> list[float]:
        """The lowest tenth of the times of each in microseconds, taken in turns."""
        calls = [self.static, self.dynamic]
        if self.device == "cuda":
            calls += [_replayed(self.static, shape), _replayed(self.dynamic, shape)]
        size = shape[0] * shape[1]
        numbers = self._numbers(max(_POOL, 4 * size), skewed)
        pools = [numbers, self.keys[self._numbers(len(numbers), skewed)]]
        for place, call in enumerate(calls):
            ids = self.keys[numbers] if place % 2 else numbers
            ids = ids[:size].view(shape)
            torch.testing.assert_close(
                call(ids), self.static(numbers[:size].view(shape))
            )
        times: list[list[float]] = [[] for _ in calls]
        # What one thread takes of its processor, whatever else runs there.
        alone = self.device == "cpu" and torch.get_num_threads() == 1
        clock = time.thread_time if alone else time.perf_counter
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or len(times[0]) < _FEWEST:
            for place, call in enumerate(calls):
                # Others each time: nothing but the popular rows is in a cache.
                first = size * int(torch.randint(len(numbers) // size, ()))
                ids = pools[place % 2][first : first + size].view(shape)
                self._wait()
                begin = clock()
                call(ids)
                self._wait()
                times[place].append(clock() - begin)
        return [1e6 * sorted(each)[len(each) // 10] for each in times]

    def _numbers(self, count: int, skewed: bool) -> torch.Tensor:
        """int64[count]: numbers of rows."""
        rows = len(self.keys)
        uniform = torch.rand(count, dtype=torch.float64, device=self.device)
        if not skewed:
            return (rows * uniform).long().clamp_(max=rows - 1)
        # A power law with exponent 1: the logarithm of the rank is uniform.
        rank = (rows**uniform).long().clamp_(max=rows - 1)
        return rank.mul_(_SCATTER).remainder_(rows)  # the popular ids lie anywhere

    def _wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


def _replayed(call: Callable, shape: tuple[int, int]) -> Callable:
    """A call as a CUDA graph: launches cost nothing on the host."""
    ids = torch.zeros(shape, dtype=torch.int64, device="cuda")
    call(ids)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call(ids)

    def replay(new: torch.Tensor) -> torch.Tensor:
        ids.copy_(new)
        graph.replay()
        return result

    return replay


def main() -> None:
    """Prints a table of microseconds a call."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=float, default=1e6)
    parser.add_argument("--dims", default="64", help="columns, one or several")
    parser.add_argument("--bags", default="1", help="ids of a bag, one or several")
    parser.add_argument("--batches", default=",".join(map(str, BATCHES)))
    parser.add_argument("--ids", default="power,uniform")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each line")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    graphs = " nn, graph | ours, graph | ratio |" if options.device == "cuda" else ""
    print(
        f"{int(options.rows)} rows of float32 on {options.device}, "
        f"{options.threads} thread(s), microseconds a call\n\n"
        f"| dim | bag | ids | batch | nn.EmbeddingBag | DynamicEmbeddingBag | ratio |"
        f"{graphs}\n|{' --- |' * (10 if graphs else 7)}"
    )
    with torch.inference_mode():
        for dim in map(int, options.dims.split(",")):
            candidates = Candidates(int(options.rows), dim, options.device)
            for bag in map(int, options.bags.split(",")):
                for ids in options.ids.split(","):
                    for batch in map(int, options.batches.split(",")):
                        times = candidates.low_times(
                            (batch, bag), ids == "power", options.seconds
                        )
                        line = f"| {dim} | {bag} | {ids} | {batch} |"
                        for static, ours in zip(times[::2], times[1::2], strict=True):
                            line += (
                                f" {static:.1f} | {ours:.1f} | {ours / static:.2f} |"
                            )
                        print(line, flush=True)


if __name__ == "__main__":
    main()
