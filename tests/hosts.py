# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Devices of several hosts, on a mesh of devices of one."""

import pytest

from jax_dynemb._src.engines.hash.layouts import mesh_axes
from jax_dynemb._src.engines.hash.layouts.hosts import hosts_of
from jax_dynemb._src.engines.hash.strategies.by_host import host_batch


def emulate(patch: pytest.MonkeyPatch, tight: bool = False) -> None:
    """Takes pairs of devices for hosts, where an exchange has several pairs.

    Args:
      patch: undoes it.
      tight: whether a gateway has room for an equal share of the ids only, so that ids
        often stay where they are.
    """

    def pairs(mesh, axes, transport, devices_per_host):
        even = hosts_of(mesh, axes, transport, 1)
        if mesh is not None and _shards(mesh, axes) % 2 == 0:
            even = hosts_of(mesh, axes, transport, devices_per_host or 2)
        return even

    patch.setattr(mesh_axes, "hosts_of", pairs)
    if tight:
        patch.setattr(host_batch, "capacity_of", equal_share)


def _shards(mesh, axes):
    result = 1
    for axis in axes:
        result *= mesh.shape[axis]
    return result


def equal_share(size, owners, factor):
    del factor
    return -(-size // owners)
