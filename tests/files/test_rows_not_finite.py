# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Copies of a table have its rows, also those that are not finite.

A row of 16 bits overflows. An update or an insertion of a program skips what is not
finite. A copy without the row would return its initial values instead.
"""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde

LARGEST = 65504.0  # of float16
CONFIG = jde.TableConfig(
    "t",
    dim=2,
    capacity=256,
    param_dtype="float16",
    initializer=jde.initializers.constant(LARGEST),
    optimizer=jde.optim.sgd(1.0),
    log_removed=256,
)
COLL = jde.Tables([CONFIG])
LARGER = jde.Tables([dataclasses.replace(CONFIG, capacity=1024)])
IDS = {"t": jde.ids(np.arange(20))}
INFINITE = np.arange(20) < 5


def trained(state):
    """The first five rows overflow."""
    rows, residual, state = COLL.lookup(state, IDS)
    d_rows = jnp.where(INFINITE[:, None], -rows["t"], 0)
    return COLL.apply_gradients(state, residual, {"t": d_rows})


def restored(folder, state):
    jde.checkpoint.save(folder, 1, state, tables=COLL)
    return jde.checkpoint.restore(folder, LARGER.init(1), tables=LARGER).tree


def from_safetensors(folder, state):
    jde.export.safetensors(folder, COLL, state)
    return jde.import_.safetensors(folder, LARGER).state


def from_dynamicemb(folder, state):
    jde.export.dynamicemb(folder, COLL, state)
    return jde.import_.dynamicemb(folder, LARGER).state


def from_store(folder, state):
    stores = {"t": jde.stores.Memory(CONFIG)}
    jde.export.to_store(COLL, state, stores)
    return jde.import_.from_store(LARGER, stores).state


def with_a_delta(folder, state):
    deltas, _ = COLL.export_delta(state)
    return LARGER.apply_delta(LARGER.init(1), "t", deltas["t"])


@pytest.mark.parametrize(
    "copy",
    [restored, from_safetensors, from_dynamicemb, from_store, with_a_delta],
    ids=lambda copy: copy.__name__,
)
def test_a_copy_has_all_rows(tmp_path, copy):
    state = copy(tmp_path, trained(COLL.init(0)))
    rows, found, _ = LARGER.find(state, IDS)
    assert np.asarray(found["t"]).all()
    expected = np.where(INFINITE, np.inf, LARGEST)
    np.testing.assert_array_equal(rows["t"], np.stack([expected] * 2, axis=1))


def test_rows_come_back_from_a_store():
    store = jde.stores.Memory(CONFIG)
    keys, state = np.arange(20), trained(COLL.init(0))
    state, moved = jde.lifecycle.evict_to_store(COLL, state, "t", store, keys=keys)
    assert moved.rows == 20
    state, moved = jde.lifecycle.fetch_from_store(COLL, state, "t", store, keys)
    assert moved.rows == 20
    rows = COLL.find(state, IDS)[0]["t"]
    np.testing.assert_array_equal(np.isinf(rows[:, 0]), INFINITE)


def test_a_subscriber_serves_them(tmp_path):
    state = COLL.lookup(COLL.init(0), {"t": jde.ids(np.arange(100, 110))})[2]
    with jde.serving.Publisher(COLL, tmp_path) as publisher:
        publisher.step(state)
        with jde.serving.Subscriber(tmp_path, COLL, interval=0) as served:
            publisher.flush(trained(state))
            assert served.update() == 1
            rows = served.find(IDS)["t"]
    np.testing.assert_array_equal(np.isinf(rows[:, 0]), INFINITE)
