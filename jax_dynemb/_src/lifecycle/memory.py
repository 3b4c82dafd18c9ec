# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Compares what growth needs with what devices have."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import jax

from jax_dynemb._src.table import Growth


def fits_in_memory(growth: Growth, state: Mapping[str, Any], needed: int) -> bool:
    """Says whether every device has room for the old and the new arrays together.

    Warns with the numbers where one has not. A device that reports no memory, such as
    a CPU, has room.

    Args:
      growth: the larger sizes.
      state: the tables as they are.
      needed: bytes of a device, as ``growth.needed_bytes`` returned.
    """
    for device in _devices_of(state):
        free = free_bytes(device)
        if free is not None and free < needed:
            used, before = (
                _bytes_on(device, state),
                growth.before.engine.catalog.dynamic,
            )
            sizes = {
                name: f"{old.num_slots} to {new.num_slots} rows"
                for name, new in growth.coll.engine.catalog.dynamic.items()
                if (old := before[name]).num_slots != new.num_slots
            }
            warnings.warn(
                f"tables do not grow ({sizes}): {device} has {free:,} bytes free, and "
                f"the new arrays need {needed:,} beside the {used:,} of the old ones. "
                "Set a lower max_capacity, or shard the tables over more devices.",
                RuntimeWarning,
                stacklevel=2,
            )
            return False
    return True


def free_bytes(device: Any) -> int | None:
    """Returns the bytes that a device can still allocate; None if it does not say."""
    stats = device.memory_stats()
    if not stats or "bytes_limit" not in stats:
        return None
    return stats["bytes_limit"] - stats["bytes_in_use"]


def _devices_of(state: Any) -> Iterable[Any]:
    devices = {
        device
        for leaf in jax.tree.leaves(state)
        for device in leaf.sharding.addressable_devices
    }
    return sorted(devices, key=lambda device: device.id)


def _bytes_on(device: Any, state: Any) -> int:
    return sum(
        shard.data.nbytes
        for leaf in jax.tree.leaves(state)
        for shard in leaf.addressable_shards
        if shard.device == device
    )
