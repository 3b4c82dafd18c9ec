# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Finds of many ids, most of whose rows are at home."""

import jax
import numpy as np
import pytest

import jax_dynemb as jde
from support import gradients
from tiered import ADAM, Both, batch

MANY = 40_000


@pytest.mark.parametrize(
    ("dtypes", "pooling"),
    [
        (("float32", "float32"), None),
        (("bfloat16", "float32"), None),
        (("float32", "float32"), "sum"),
    ],
)
def test_rows_of_a_large_find(platform, dtypes, pooling):
    """Three features of two tables of different dims; most rows are at home."""
    kinds = {"param_dtype": dtypes[0], "dtype": dtypes[1], "optimizer": ADAM}
    both = Both(
        jde.TableConfig(
            "a", 6, 512, feature_names=("a", "c"), pooling=pooling, **kinds
        ),
        jde.TableConfig("b", 72, 1024, pooling=pooling, **kinds),
    )
    dims, shape = {"a": 6, "b": 72, "c": 6}, (400,) if pooling is None else (200, 2)
    for seed in range(3):
        ids = {f: batch(400, seed + i).reshape(shape) for i, f in enumerate(dims)}
        d_rows = {f: gradients((shape[0], dim), seed) for f, dim in dims.items()}
        both.train(ids, d_rows)
    shape = (MANY // 4,) if pooling is None else (MANY // 8, 2)
    ids = {f: batch(MANY // 4 * 3, 9)[: MANY // 4].reshape(shape) for f in dims}
    ids["b"] = batch(MANY // 2, 10)
    ids["b"] = ids["b"] if pooling is None else ids["b"].reshape(-1, 2)
    ids["b"].flat[::7] = -1  # padding; ids from 900 on are in no table
    ids["c"].flat[::5] = 2000
    given = {f: jde.ids(x) for f, x in ids.items()}
    found = [
        jax.jit(coll.find)(state, given)[:2]
        for coll, state in zip(both.colls, both.states, strict=True)
    ]
    jax.tree.map(np.testing.assert_array_equal, *found)
    stats = both.colls[1].stats(both.states[1])
    assert stats["b/bypassed"] + stats["b/promoted"] > 0
    both.check()
