# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Wall time of back-to-back steps, and the bandwidth to compare it with."""

from __future__ import annotations

import ctypes
import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

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

    seconds: float = 0.08
    repeats: int = 5
    fewest: int = 6
    most: int = 400


def time_steps(
    step: Callable[..., tuple[Any, Any]],
    carry: Any,
    batches: Sequence[tuple[Any, ...]],
    effort: Effort,
    *,
    steps: int | None = None,
    before: Callable[[Any], Any] = lambda carry: carry,
) -> tuple[list[float], Any]:
    """Times `carry, output = step(carry, *batch)` over rotating batches.

    Args:
      step: the compiled step; its carry may be donated.
      carry: what the first step starts from.
      batches: arguments of the steps, on the device, used in turn.
      effort: how long to measure.
      steps: steps of a repeat; chosen by `effort` if None.
      before: prepares the carry of a repeat; is not timed.

    Returns:
      Seconds of one step in each repeat, dispatch included, and the last carry.
    """
    _, carry = _run(step, before(carry), batches, len(batches))  # warms up
    if steps is None:
        trial, carry = _run(step, carry, batches, 3)
        steps = steps_for(effort, trial)
    times = []
    for _ in range(effort.repeats):
        seconds, carry = _run(step, before(carry), batches, steps)
        times.append(seconds)
    return times, carry


def steps_for(effort: Effort, trial: float) -> int:
    """Number of steps of a repeat, where one step takes about `trial` seconds."""
    return max(effort.fewest, min(effort.most, int(effort.seconds / trial)))


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


def bandwidth(device: Any) -> float:
    """Bytes a second that a large copy reads and writes on `device`."""
    if "H200" in device.device_kind:
        return H200_BANDWIDTH
    floats = 1 << 26 if device.platform == "cpu" else 1 << 28
    x = jax.device_put(jnp.zeros(floats, jnp.float32), device)
    step = jax.jit(lambda x: (x + 1.0, 0), donate_argnums=0)
    times, _ = time_steps(step, x, [()], Effort(seconds=0.2))
    return 2 * 4 * floats / min(times)


def _run(
    step: Callable[..., tuple[Any, Any]],
    carry: Any,
    batches: Sequence[tuple[Any, ...]],
    steps: int,
) -> tuple[float, Any]:
    jax.block_until_ready(carry)
    output = None
    start = time.perf_counter()
    for number in range(steps):
        carry, output = step(carry, *batches[number % len(batches)])
    jax.block_until_ready((carry, output))
    return (time.perf_counter() - start) / steps, carry
