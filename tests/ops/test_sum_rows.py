# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Sums over numbered groups, in arrays of their own and in shared ones."""

import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde
from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.ops.layout import one_row_each
from jax_dynemb._src.ops.residual import FeatureGradient
from jax_dynemb._src.ops.row_views import RowView
from jax_dynemb._src.ops.sum_rows import sum_bags, sum_rows
from jax_dynemb._src.spec import TableSpec
from support import gradients


def some_groups(count: int, seed: int = 0):
    """Tables, their groups, rows of two features each, and what the sums should be."""
    rng = np.random.default_rng(seed)
    tables, groups, features, expected = [], [], [], []
    for number in rng.permutation(count):
        dim, size, ids = 1 + number % 3, 1 + 3 * number, 40
        table = TableSpec.of(jde.TableConfig(f"t{number}", dim, 256))
        want = np.full((size, dim), np.nan, np.float32)
        for name in ("a", "b"):
            group = rng.integers(-1, size, ids)
            rows = gradients((ids, dim), 2 * number + (name == "b"))  # sums are exact
            layout = one_row_each(f"{table.name}{name}", table.name, ids)
            slots = jnp.asarray(group, jnp.int32)
            features.append(
                FeatureGradient(
                    layout, jnp.asarray(rows), slots, slots, None, None, None
                )
            )
            for each in set(group.tolist()) - {-1}:
                want[each] = np.nan_to_num(want[each]) + rows[group == each].sum(axis=0)
        tables.append(table)
        groups.append(size)
        expected.append(want)
    return tables, groups, features, expected


def check(got, want):
    """Groups without rows have no sum."""
    there = ~np.isnan(want)
    np.testing.assert_array_equal(np.asarray(got)[there], want[there])


def test_more_tables_than_a_call_takes(platform):
    tables, groups, features, expected = some_groups(_ffi.constants()["max_tables"] + 5)
    for got, want in zip(sum_rows(tables, groups, features), expected, strict=True):
        check(got, want)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("count", [5, _ffi.constants()["max_tables"] + 5])
def test_sums_in_shared_arrays(platform, count, dtype):
    """Groups in strides of two arrays, which several calls go on with."""
    tables, groups, features, expected = some_groups(count, seed=1)
    shards, places, widths = 4, [], [0, 0]
    rooms = [-(-size // shards) for size in groups]
    for n, (table, room) in enumerate(zip(tables, rooms, strict=True)):
        places.append((n % 2, widths[n % 2], room))
        widths[n % 2] += -(-room * table.dim // 8) * 8
    shared = [
        RowView(array, dtype, shards * widths[array], begin, room, widths[array])
        for array, begin, room in places
    ]
    sums = sum_rows(tables, groups, features, shared)
    for table, where, array, want in zip(tables, shared, sums, expected, strict=True):
        assert array.dtype == dtype
        whole = np.asarray(array, np.float32).reshape(shards, -1)
        size = where.group * table.dim
        rows = whole[:, where.offset : where.offset + size].reshape(-1, table.dim)
        rounded = np.asarray(jnp.asarray(want, dtype), np.float32)
        check(rows[: len(want)], rounded)


def test_bags(platform):
    table = TableSpec.of(jde.TableConfig("t", 3, 256))
    rows = gradients((10, 3), 0)
    offsets = [0, 0, 4, 5, 5, 8]  # the last two rows are in no bag
    got = sum_bags(table, jnp.asarray(rows), jnp.asarray(offsets, jnp.int32))
    pairs = zip(offsets[:-1], offsets[1:], strict=True)
    np.testing.assert_array_equal(got, [rows[b:e].sum(axis=0) for b, e in pairs])


def one_feature(ids: int, groups: int, dim: int, seed: int):
    """A table, a feature of which a quarter goes to one group, and its order."""
    rng = np.random.default_rng(seed)
    group = rng.integers(-1, groups, ids)
    group[rng.random(ids) < 0.25] = groups // 2
    slots = jnp.asarray(group, jnp.int32)
    rows = jnp.asarray(rng.normal(size=(ids, dim)), jnp.float32)
    layout = one_row_each("f", "t", ids)
    feature = FeatureGradient(layout, rows, slots, slots, None, None, None)
    positions = np.argsort(group.astype(np.uint32), kind="stable").astype(np.int32)
    order = jnp.asarray(group[positions], jnp.int32), jnp.asarray(positions)
    return TableSpec.of(jde.TableConfig("t", dim, 256)), feature, order


@pytest.mark.parametrize("ids", [1, 900, 30_000, 300_000])
def test_a_given_order_changes_no_bit(platform, ids):
    groups = max(1, ids // 3)
    table, feature, order = one_feature(ids, groups, 8, seed=ids)
    (want,) = sum_rows([table], [groups], [feature])
    (got,) = sum_rows([table], [groups], [feature], order=order)
    there = np.unique(feature.slots)
    there = there[there >= 0]
    np.testing.assert_array_equal(np.asarray(got)[there], np.asarray(want)[there])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("dim", [20, 64, 128])
@pytest.mark.parametrize("ids", [200, 30_000, 300_000])
def test_sums_in_a_given_order(platform, ids, dim, dtype):
    """A GPU has kernels for these widths, which add in an order of their own."""
    groups = max(1, ids // 3)
    table, feature, order = one_feature(ids, groups, dim, seed=ids)
    got, again = (
        np.asarray(sums, np.float32)
        for _ in range(2)
        for sums in sum_rows([table], [groups], [feature], order=order, dtype=dtype)
    )
    slots, rows = np.asarray(feature.slots), np.asarray(feature.gradients, np.float64)
    sums, sizes = np.zeros((groups, dim)), np.zeros((groups, dim))
    np.add.at(sums, slots[slots >= 0], rows[slots >= 0])
    np.add.at(sizes, slots[slots >= 0], np.abs(rows[slots >= 0]))
    there = np.unique(slots[slots >= 0])
    error = 1e-6 * sizes + (np.abs(sums) / 256 if dtype == "bfloat16" else 0)
    assert np.all(np.abs(got[there] - sums[there]) <= error[there])
    np.testing.assert_array_equal(again[there], got[there])


@pytest.mark.parametrize("dim", [8, 64])
@pytest.mark.parametrize("ids", [900, 30_000, 300_000])
def test_any_order_is_harmless(platform, ids, dim):
    """Positions and groups that do not exist, and runs whose parts lie apart."""
    table, feature, _ = one_feature(ids, 50, dim, seed=1)
    rng = np.random.default_rng(2)
    some = rng.integers(-(2**31), 2**31, (2, ids))
    near = rng.integers(-2, 60, (2, ids))
    apart = np.repeat(rng.integers(0, 3, ids // 90), 90), rng.integers(0, ids, ids)
    for slots, positions in (some, near, apart):
        order = jnp.asarray(slots, jnp.int32), jnp.asarray(positions, jnp.int32)
        order = jnp.resize(order[0], ids), order[1]
        (sums,) = sum_rows([table], [50], [feature], order=order)
        assert sums.shape == (50, dim)
        assert np.asarray(sums) is not None
