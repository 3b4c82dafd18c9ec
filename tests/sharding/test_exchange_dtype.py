# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""bfloat16 between devices: never further off than rounding explains."""

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import jax_dynemb as jde
from meshes import mesh_of
from support import compiled, export

# bfloat16 keeps 8 bits, so rounding to it is off by this share at most.
UNIT = 2.0**-8
DEVICES, BATCH, LENGTH, DIM, RATE = 4, 16, 5, 6, 0.5


def train(coll: jde.Tables, ids, weights, d_rows):
    """Rows of a lookup, and the tables before and after the update by it."""
    jit = compiled(coll)
    state = coll.init(0)
    rows, residual, state = jit.lookup(state, ids, weights, None)
    before = {t: export(coll, state, t) for t in coll.tables}
    state = jit.apply_gradients(state, residual, d_rows, None)
    after = {t: export(coll, state, t) for t in coll.tables}
    return rows, before, after


@pytest.mark.parametrize("pooled", ["rows", "sums"])
def test_rows_and_gradients_are_rounded_once(pooled):
    common = {"dim": DIM, "capacity": 1024, "initializer": jde.initializers.normal(1.0)}
    tables = [
        jde.TableConfig("rows", optimizer=jde.optim.sgd(RATE), **common),
        jde.TableConfig("bags", pooling="sum", optimizer=jde.optim.sgd(RATE), **common),
    ]
    rng = np.random.default_rng(0)
    keys = {
        "rows": rng.integers(0, 20, BATCH),
        "bags": rng.integers(0, 20, (BATCH, LENGTH)),
    }
    factor = rng.normal(size=(BATCH, LENGTH)).astype(np.float32)
    d_rows = {f: rng.normal(size=(BATCH, DIM)).astype(np.float32) for f in keys}
    given = (
        {f: jde.ids(x) for f, x in keys.items()},
        {"bags": jnp.asarray(factor)},
        {f: jnp.asarray(d) for f, d in d_rows.items()},
    )
    exact, stored, wanted = train(jde.Tables(tables), *given)
    mesh = jde.Tables(
        tables,
        mesh=mesh_of(DEVICES),
        exchange_dtype="bfloat16",
        exchange_pooled=pooled,
    )
    got, kept, updated = train(mesh, *given)

    rounded = np.asarray(exact["rows"]).astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(got["rows"], rounded)
    each = np.stack([stored["bags"][key].values for key in keys["bags"].reshape(-1)])
    terms = np.abs(each.reshape(BATCH, LENGTH, DIM) * factor[..., None]).sum(axis=1)
    error = np.abs(np.asarray(got["bags"]) - np.asarray(exact["bags"]))
    assert (error <= UNIT * terms + 1e-6).all() and error.max() > UNIT * 1e-2

    # The owner adds what every device has summed and rounded; where sums travel, what
    # it has multiplied the rounded gradient of each bag by.
    terms = {t: {key: np.zeros(DIM) for key in stored[t]} for t in stored}
    for device in range(DEVICES):
        sums = {t: {} for t in stored}
        for row in range(device * BATCH // DEVICES, (device + 1) * BATCH // DEVICES):
            _add(sums["rows"], keys["rows"][row], d_rows["rows"][row])
            for key, w in zip(keys["bags"][row], factor[row], strict=True):
                term = w * d_rows["bags"][row]
                if pooled == "sums":
                    terms["bags"][key] += np.abs(term)
                else:
                    _add(sums["bags"], key, term)
        for table, of_device in sums.items():
            for key, total in of_device.items():
                terms[table][key] += np.abs(total)
    off = 0.0
    for table, rows in wanted.items():
        assert updated[table].keys() == rows.keys() == kept[table].keys()
        for key, row in rows.items():
            # What is stored before the update has not been rounded.
            np.testing.assert_array_equal(
                kept[table][key].values, stored[table][key].values
            )
            error = np.abs(updated[table][key].values - row.values)
            assert (error <= RATE * UNIT * terms[table][key] + 1e-5).all()
            off = max(off, error.max())
    assert off > UNIT * 1e-2


def _add(sums: dict, key: int, gradient: np.ndarray) -> None:
    sums[key] = sums.get(key, 0) + gradient.astype(np.float64)
