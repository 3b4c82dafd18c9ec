# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Sums over numbered groups, of more tables than one call of a kernel takes."""

import jax.numpy as jnp
import numpy as np

import jax_dynemb as jde
from jax_dynemb import _ffi
from jax_dynemb.ops._layout import one_row_each
from jax_dynemb.ops._residual import FeatureGradient
from jax_dynemb.ops._sum_rows import sum_gradients
from support import gradients


def test_more_tables_than_a_call_takes(platform):
    count = _ffi.constants()["max_tables"] + 5
    rng = np.random.default_rng(0)
    tables, keys, features, expected = [], [], [], []
    for number in rng.permutation(count):
        dim, groups, ids = 1 + number % 3, 1 + 3 * number, 40
        table = jde.TableConfig(f"t{number}", dim, 256)
        names = rng.choice(2**60, groups, replace=False)
        group = rng.integers(-1, groups, ids)
        rows = gradients((ids, dim), number)  # their sums are exact
        layout = one_row_each(table.name, table.name, ids)
        given = jde.ids(np.where(group < 0, -1, names[group]))
        slots = jnp.asarray(group, jnp.int32)
        tables.append(table)
        keys.append(jde.ids(names))
        features.append(
            FeatureGradient(layout, jnp.asarray(rows), given, slots, None, None, None)
        )
        want = np.zeros((ids, dim), np.float32)
        for each in set(group.tolist()) - {-1}:
            mine = group == each
            want[np.argmax(mine)] = rows[mine].sum(axis=0)
        expected.append(want)
    sums = sum_gradients(tables, keys, features)
    for got, want in zip(sums, expected, strict=True):
        np.testing.assert_array_equal(got, want)
