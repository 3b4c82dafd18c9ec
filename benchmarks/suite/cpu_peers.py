# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""What else runs on this CPU, in the same process and on the same ids."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from suite import filled, static_jax, timing
from suite.job import Job
from suite.timing import Runnable

# Makes the steps of a job; None where the peer has no such optimizer.
Peer = Callable[[Job], Runnable | None]


def available() -> tuple[dict[str, Peer], list[str]]:
    """Returns the peers that can be imported, and a line about those that can not."""
    peers: dict[str, Peer] = {"plain JAX": _jax}
    try:
        from suite import static_torch
    except ImportError:
        return peers, ["torch is not installed: EmbeddingBag and FBGEMM are left out."]
    peers["torch"] = _torch(static_torch.embedding_bag)
    try:
        import fbgemm_gpu  # noqa: F401  # pyright: ignore[reportMissingImports]
    except ImportError:
        return peers, ["fbgemm_gpu is not installed: FBGEMM is left out."]
    return peers | {"FBGEMM": _torch(static_torch.fbgemm)}, []


def _jax(job: Job) -> Runnable:
    work, parts = job.optimizer or "eval", job.case.parts
    dtype, _ = filled.dtypes(job.dtype)
    d_rows = static_jax.gradients(parts, dtype)
    batches = [(static_jax.to_device(parts, ids), d_rows) for ids in job.batches()]
    tables = static_jax.init(parts, work, dtype)
    return timing.Chain(static_jax.step(parts, work), tables, batches)


def _torch(make: Callable[..., tuple[Any, Any]]) -> Peer:
    def steps(job: Job) -> Runnable | None:
        try:
            dtype, _ = filled.dtypes(job.dtype)
            step, prepare = make(job.case.parts, job.optimizer or "eval", dtype)
        except NotImplementedError:
            return None
        return _TorchChain(step, [prepare(ids) for ids in job.batches()])

    return steps


class _TorchChain:
    def __init__(self, step: Callable[[Any], None], batches: list[Any]):
        self._step, self._batches = step, batches

    def run(self, steps: int) -> float:
        """Takes the steps; each is done when it returns."""
        start = time.perf_counter()
        for number in range(steps):
            self._step(self._batches[number % len(self._batches)])
        return (time.perf_counter() - start) / steps
