# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Wall time of back-to-back steps, and the bandwidth to compare it with."""

from __future__ import annotations

import ctypes
import dataclasses
import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp

# Copies on an H200, bytes read plus bytes written; other devices are measured.
H200_BANDWIDTH = 4.3e12

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # from <malloc.h>


@dataclasses.dataclass(frozen=True)
class Effort:
    """How long to measure.

    Attributes:
      seconds: of one repeat; decides how many steps it takes.
      repeats: the median of so many is reported.
      fewest: steps of a repeat at least.
      most: steps of a repeat at most.
    """

    seconds: float = 0.05
    repeats: int = 5
    fewest: int = 6
    most: int = 400

    def steps(self, trial: float) -> int:
        """Steps of a repeat, where one takes about `trial` seconds."""
        return max(self.fewest, min(self.most, int(self.seconds / trial)))


class Runnable(Protocol):
    """Something that can take many steps back to back."""

    def run(self, steps: int) -> float:
        """Takes the steps, waits for the last, and returns the seconds of one."""
        ...


class Chain:
    """Steps `carry, output = step(carry, *batch)` over rotating batches.

    Each step starts before the one ahead has ended, as in a training loop; dispatch is
    part of the time. The batches go on where the last run has ended.

    Attributes:
      carry: what the next step starts from; the last one was donated.
    """

    def __init__(
        self,
        step: Callable[..., Any],
        carry: Any,
        batches: Sequence[tuple[Any, ...]],
        *,
        only_reads: bool = False,
    ):
        """Takes a compiled step, its first carry, and its arguments on the device.

        Args:
          step: called with the carry and a batch.
          carry: what the first step starts from.
          batches: arguments of steps.
          only_reads: the step returns its output alone, as a serving step does.
        """
        self._step: Any = step
        self.carry: Any = carry
        self._batches: Any = batches
        self._next: Any = itertools.cycle(batches)
        self._only_reads = only_reads

    def run(self, steps: int) -> float:
        """Takes the steps, waits for the last, and returns the seconds of one."""
        jax.block_until_ready((self.carry, self._batches))
        output = None
        start = time.perf_counter()
        for batch in itertools.islice(self._next, steps):
            if self._only_reads:
                output = self._step(self.carry, *batch)
            else:
                self.carry, output = self._step(self.carry, *batch)
        jax.block_until_ready((self.carry, output))
        return (time.perf_counter() - start) / steps

    def close(self) -> None:
        """Lets go of all arrays, whoever still has the chain."""
        self._step = self.carry = self._batches = self._next = None


def time_chain(
    chain: Runnable,
    effort: Effort,
    *,
    steps: int | None = None,
    before: Callable[[], None] | None = None,
) -> list[float]:
    """Times the steps of a chain.

    What a run waits for once is no part of a step: the dispatch of its first one, which
    nothing hides, and the news of its last. So a run of one step, as long as it is at
    the median, is taken off a run of all, unless it was interrupted and took as long.

    Args:
      chain: warmed up here.
      effort: how long to measure.
      steps: steps of a repeat; chosen by `effort` if None.
      before: prepares a run of `steps`, or of one; is not timed.

    Returns:
      Seconds of one step in each repeat.
    """

    def run(count: int) -> float:
        if before is not None:
            before()
        return count * chain.run(count)

    run(steps or 4)  # warms up
    steps = steps or effort.steps(run(3) / 3)
    if steps == 1:
        return [run(1) for _ in range(effort.repeats)]
    runs = [(run(1), run(steps)) for _ in range(effort.repeats)]
    alone = statistics.median(first for first, _ in runs)
    return [
        (whole - alone) / (steps - 1) if alone < whole else whole / steps
        for _, whole in runs
    ]


def milliseconds(times: Sequence[float]) -> float:
    """Median, in milliseconds."""
    return statistics.median(times) * 1e3


def keep_freed_memory() -> None:
    """Makes glibc keep freed buffers, for every library of this process alike.

    By default a large buffer goes back to the system when it is freed, and the next
    step pays for fresh pages: the time of a step would be the time of page faults.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return  # another C library
    mallopt(_M_MMAP_MAX, 0)
    mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def bandwidth(device: Any, scale: float = 1.0) -> float:
    """Bytes a second that a large copy reads and writes on `device`."""
    if "H200" in device.device_kind:
        return H200_BANDWIDTH
    floats = int((1 << 26 if device.platform == "cpu" else 1 << 28) * min(scale, 1.0))
    x = jax.device_put(jnp.zeros(floats, jnp.float32), device)
    step = jax.jit(lambda x: (x + 1.0, 0), donate_argnums=0)
    times = time_chain(Chain(step, x, [()]), Effort(seconds=0.1, fewest=3))
    return 2 * 4 * floats / statistics.median(times)
