# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""``Tables.memory`` is what tables allocate, byte for byte; too much is refused."""

import types
from typing import Any

import jax
import numpy as np
import optax
import pytest

import jax_dynemb as jde
from jax_dynemb._src.table import memory as _memory
from meshes import mesh_of

COUNTED = jde.admission.Frequency(3, jde.admission.Exact(900))
SKETCHED = jde.admission.Frequency(3, jde.admission.Sketch(bytes=1 << 14))
HOST = jde.tiers.host(hbm_fraction=1 / 16)


def store(table: Any) -> jde.stores.Store:
    return jde.stores.Memory(table)


TABLES: dict[str, dict[str, Any]] = {
    "plain": {},
    "sgd": {"optimizer": jde.optim.sgd(0.1)},
    "adam": {"optimizer": jde.optim.adam(0.1)},
    "rowwise": {"optimizer": jde.optim.rowwise_adagrad(0.1), "param_dtype": "bfloat16"},
    "half states": {
        "optimizer": jde.optim.adam(0.1),
        "state_dtype": {"mu": "bfloat16"},
    },
    "optax": {"optimizer": optax.adam(optax.linear_schedule(0.1, 0.01, 100))},
    "sketch": {"admission": SKETCHED},
    "exact": {"admission": COUNTED},
    "log": {"log_removed": 500},
    "tier": {"tier": HOST, "optimizer": jde.optim.adam(0.1)},
    "store": {
        "tier": jde.tiers.external(store, host_rows=900, hbm_fraction=1 / 16),
        "optimizer": jde.optim.adam(0.1),
    },
}


def live_bytes(state) -> dict[str, int]:
    """Sums what arrays take on all devices, by the kind of memory."""
    found = {"hbm": 0, "pinned_host": 0}
    for leaf in jax.tree.leaves(state):
        kind = "pinned_host" if leaf.sharding.memory_kind == "pinned_host" else "hbm"
        found[kind] += sum(shard.data.nbytes for shard in leaf.addressable_shards)
    return found


def total(coll: jde.Tables) -> dict[str, int]:
    sizes = coll.memory().values()
    return {kind: sum(size[kind] for size in sizes) for kind in ("hbm", "pinned_host")}


@pytest.mark.parametrize("devices", [1, 3, 8])
@pytest.mark.parametrize("kind", TABLES)
def test_of_one_table(kind, devices):
    placement: dict[str, Any] = {"mesh": mesh_of(devices)} if devices > 1 else {}
    config = jde.TableConfig("t", 12, 1100, **TABLES[kind])
    coll = jde.Tables([config], **placement)
    assert total(coll) == live_bytes(coll.init(0))


@pytest.mark.parametrize("devices", [2, 3])
def test_of_other_layouts(devices):
    common: dict[str, Any] = {"optimizer": jde.optim.adam(0.1), "capacity": 700}
    configs = [
        jde.TableConfig("copy", 12, sharding="replicated", **common),
        jde.TableConfig("columns", 24, sharding="column_wise", **common),
        *[
            jde.TableConfig(f"w{n}", 12, sharding="table_wise", **common)
            for n in range(4)
        ],
    ]
    coll = jde.Tables(configs, mesh=mesh_of(devices))
    assert total(coll) == live_bytes(coll.init(0))


def test_of_tables_that_share_arrays_and_of_tensor_trains():
    configs = [jde.TableConfig(f"t{n}", 8, 300 * n + 100) for n in range(3)]
    coll = jde.Tables(configs)
    assert len(coll.init(0)) == 1
    assert total(coll) == live_bytes(coll.init(0))
    train = jde.TTConfig("item", 64, 11_000, (32, 32), optimizer=jde.optim.adam(0.1))
    coll = jde.Tables([train, configs[0]])
    state, size = coll.init(0), coll.memory()
    own = {k: x for k, x in state.items() if k != "item"}
    assert size["t0"] == live_bytes(own)
    assert size["item"] == live_bytes(state["item"])


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
def test_tables_larger_than_the_memory_are_refused(monkeypatch, backend):
    """A GPU has a limit of its own; the same sentence says so."""
    device = types.SimpleNamespace(memory_stats=lambda: {"bytes_limit": 10**9})
    monkeypatch.setattr(_memory.jax, "default_backend", lambda: backend)
    monkeypatch.setattr(_memory.jax, "local_devices", lambda: [device])
    monkeypatch.setattr(_memory.os, "sysconf", lambda name: 31_250)  # 0.98 GB
    sizes = {"small": {"hbm": 10**8, "pinned_host": 0}}
    sizes["large"] = {"hbm": 3 * 10**9, "pinned_host": 0}
    with pytest.raises(ValueError, match=r"3\.1 GB.*'large' \(3\.0 GB\).*jde\.tiers"):
        _memory.check_device(sizes, 1)
    if backend == "gpu":
        _memory.check_device(sizes, 4)  # a quarter on each device
        device.memory_stats = lambda: None
        _memory.check_device(sizes, 1)  # an allocator without a limit


def test_a_table_of_a_petabyte_is_refused_by_init():
    coll = jde.Tables([jde.TableConfig("t", 4096, 2**31 - 2**20)])
    with pytest.raises(ValueError, match="The tables take .* GB, but"):
        coll.init(0)
    assert np.log2(coll.memory()["t"]["hbm"]) > 44
