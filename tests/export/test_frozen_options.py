# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Any table can be frozen: with a tier, a store below it, states of 16 bits."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jax_dynemb as jde
from meshes import mesh_of

ADAM = jde.optim.adam(0.1)
BELOW = {"hbm_fraction": 0.1, "host_rows": 900}
TABLES = {
    "tier": {"tier": jde.tiers.host(hbm_fraction=0.1), "param_dtype": "bfloat16"},
    "tier, optax": {
        "tier": jde.tiers.host(hbm_fraction=0.5),
        "optimizer": optax.adam(0.1),
    },
    "store": {
        "tier": jde.tiers.external(lambda table: jde.stores.Memory(table), **BELOW)
    },
    "state_dtype": {"state_dtype": {"mu": "bfloat16"}},
    "rounding": {
        "state_dtype": {"mu": "bfloat16", "nu": "bfloat16"},
        "rounding": "stochastic",
    },
}
ROWS = np.random.default_rng(0).normal(size=(300, 8)).astype(np.float32)
IDS = {"t": jde.ids(7 * np.arange(300)), "u": jde.ids(np.arange(300))}


@pytest.mark.parametrize("devices", [1, 3])
@pytest.mark.parametrize("options", TABLES.values(), ids=TABLES)
def test_frozen_tables_read_the_same_rows(options, devices):
    config = jde.TableConfig("t", 8, 4096, **{"optimizer": ADAM, **options})
    mesh = mesh_of(devices) if devices > 1 else None
    coll = jde.Tables([config, jde.TableConfig("u", 8, 4096)], mesh)
    state = coll.insert(coll.init(0), IDS, dict.fromkeys(IDS, jnp.asarray(ROWS)))
    rows, found, _ = coll.find(state, IDS)
    assert np.asarray(found["t"]).all()
    for on_mesh in (False, True):
        served, arrays = jde.export.frozen(coll, state, on_mesh=on_mesh)
        again, found, _ = served.find(arrays, IDS)
        assert np.asarray(found["t"]).all()
        for name in IDS:
            np.testing.assert_array_equal(again[name], rows[name])
    served, arrays = jde.export.frozen(coll, state, dtype="int8")
    packed = served.find(arrays, IDS)[0]
    np.testing.assert_allclose(packed["t"], rows["t"], atol=np.abs(ROWS).max() / 254)


def test_a_program_of_a_tier():
    """Its rows are arguments of the program, so they lie in device memory."""
    coll = jde.Tables([jde.TableConfig("t", 8, 1024, optimizer=ADAM, **TABLES["tier"])])
    _, _, state = coll.lookup(coll.init(0), {"t": IDS["t"]})
    served, arrays = jde.export.frozen(coll, state)

    def look_up(arrays, ids):
        return served.find(arrays, {"t": ids})[0]["t"]

    data = jde.export.program(look_up, arrays, IDS["t"])
    rows = jde.export.load_program(data).call(arrays, IDS["t"])
    np.testing.assert_array_equal(rows, coll.find(state, {"t": IDS["t"]})[0]["t"])
