# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Any ids, any bags, any mesh: the oracle knows nothing of devices."""

import functools
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import jax_dynemb as jde
from meshes import keys_of_shard, mesh_of
from support import HostJagged, Twins

TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}
# No batch but that of one device divides, so the last devices have little or nothing.
SIZES = {1: 5, 2: 7, 4: 9, 8: 3}
LENGTH = 3


@functools.cache
def twins_on(devices: int, pooled: str) -> Twins:
    """Rows, padded bags and jagged bags, with an update of each kind."""
    common: dict[str, Any] = {"capacity": 1024, "dim": 3}
    return Twins(
        jde.TableConfig(name="rows", optimizer=jde.optim.adam(0.1), **common),
        jde.TableConfig(
            name="sum", pooling="sum", optimizer=jde.optim.adagrad(0.1), **common
        ),
        jde.TableConfig(
            name="mean",
            pooling="mean",
            score_strategy="lfu",
            optimizer=jde.optim.rowwise_adagrad(0.1),
            **common,
        ),
        mesh=mesh_of(devices),
        exchange_pooled=pooled,
    )


@st.composite
def vocabularies(draw: st.DrawFn) -> np.ndarray:
    """Few ids or many; of all shards, of one, or of all but one."""
    shard, count = draw(st.integers(0, 7)), draw(st.sampled_from([1, 3, 40]))
    kind = draw(st.sampled_from(["all", "one shard", "an empty shard", "padding"]))
    if kind == "padding":
        return np.array([-1])
    if kind == "all":
        return np.arange(count)
    if kind == "one shard":
        return np.array(keys_of_shard(shard, 8, count))
    others = [keys_of_shard(s, 8, count) for s in range(8) if s != shard]
    return np.concatenate(others)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("devices", "pooled"),
    [(1, "rows"), (2, "rows"), (4, "rows"), (8, "rows"), (2, "sums"), (8, "sums")],
)
@settings(max_examples=12, phases=[Phase.generate])
@given(
    vocabulary=vocabularies(),
    padded=st.floats(0, 1),
    data=st.data(),
    seed=st.integers(0, 2**31),
)
def test_as_without_a_mesh(devices, pooled, vocabulary, padded, data, seed):
    twins, size = twins_on(devices, pooled), SIZES[devices]
    rng = np.random.default_rng(seed)

    def ids(*shape: int) -> np.ndarray:
        drawn = rng.choice(vocabulary, shape)
        return np.where(rng.random(shape) < padded, -1, drawn)

    each = st.integers(0, LENGTH)  # empty bags among them, or nothing else
    counts = data.draw(st.lists(each, min_size=size, max_size=size))
    batch = {
        "rows": ids(size),
        "sum": ids(size, LENGTH),
        "mean": HostJagged.of([list(ids(n)) for n in counts], capacity=LENGTH * size),
    }
    weights = {"sum": rng.normal(size=(size, LENGTH))}
    twins.train(batch, weights, seed=seed)
    twins.find(batch, weights)
    twins.check(TOLERANCE)
