# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Computes what tables take in device and in host memory, before any array is made."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterable, Mapping

import jax
import jax.numpy as jnp

from jax_dynemb._spec import TableSpec
from jax_dynemb.config import TableConfig
from jax_dynemb.engines.mesh import bytes_of
from jax_dynemb.tt import TTConfig, core_optimizer

_LIMIT = "XLA_PJRT_GPU_HOST_MEMORY_LIMIT_GB"
_DEFAULT_GIB = 64


def memory(
    tables: Iterable[TableConfig | TTConfig], shards: int
) -> dict[str, dict[str, int]]:
    """Computes bytes by table, see ``Tables.memory``.

    Args:
      tables: the configs.
      shards: equal parts that row-wise tables are cut into; each device has all cores.
    """
    return {
        table.name: _of_cores(table, shards)
        if isinstance(table, TTConfig)
        else _of_table(table, shards)
        for table in tables
    }


def _of_cores(table: TTConfig, shards: int) -> dict[str, int]:
    cores = [jax.ShapeDtypeStruct(s, jnp.float32) for s in table.core_shapes]
    optimizer = jax.eval_shape(core_optimizer(table.optimizer).init, tuple(cores))
    sizes = [x.size * x.dtype.itemsize for x in jax.tree.leaves((cores, optimizer))]
    return {"hbm": shards * sum(sizes), "pinned_host": 0}


def _of_table(table: TableConfig, shards: int) -> dict[str, int]:
    spec = TableSpec.of(table)
    parts = shards if table.sharding == "row_wise" else 1
    copies = shards if table.sharding == "replicated" else 1
    of_part = bytes_of(dataclasses.replace(spec, shards=parts))
    device = parts * of_part + 4 * spec.num_buckets * spec.sketch_words
    homes = 0 if spec.tier is None else 4 * spec.num_slots * spec.record_words
    return {"hbm": copies * device, "pinned_host": homes}


def check_pinned(sizes: Mapping[str, Mapping[str, int]], shards: int) -> None:
    """Compares what a process needs of pinned memory with XLA's limit on a GPU.

    Args:
      sizes: as ``memory`` returns them.
      shards: equal parts of the tables.

    Raises:
      ValueError: it is more than the limit.
    """
    parts = [size["pinned_host"] / shards for size in sizes.values()]
    if not any(parts) or jax.default_backend() != "gpu":
        return
    # XLA takes regions of a power of two, one or more for each array.
    here = min(shards, jax.local_device_count())
    need = here * sum(1 << (math.ceil(part) - 1).bit_length() for part in parts if part)
    limit = int(os.environ.get(_LIMIT, _DEFAULT_GIB)) << 30
    if need <= limit:
        return
    gib = (need + (1 << 30) - 1) >> 30
    raise ValueError(
        f"The tables with tiers need up to {gib} GiB of pinned host memory in this "
        f"process, but XLA's pool has {limit >> 30}. Set {_LIMIT}={gib} in the "
        "environment before JAX starts."
    )


def check_host(sizes: Mapping[str, Mapping[str, int]], shards: int) -> None:
    """Compares what tables take on CPU devices with the memory of the machine.

    XLA's CPU client reports an allocation that failed when an array is read. Reading
    another array of the same program may wait forever.

    Args:
      sizes: as ``memory`` returns them.
      shards: equal parts of the tables.

    Raises:
      ValueError: it is more than the machine has.
    """
    if jax.default_backend() != "cpu":
        return
    here = min(shards, jax.local_device_count()) / shards
    need = {name: here * sum(size.values()) for name, size in sizes.items()}
    has = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if sum(need.values()) <= has:
        return
    largest = max(need, key=lambda name: need[name])
    raise ValueError(
        f"The tables take {sum(need.values()) / 1e9:.1f} GB, but this machine has "
        f"{has / 1e9:.1f} GB of memory. Give the largest, table '{largest}' "
        f"({need[largest] / 1e9:.1f} GB), a lower capacity or dim, or a tier with a "
        "store: tier=jde.tiers.ssd(path, host_rows=...)."
    )
