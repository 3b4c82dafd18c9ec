# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Uneven buckets do not grow over processes; on the devices of the error they do."""

import re

import jax
import pytest

import jax_dynemb as jde
from jax_dynemb._src.engines.hash.layouts import mesh_host as _mesh_host
from meshes import mesh_of


def grown(devices: int) -> int:
    tier = jde.tiers.host(hbm_fraction=0.25)
    coll = jde.Tables([jde.TableConfig("t", 4, 1024, tier=tier)], mesh=mesh_of(devices))
    return coll.grow(coll.init(0), {"t": 2048})[0].tables["t"].capacity


def test_the_devices_of_the_error_do(monkeypatch):
    def is_shared(array: jax.Array) -> bool:  # as if processes had parts of it
        return len(array.devices()) > 1

    monkeypatch.setattr(_mesh_host, "is_shared", is_shared)
    with pytest.raises(NotImplementedError, match="do not come out even") as error:
        grown(6)
    found = re.search(r"Use (\d+) devices", str(error.value))
    assert found is not None and grown(int(found[1])) == 2048
