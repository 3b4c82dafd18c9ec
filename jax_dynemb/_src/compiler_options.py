# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Under which options of XLA a step on a GPU is replayed instead of launched."""

from __future__ import annotations

# What XLA records by default, and loops.
_WITH_LOOPS = "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,DYNAMIC_SLICE_FUSION,WHILE"


def compiler_options(*, loops: bool = False) -> dict[str, int | str]:
    """Options for ``jax.jit(..., compiler_options=...)`` of a step with tables.

    On a GPU XLA records what it launches as a CUDA graph and replays that, where five
    operations or more follow each other. A lookup or an update is one operation of
    several kernels; with these options it is recorded on its own too. They change
    nothing else, and nothing on other devices. JAX takes them in the outermost ``jit``
    only. ``jde.nnx.jit`` has them.

    Example:
      >>> step = jax.jit(
      ...     step, donate_argnums=0, compiler_options=jde.compiler_options()
      ... )

    Args:
      loops: also record loops. A step of row-wise tables on GPUs that read each other's
        memory has two, for ids beyond the room of an exchange. A step of tables with a
        tier has one, for rows beyond ``spill_rows``. The host waits at each of them for
        the device, and does not if they are recorded. Not for a program in which the
        condition of some ``jax.lax.while_loop`` only returns what it receives, as
        ``lambda carry: carry.more`` does. XLA would read such a condition before it is
        computed; ``lambda carry: carry.count > 0`` is fine. ``jde.nnx.jit`` looks for
        that, and records the loops of such steps by itself with jax 0.11; those of a
        tier on one GPU alone.
    """
    options: dict[str, int | str] = {"xla_gpu_graph_min_graph_size": 1}
    if loops:
        options["xla_gpu_enable_command_buffer"] = _WITH_LOOPS
    return options
