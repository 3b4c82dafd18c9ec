# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Runs programs once on zeros, since a first run takes a few milliseconds longer.

A GPU loads the kernels of a program when it first runs, and JAX looks it up. For small
tables that takes longer than the copies of a swap.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jax_dynemb.lifecycle import _memory
from jax_dynemb.ops import TableState
from jax_dynemb.table import Growth

_log = logging.getLogger("jax_dynemb.lifecycle")
# Copies of larger tables take longer than first runs, and a rehearsal makes as many.
_MOST_BYTES = 4 << 30


def rehearse(
    growth: Growth,
    needed: int,
    step: Callable[..., Any],
    effects: Any,
    state: Any,
    args: tuple[Any, Any],
) -> None:
    """Runs the growth, then a step of the larger tables.

    Nothing happens where memory is short, for rows in host memory, on a CPU, which
    loads nothing, and on several devices: two threads would start their collectives in
    different orders. A step that prints or calls back is left out. ``needed`` are bytes
    of the new arrays, and of what the step has beside its arguments. ``state`` and
    ``args`` are types.
    """
    needed += _bytes((state, args))
    if growth.has_tier or needed > _MOST_BYTES or not _has_room(state, needed):
        return
    try:
        larger = jax.block_until_ready(growth.apply(_zeros(state)))
        if not effects:
            some, named = _zeros(args)
            jax.block_until_ready(step(larger, *some, **named))
    except Exception as error:  # training goes on without it
        _log.debug("the programs of the next size were not run ahead: %s", error)


def rehearse_check(growth: Growth, larger: Any) -> None:
    """Runs the first check of the larger tables, whose types are ``larger``.

    It reads indexes and counters, so it makes no other arrays. Nothing happens where
    the memory of a device is too small for that, nor on several devices.
    """
    read = {name: _of_check(arrays) for name, arrays in larger.items()}
    if _has_room(larger, _bytes(read)) is False:
        return
    try:
        zeros = {name: _zeros(some) for name, some in read.items()}
        tables = {name: _with(larger[name], some) for name, some in zeros.items()}
        growth.coll.engine.stats_async(tables)
    except Exception as error:  # the first check compiles them
        _log.debug("the next check of counters was not run ahead: %s", error)


def _of_check(arrays: Any) -> dict[str, Any]:
    """Selects what a check reads of the arrays of one name."""
    if not isinstance(arrays, TableState):
        return {}
    read = {"index": arrays.index, "counters": arrays.counters}
    return read if arrays.tier is None else read | {"tier": arrays.tier.counters}


def _with(arrays: Any, read: dict[str, Any]) -> Any:
    """Replaces types by what ``_of_check`` selected."""
    if "tier" in read:
        tier = dataclasses.replace(arrays.tier, counters=read["tier"])
        read = read | {"tier": tier}
    return dataclasses.replace(arrays, **read) if read else arrays


def _has_room(state: Any, needed: int) -> bool | None:
    """Whether the tables lie on one device, which has far more room than needed.

    None if the device does not say how much is free, as a CPU.
    """
    devices = _devices(state)
    if len(devices) != 1:
        return False
    free = _memory.free_bytes(devices.pop())
    return None if free is None else free > 4 * needed


def _bytes(tree: Any) -> int:
    arrays = [leaf for leaf in jax.tree.leaves(tree) if hasattr(leaf, "dtype")]
    return sum(leaf.size * leaf.dtype.itemsize for leaf in arrays)


def _devices(state: Any) -> set[Any]:
    shardings = [leaf.sharding for leaf in jax.tree.leaves(state)]
    if any(sharding is None for sharding in shardings):
        # Arrays without a device of their own; those of other states have the same.
        return {next(iter(jnp.zeros(()).devices()))}
    return {device for sharding in shardings for device in sharding.device_set}


def _zeros(tree: Any) -> Any:
    return jax.tree.map(_zeros_like, tree)


def _zeros_like(leaf: Any) -> Any:
    """Zeros that are the same to ``jit`` as the array of this type."""
    if not isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf
    if not leaf.weak_type:
        return jnp.zeros(leaf.shape, leaf.dtype, device=leaf.sharding)
    if leaf.shape == () and leaf.sharding is None:
        return jnp.asarray(leaf.dtype.type(0).item())
    raise TypeError(f"no zeros of a weak type {leaf}")
