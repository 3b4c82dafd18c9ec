# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Rows and gradients in arrays of several features: the same bits as in their own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde
from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.ops import find, lookup
from jax_dynemb._src.ops import update_rows as _update
from jax_dynemb._src.ops.layout import prepare
from jax_dynemb._src.ops.residual import FeatureGradient
from jax_dynemb._src.ops.row_views import RowView
from jax_dynemb._src.spec import TableSpec
from support import gradients

GROUPS = 4  # as if for so many devices
LIMIT = _ffi.constants()["max_tables"]


def tables_of(count: int, **options) -> list[jde.TableConfig]:
    """Vectors and odd dims, copied and pooled, in two dtypes."""
    common = {"optimizer": jde.optim.adam(0.1), "score_strategy": "step"} | options
    return [
        jde.TableConfig(
            f"t{n}",
            dim=(8, 3, 12)[n % 3],
            capacity=256,
            pooling=(None, "sum", "mean")[n % 3],
            dtype=("float32", "bfloat16")[n % 2],
            **common,
        )
        for n in range(count)
    ]


def inputs_of(tables: list[TableSpec]) -> list:
    """Bags of three where rows are pooled, of any length in some; a weight in some."""
    inputs = []
    for n, table in enumerate(tables):
        rng = np.random.default_rng(n)
        ids: object = jde.ids(rng.integers(-1, 90, (24, 3) if n % 3 else 24))
        weights = None
        if n % 6 == 1:
            lengths = rng.integers(0, 4, 24)
            ids = jde.Jagged(jde.ids(rng.integers(0, 90, 72)), jnp.asarray(lengths))
        elif n % 6 == 5:
            weights = jnp.asarray(rng.random((24, 3)), jnp.float32)
        inputs.append(prepare(table, table.name, ids, weights))
    return inputs


def views_of(tables: list[TableSpec], waves: int) -> list[RowView]:
    """Six bags a group; those of a dtype, and of a wave, in one array."""
    group = 24 // GROUPS
    arrays, offsets, widths = [], [], {}
    for n, table in enumerate(tables):
        key = (table.dtype, n * waves // len(tables))
        unit = 16 // jnp.dtype(table.dtype).itemsize
        arrays.append(key)
        offsets.append(widths.get(key, 0))
        widths[key] = offsets[-1] + -(-group * table.dim // unit) * unit
    numbers = {key: number for number, key in enumerate(widths)}
    return [
        RowView(
            numbers[k], k[0], GROUPS * widths[k], begin, group, widths[k], wave=k[1]
        )
        for k, begin in zip(arrays, offsets, strict=True)
    ]


def rows_in(array: jax.Array, view: RowView, dim: int) -> np.ndarray:
    parts = np.asarray(array).reshape(GROUPS, -1)
    size = view.group * dim
    return parts[:, view.offset : view.offset + size].reshape(-1, dim)


def into(tables, views, rows) -> dict[int, jax.Array]:
    """Arrays that hold these rows, and nothing else that a call may read."""
    arrays = {p.array: np.full(p.size, np.nan, p.dtype) for p in views}
    for table, view, each in zip(tables, views, rows, strict=True):
        parts = arrays[view.array].reshape(GROUPS, -1)
        size = view.group * table.dim
        here = np.asarray(each).reshape(GROUPS, size)
        parts[:, view.offset : view.offset + size] = here
    return {number: jnp.asarray(array) for number, array in arrays.items()}


@pytest.mark.slow
@pytest.mark.parametrize(("count", "waves"), [(7, 1), (7, 2), (LIMIT + 4, 1)])
def test_the_same_bits_in_shared_arrays(platform, count, waves):
    configs = tables_of(count)
    coll = jde.Tables(configs, share_arrays=False)
    tables = [TableSpec.of(config) for config in configs]
    inputs, views = inputs_of(tables), views_of(tables, waves)
    scores = jnp.zeros((count, 2), jnp.uint32)
    hyper = jnp.tile(jnp.array([[0.1, 1e-8, 0.9, 0.999, 0.0]], jnp.float32), (count, 1))

    @jax.jit
    def alone(state):
        looked, state, _ = lookup(tables, state, inputs, scores)
        found, state = find(tables, state, inputs)
        return looked, found, state

    @jax.jit
    def together(state):
        looked, state, _ = lookup(tables, state, inputs, scores, views)
        found, state = find(tables, state, inputs, views)
        return looked, found, state

    own, shared = alone(coll.init(0)), together(coll.init(0))
    for mine, ours in zip(own[:2], shared[:2], strict=True):
        for table, view, x, y in zip(tables, views, mine, ours, strict=True):
            got = rows_in(y["rows"], view, table.dim)
            np.testing.assert_array_equal(got, np.asarray(x["rows"]))
            for name in x.keys() & {"scale", "found"}:
                np.testing.assert_array_equal(x[name], y[name])

    d_rows = [gradients((24, t.dim), n).astype(t.dtype) for n, t in enumerate(tables)]
    arrays = into(tables, views, d_rows)

    def update(where):
        """Jitted, for gradients in these views."""

        def run(state, looked, given):
            features = [
                FeatureGradient(
                    *(layout, d, x.ids, o["slots"]),
                    *(x.offsets, x.weights, o.get("scale"), view),
                )
                for (layout, x), o, d, view in zip(
                    inputs, looked, given, where, strict=True
                )
            ]
            return _update.update(tables, state, features, hyper)

        return jax.jit(run)

    in_own = [jnp.asarray(d) for d in d_rows]
    in_shared = [arrays[view.array] for view in views]
    mine = update([None] * count)(own[2], own[0], in_own)
    ours = update(views)(shared[2], shared[0], in_shared)
    for table in tables:
        one, other = (
            {
                int(key): row
                for chunk in coll.export(state, table.name)
                for key, row in zip(chunk.keys, chunk.rows, strict=True)
            }
            for state in (mine, ours)
        )
        assert one.keys() == other.keys() and len(one) > 10
        for key, row in one.items():
            np.testing.assert_array_equal(row, other[key])
