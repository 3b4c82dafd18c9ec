# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""How long a GPU was at work, and on what, from a trace of JAX's profiler."""

from __future__ import annotations

import collections
import dataclasses
import re
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax

_TEMPLATES = re.compile(r"\(anonymous namespace\)::|<unnamed>::")


@dataclasses.dataclass(frozen=True)
class Busy:
    """What a GPU did during some steps.

    Attributes:
      ms: milliseconds of a step in which a kernel or copy ran.
      kernels: kernels and copies started in a step.
      by_name: microseconds of a step by kernel, longest first.
    """

    ms: float
    kernels: float
    by_name: dict[str, float]


def trace(run: Callable[[], Any], steps: int, gpus: str = "") -> Busy | None:
    """Runs some steps under the profiler; None where it records no kernels.

    Args:
      run: takes the steps.
      steps: how many.
      gpus: ":0" for the first alone; else all together.
    """
    profile = profiled(run)
    return None if profile is None else summarize(profile, steps, gpus)


def profiled(run: Callable[[], Any]) -> Any:
    """Runs under the profiler; a `jax.profiler.ProfileData` of devices, or None."""
    options = jax.profiler.ProfileOptions()
    options.host_tracer_level = 0  # nothing but the device
    options.python_tracer_level = 0
    options.enable_hlo_proto = False
    with tempfile.TemporaryDirectory() as folder:
        jax.profiler.start_trace(folder, profiler_options=options)
        try:
            run()
        finally:
            jax.profiler.stop_trace()
        files = sorted(Path(folder).rglob("*.xplane.pb"))
        return jax.profiler.ProfileData.from_file(str(files[-1])) if files else None


def trace_chain(
    chain: Any, steps: int, before: Callable[[], None] | None = None
) -> Busy | None:
    """Traces back-to-back steps of a `timing.Chain`, which is warmed up here.

    In a pass of its own: once a profiler has been at work, it may slow later steps.

    Args:
      chain: takes the steps.
      steps: how many.
      before: prepares a run.
    """
    for prepare in (before, lambda: chain.run(1), before):
        if prepare is not None:
            prepare()
    jax.block_until_ready(chain.carry)
    return trace(lambda: chain.run(steps), steps)


def summarize(profile: Any, steps: int, gpus: str = "") -> Busy | None:
    """Reads the streams of the GPUs of a `jax.profiler.ProfileData`."""
    events = [(s, ns, short_name(name)) for s, ns, name in kernels(profile, gpus)]
    if not events:
        return None
    total: collections.Counter[str] = collections.Counter()
    for _, duration, name in events:
        total[name] += round(duration)
    return Busy(
        ms=_covered(events) / steps / 1e6,
        kernels=len(events) / steps,
        by_name={name: ns / steps / 1e3 for name, ns in total.most_common()},
    )


def kernels(profile: Any, gpus: str = "") -> list[tuple[float, float, str]]:
    """Lists what ran on GPUs: since when, for how many nanoseconds, and its name."""
    return [
        (event.start_ns, event.duration_ns, event.name)
        for plane in profile.planes
        if plane.name.startswith(f"/device:GPU{gpus}")
        for line in plane.lines
        if line.name.startswith("Stream")
        for event in line.events
    ]


def short_name(name: str) -> str:
    """A kernel's name without namespaces, templates and parameters."""
    name = re.sub(r"[<(].*", "", _TEMPLATES.sub("", name))
    return name.split("::")[-1].removeprefix("void ")[:48]


def _covered(events: Iterable[tuple[float, float, str]]) -> float:
    """Nanoseconds in which at least one event ran: streams overlap."""
    covered, end = 0.0, float("-inf")
    for start, duration, _ in sorted(events):
        covered += max(0.0, start + duration - max(start, end))
        end = max(end, start + duration)
    return covered
