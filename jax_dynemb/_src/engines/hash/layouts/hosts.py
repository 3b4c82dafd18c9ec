# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Which devices of a mesh belong to one host, and what they do for each other."""

from __future__ import annotations

import functools
import itertools
import math
from typing import NamedTuple

import jax
from jax.sharding import AbstractMesh, Mesh

from jax_dynemb._src.engines.hash.layouts import peer_processes
from jax_dynemb._src.engines.hash.layouts.peers import Peers, groups_of, peers_of


class Hosts(NamedTuple):
    """Describes the hosts of an exchange in two steps, within hosts and between them.

    Attributes:
      count: of an exchange; 1: all devices exchange at once.
      devices: of a host, side by side on the axes.
      peers: between the devices of a host.
    """

    count: int
    devices: int
    peers: Peers


_NONE = Hosts(1, 1, Peers(()))


@functools.cache  # never evicted: other processes would not join a second time
def hosts_of(
    mesh: Mesh | AbstractMesh | None,
    axes: tuple[str, ...],
    transport: str,
    devices_per_host: int | None,
) -> Hosts:
    """Finds the hosts of an exchange in two steps.

    Where the mesh has devices of several processes, all of them call it.

    Args:
      mesh: the devices.
      axes: those over which an exchange goes.
      transport: as of ``peers_of``, between the devices of a host.
      devices_per_host: as the user gives it; None: GPUs of one host that read each
        other's memory, where the devices belong to several.

    Raises:
      ValueError: the devices are no multiple of it, or ``transport`` is ``"peers"`` and
        they cannot read each other's memory.
    """
    if mesh is None or devices_per_host == 1:
        return _NONE
    shards = math.prod(mesh.shape[axis] for axis in axes)
    devices = devices_per_host or _devices_of_a_host(mesh, axes, transport)
    if shards % devices:
        raise ValueError(
            f"devices_per_host={devices}: {shards} devices on the axes {axes} are no "
            f"multiple of it. Use {math.gcd(shards, devices)}."
        )
    if devices in (1, shards):
        return _NONE
    peers = peers_of(mesh, axes, transport, devices)
    if devices_per_host is None and not peers.ids:
        return _NONE
    return Hosts(shards // devices, devices, peers)


def _devices_of_a_host(
    mesh: Mesh | AbstractMesh, axes: tuple[str, ...], transport: str
) -> int:
    """Counts neighbours on the axes that are GPUs of one host; 1 if hosts differ."""
    groups, reason = groups_of(mesh, axes)
    if reason or transport == "collectives" or jax.process_count() == 1:
        return 1
    if not peer_processes.can_agree(groups):
        return 1
    names = peer_processes.hosts()
    hosts = [[names[each.process_index] for each in group] for group in groups]
    runs = [[(h, len(list(run))) for h, run in itertools.groupby(g)] for g in hosts]
    sizes = {size for each in runs for _, size in each}
    is_apart = all(len(dict(each)) == len(each) for each in runs)
    return sizes.pop() if len(sizes) == 1 and is_apart else 1
