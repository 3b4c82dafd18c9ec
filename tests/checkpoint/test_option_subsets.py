# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tables with any subset of options that add arrays restore from any other subset."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde

OPTIONS = {
    "tier": {"tier": jde.tiers.host(hbm_fraction=0.5)},
    "log": {"log_removed": 64},
    "admission": {"admission": jde.admission.Frequency(2, jde.admission.Sketch(1024))},
    "lfu": {"score_strategy": "lfu"},
}
SUBSETS = [
    subset
    for count in range(len(OPTIONS) + 1)
    for subset in itertools.combinations(OPTIONS, count)
]
IDS = {"t": jde.ids(np.arange(100))}
ROWS = np.arange(800, dtype=np.float32).reshape(100, 8)


def tables(subset, capacity):
    options = {k: v for name in subset for k, v in OPTIONS[name].items()}
    sgd = jde.optim.adagrad(0.1)
    return jde.Tables([jde.TableConfig("t", 8, capacity, optimizer=sgd, **options)])


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Saves a table of each subset; returns the folder by subset."""
    folders = {}
    for subset in ((), tuple(OPTIONS)):
        coll = tables(subset, 1024)
        state = coll.insert(coll.init(0), IDS, {"t": jnp.asarray(ROWS)})
        folders[subset] = tmp_path_factory.mktemp("saved")
        jde.checkpoint.save(folders[subset], 1, state, tables=coll)
    return folders


@pytest.mark.parametrize("target", SUBSETS, ids="-".join)
@pytest.mark.parametrize("source", [(), tuple(OPTIONS)], ids=["plain", "all"])
def test_rows_come_back(saved, source, target):
    coll = tables(target, 4096)  # so rows are inserted, where the schemas differ or not
    state = coll.init(1)
    back = jde.checkpoint.restore(
        saved[source], state, tables=coll, strict=False, allow_drop=True
    )
    rows, found, *_ = coll.find(back.tree, IDS)
    assert np.asarray(found["t"]).all()
    np.testing.assert_array_equal(rows["t"], ROWS)
