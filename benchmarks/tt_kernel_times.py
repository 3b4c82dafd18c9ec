# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Kernels of one training step of a tensor-train table, in their order.

    python benchmarks/tt_kernel_times.py --cases 0,1,3,8

The cases are those of ``bench_tt.py``. The trace is of JAX's own profiler, without CUDA
graphs: a kernel in a graph would hide which others surround it. Kernels run one after
the other as in training, so a gap before one is time in which the GPU waits.
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":
    graphs_off = "--xla_gpu_enable_command_buffer="
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {graphs_off}".strip()

import jax
import jax.numpy as jnp

import bench_tt
import jax_dynemb as jde

STEPS = 3
WARM_STEPS = 3


class Launch(NamedTuple):
    """One kernel or copy of a trace.

    Attributes:
      name: as the compiler has it.
      start: microseconds, of any clock.
      us: how long it ran, microseconds.
    """

    name: str
    start: float
    us: float


def main() -> None:
    """Traces and prints."""
    parser = argparse.ArgumentParser(description="Kernels of steps, in their order.")
    parser.add_argument(
        "--cases", default="0,1,3,8", help="numbers of bench_tt's cases"
    )
    parser.add_argument("--dtype", default="tensorfloat32")
    parser.add_argument("--batch", type=int, default=65_536)
    options = parser.parse_args()
    for number in options.cases.split(","):
        case = bench_tt.CASES[int(number)]
        for dtype in options.dtype.split(","):
            show(case, dtype, _launches(case, options.batch, dtype))


def show(case: bench_tt.Case, dtype: str, launches: list[Launch]) -> None:
    """Prints the middle step of a trace, one launch a line."""
    each = len(launches) // STEPS
    step = launches[each : 2 * each]
    busy = sum(launch.us for launch in step)
    print(
        f"D {case.dim}, R {case.rank}, bag {case.bag}, {case.ids}, {dtype}: "
        f"{each} launches, {busy:.0f} us busy of "
        f"{step[-1].start + step[-1].us - step[0].start:.0f} us"
    )
    end = step[0].start
    for launch in step:
        gap = launch.start - end
        end = launch.start + launch.us
        print(f"  {launch.us:8.1f} us, {gap:6.1f} before  {_short(launch.name)}")


def _launches(case: bench_tt.Case, batch: int, dtype: str) -> list[Launch]:
    config = bench_tt.config_of(case, dtype)
    words = jde.ids(bench_tt.draw(case, batch))
    d_rows = jnp.ones((batch, case.dim), jnp.float32)

    def step(state: Any, ids: Any, d_rows: Any) -> Any:
        rows, residual, state = jde.tt.lookup(config, state, ids)
        return rows, jde.tt.apply_gradients(config, state, residual, d_rows)

    run, state = jax.jit(step, donate_argnums=0), jde.tt.init(config)
    for _ in range(WARM_STEPS):
        _, state = run(state, words, d_rows)
    jax.block_until_ready(state)
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            for _ in range(STEPS):
                _, state = run(state, words, d_rows)
            jax.block_until_ready(state)
        (path,) = Path(folder).rglob("*.xplane.pb")
        trace = jax.profiler.ProfileData.from_file(str(path))
        found = sorted(_on_device(trace), key=lambda launch: launch.start)
    if not found:
        lines = [(p.name, [line.name for line in p.lines]) for p in trace.planes]
        raise RuntimeError(f"No kernels of a GPU in the trace, only {lines}")
    return found


def _on_device(trace: Any) -> Iterator[Launch]:
    for plane in trace.planes:
        if not plane.name.startswith("/device:GPU"):
            continue
        for line in plane.lines:
            if not line.name.startswith("Stream"):
                continue
            for event in line.events:
                yield Launch(event.name, event.start_ns / 1e3, event.duration_ns / 1e3)


def _short(name: str) -> str:
    """Without namespaces and parameters."""
    name = re.sub(r"\(anonymous namespace\)::|<unnamed>::", "", name)
    return re.sub(r"\(.*", "", name)[:100]


if __name__ == "__main__":
    main()
