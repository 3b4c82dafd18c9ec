# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Under which options of XLA a step on a GPU is replayed instead of launched."""

from __future__ import annotations


def compiler_options() -> dict[str, int]:
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
    """
    return {"xla_gpu_graph_min_graph_size": 1}
