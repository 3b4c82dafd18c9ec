# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Computes what tables take in device and in host memory, before any array is made."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.engines.hash import Placement
from jax_dynemb._src.ops import array_shapes
from jax_dynemb._src.spec import TableSpec
from jax_dynemb._src.tt import TTConfig, TTState, core_optimizer

_LIMIT = "XLA_PJRT_GPU_HOST_MEMORY_LIMIT_GB"
_DEFAULT_GIB = 64


def memory(
    tables: Iterable[TableConfig | TTConfig], placement: Placement | None
) -> dict[str, dict[str, int]]:
    """Computes bytes by table, see ``Tables.memory``."""
    shards = 1 if placement is None else placement.shards
    return {
        table.name: _of_cores(table, shards)
        if isinstance(table, TTConfig)
        else _of_table(table, placement)
        for table in tables
    }


def _of_cores(table: TTConfig, shards: int) -> dict[str, int]:
    cores = tuple(jax.ShapeDtypeStruct(s, jnp.float32) for s in table.core_shapes)
    optimizer = jax.eval_shape(core_optimizer(table.optimizer).init, cores)
    state = jax.eval_shape(TTState.of, cores, optimizer)
    return {"hbm": shards * _bytes(state), "pinned_host": 0}


def _of_table(table: TableConfig, placement: Placement | None) -> dict[str, int]:
    """Counts the shards of a table; idle parts of its arrays are the first table's."""
    if placement is None:
        return _of_shards(TableSpec.of(table), 1)
    stack = placement.stack_of(table.name)
    shards = len(stack.owners(table.name))
    if table.name == stack.tables[0].name:
        shards += (stack.blocks - len(stack.tables)) * stack.width
    return _of_shards(stack.local, shards)


def _of_shards(spec: TableSpec, shards: int) -> dict[str, int]:
    sizes = {
        name: math.prod(shape) * jnp.dtype(dtype).itemsize
        for name, (shape, dtype) in array_shapes(spec).items()
    }
    homes = sizes.pop("homes", 0)
    once = _bytes(jax.eval_shape(lambda: spec.optimizer.extra(spec.dim)))
    device = sum(sizes.values()) + once
    return {"hbm": shards * device, "pinned_host": shards * homes}


def _bytes(tree: Any) -> int:
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))


def check_pinned(sizes: Mapping[str, Mapping[str, int]], shards: int) -> None:
    """Refuses more pinned memory in a process than XLA's limit on a GPU."""
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


def check_device(sizes: Mapping[str, Mapping[str, int]], shards: int) -> None:
    """Compares what tables take with the memory that there is for them.

    A GPU's allocator says of an array that has no room only how large it is. XLA's CPU
    client reports an allocation that failed when an array is read. Reading another
    array of the same program may wait forever.
    """
    if jax.default_backend() == "cpu":
        here = min(shards, jax.local_device_count()) / shards
        need = {name: here * sum(size.values()) for name, size in sizes.items()}
        has = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        where = "this machine has {has:.1f} GB of memory"
    else:
        need = {name: size["hbm"] / shards for name, size in sizes.items()}
        has = _device_bytes()
        where = "a device has {has:.1f} GB of memory for JAX"
    total = sum(need.values())
    if has is None or total <= has:
        return
    largest = max(need, key=lambda name: need[name])
    raise ValueError(
        f"The tables take {total / 1e9:.1f} GB, but {where.format(has=has / 1e9)}. "
        f"Give the largest, table '{largest}' ({need[largest] / 1e9:.1f} GB), a lower "
        "capacity or dim, or a tier with a store: "
        "tier=jde.tiers.ssd(path, host_rows=...)."
    )


def _device_bytes() -> int | None:
    """Returns the limit of the allocator of a device; None where it says none."""
    stats = jax.local_devices()[0].memory_stats() or {}
    return stats.get("bytes_limit")
