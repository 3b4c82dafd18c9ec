# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Devices of several hosts, on a mesh of devices of one."""

import math

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
        shards = 1 if mesh is None else math.prod(mesh.shape[axis] for axis in axes)
        usual = 2 if shards % 2 == 0 else 1
        return hosts_of(mesh, axes, transport, devices_per_host or usual)

    patch.setattr(mesh_axes, "hosts_of", pairs)
    if tight:
        patch.setattr(host_batch, "capacity_of", equal_share)


def equal_share(size, owners, factor):
    del factor
    return -(-size // owners)
