# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Whether the devices of a mesh can read each other's memory."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import AbstractMesh, Mesh

from jax_dynemb._src.engines.hash.layouts import peer_processes
from jax_dynemb._src.ops import Peer, prepare_peers

TRANSPORTS = ("auto", "peers", "collectives")
_UNREACHABLE = (
    "exchange_transport='peers': {reason}. Leave it out, and XLA's collectives do the "
    "exchange."
)


class Peers(NamedTuple):
    """Says which devices read each other's memory.

    Attributes:
      ids: of GPUs, in groups that exchange with each other; empty: none do.
      reason: why none do.
    """

    ids: tuple[int, ...]
    reason: str = ""


@functools.cache  # never evicted: other processes would not join a second time
def peers_of(
    mesh: Mesh | AbstractMesh | None,
    axes: tuple[str, ...],
    transport: str,
    devices: int | None = None,
) -> Peers:
    """Finds the GPUs whose memory an exchange over some axes reads.

    Where the mesh has devices of several processes, all of them call it.

    Args:
      mesh: the devices.
      axes: those over which an exchange goes.
      transport: one of ``TRANSPORTS``.
      devices: of an exchange, side by side on the axes; None: all of them.

    Raises:
      ValueError: ``"peers"`` where the devices cannot.
    """
    if transport == "collectives":
        return Peers((), "exchange_transport='collectives'")
    groups, reason = groups_of(mesh, axes)
    if not reason:
        groups = groups.reshape(-1, devices or groups.shape[1])
        reason = _prepare(groups)
    if reason and transport == "peers":
        raise ValueError(_UNREACHABLE.format(reason=reason))
    ids = () if reason else tuple(int(device.id) for device in groups.flat)
    return Peers(ids, reason)


def groups_of(
    mesh: Mesh | AbstractMesh | None, axes: tuple[str, ...]
) -> tuple[np.ndarray, str]:
    """Returns devices [groups, shards], or why there are none."""
    none = np.zeros((0, 1), object)
    if not isinstance(mesh, Mesh):
        return none, "the devices are not known before the shard_map runs"
    platforms = {device.platform for device in mesh.devices.flat}
    if platforms != {"gpu"}:
        return none, f"the devices are of the platform {min(platforms)}"
    shards = math.prod(mesh.shape[axis] for axis in axes)
    if shards == 1:
        return none, "there is one device"
    return grouped(mesh.devices, mesh.axis_names, axes), ""


def _prepare(groups: np.ndarray) -> str:
    if {device.process_index for device in groups.flat} != {jax.process_index()}:
        return peer_processes.prepare(groups)
    for group in groups:
        ordinals = [(device.id, device.local_hardware_id) for device in group]
        members = [Peer(key, ordinal, f"GPU {ordinal}") for key, ordinal in ordinals]
        if problem := prepare_peers(members):
            return problem
    return ""


def grouped(
    grid: np.ndarray, names: tuple[str, ...], axes: tuple[str, ...]
) -> np.ndarray:
    """Cuts a mesh into the groups whose devices differ in some axes only.

    Args:
      grid: the devices, or a number for each, in the shape of the mesh.
      names: of its axes.
      axes: those over which a group goes; the first is the slowest.

    Returns:
      The same, [groups, shards]; a device's place in its group is its
      ``jax.lax.axis_index(axes)``.
    """
    others = [n for n, name in enumerate(names) if name not in axes]
    order = [*others, *(names.index(axis) for axis in axes)]
    shards = math.prod(grid.shape[names.index(axis)] for axis in axes)
    return grid.transpose(order).reshape(-1, shards)
