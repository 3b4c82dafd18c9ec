# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Several processes, one mesh. JAX's own runtime connects them; this finds it."""

from __future__ import annotations

import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

# Launchers that jax.distributed.initialize() understands, by the number of processes.
# Slurm sets the first for what srun starts, not for a script in an allocation, which is
# one process however many tasks there are room for.
_LAUNCHERS = ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE")


def ensure_initialized() -> None:
    """Connects the processes of a job; does nothing where there is one only.

    Call it first, before anything uses devices (a ``TableConfig`` with an optax
    optimizer does). A second call does nothing.

    - ``JAX_COORDINATOR_ADDRESS`` (host:port of process 0), ``JAX_NUM_PROCESSES`` and
      ``JAX_PROCESS_ID``; for the last also ``JOB_COMPLETION_INDEX``, as set by
      Kubernetes;
    - Slurm (``srun``) and Open MPI: the launcher's own variables;
    - otherwise: one process, nothing to do.

    Raises:
      ValueError: there is a coordinator, but no number of this process.
    """
    if jax.distributed.is_initialized():
        return
    address = os.environ.get("JAX_COORDINATOR_ADDRESS")
    if address is not None and "JAX_NUM_PROCESSES" in os.environ:
        count = int(os.environ["JAX_NUM_PROCESSES"])
        if count > 1:
            jax.distributed.initialize(address, count, _process_id())
    elif any(int(os.environ.get(name, "1")) > 1 for name in _LAUNCHERS):
        jax.distributed.initialize()
    elif address is not None:
        raise ValueError(
            f"JAX_COORDINATOR_ADDRESS={address} is set, but not JAX_NUM_PROCESSES: set "
            "it and JAX_PROCESS_ID (0 to JAX_NUM_PROCESSES - 1), or unset the address."
        )


def _process_id() -> int:
    for name in ("JAX_PROCESS_ID", "JOB_COMPLETION_INDEX"):
        if name in os.environ:
            return int(os.environ[name])
    raise ValueError(
        "JAX_COORDINATOR_ADDRESS is set, but not JAX_PROCESS_ID: set it to the number "
        "of this process, 0 to JAX_NUM_PROCESSES - 1."
    )


def replicate(tree: Any, mesh: Mesh) -> Any:
    """Puts arrays that every process has alike on all devices of a mesh.

    For parameters, optimizer state and other leaves that were made process by process;
    keys of ``jax.random`` too.

    Args:
      tree: a pytree of arrays; those that lie on the whole mesh already stay.
      mesh: of all processes.
    """
    everywhere = NamedSharding(mesh, PartitionSpec())
    whole = set(mesh.devices.flat)

    def one(x: Any) -> Any:
        if isinstance(x, jax.Array) and x.sharding.device_set == whole:
            return x
        if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            data = one(jax.random.key_data(x))
            return jax.random.wrap_key_data(data, impl=jax.random.key_impl(x))
        x = np.asarray(x)
        return jax.make_array_from_process_local_data(everywhere, x, x.shape)

    return jax.tree.map(one, tree)


def split(tree: Any, mesh: Mesh, axis: str | tuple[str, ...]) -> Any:
    """Puts each process's part of a batch on its devices, as one global array.

    Args:
      tree: a pytree of numpy arrays, this process's rows of each; not ids, which go
        through ``jde.ids(..., sharding=...)``.
      mesh: of all processes.
      axis: the axis of the mesh that the first axis of each array is split over.
    """
    sharding = NamedSharding(mesh, PartitionSpec(axis))
    return jax.tree.map(
        lambda x: jax.make_array_from_process_local_data(sharding, np.asarray(x)), tree
    )
