# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""frozen(dtype=): packed rows beside NumPy, and lookups of the rows they stand for."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import jax_dynemb as jde
import packed_rows
from jax_dynemb._src.ops import pack_rows
from packed_rows import FORMATS

DIMS = (1, 3, 16, 130, 1024)
each_format = pytest.mark.parametrize("row_format", FORMATS)
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


def check_bytes(rows: np.ndarray, row_format: str, exactly: bool) -> None:
    data = np.asarray(pack_rows(rows, row_format=row_format))
    dim = rows.shape[1]
    assert data.dtype == np.uint8
    assert data.shape == (len(rows), packed_rows.width(row_format, dim))
    back = packed_rows.read(data, row_format, dim)
    assert np.isfinite(back).all()
    off = np.abs(back.astype(np.float64) - rows)
    assert (off <= packed_rows.largest_error(rows, row_format)).all()
    if not exactly:
        return
    # XLA reads subnormal numbers as zeros on a CPU; NumPy does not.
    exact = (np.abs(rows).max(axis=1) == 0) | (np.abs(rows).max(axis=1) > 1e-30)
    scale, codes = packed_rows.quantized(rows[exact], row_format)
    given = data[exact, :4].copy().view(np.float32)[:, 0]
    np.testing.assert_array_equal(given, scale)
    np.testing.assert_array_equal(back[exact], codes * scale[:, None])


@each_format
@pytest.mark.parametrize("dim", DIMS)
def test_bytes_are_those_of_numpy_within_the_bound(row_format, dim, platform):
    check_bytes(packed_rows.hard_rows(dim, 70, dim), row_format, platform == "cpu")
    mild = np.random.default_rng(dim).normal(0, 0.02, (300, dim)).astype(np.float32)
    check_bytes(mild, row_format, platform == "cpu")


@each_format
@given(rows=hnp.arrays(np.float32, (4, 5), elements=FLOATS))
def test_any_finite_row_keeps_to_the_bound(row_format, rows):
    check_bytes(rows, row_format, exactly=True)


@each_format
def test_zeros_have_the_scale_one(row_format):
    rows = np.array([[0, 0], [1e-40, -1e-40], [-0.0, 0]], np.float32)
    data = np.asarray(pack_rows(rows, row_format=row_format))
    assert (data[:, :4].copy().view(np.float32) == 1).all()
    assert (packed_rows.read(data, row_format, 2) == 0).all()


@each_format
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_not_finite_reads_as_nan(row_format, bad):
    rows = np.array([[1, bad, 2], [1, 0.5, 2]], np.float32)
    back = packed_rows.read(np.asarray(pack_rows(rows, row_format)), row_format, 3)
    assert np.isnan(back[0]).all() and np.isfinite(back[1]).all()


# ---- lookups -------------------------------------------------------------------------

IDS = {
    "mean": np.array(
        [[1, 2, 3, -1], [4, 4, 900, 5], [-1, -1, -1, -1], [6, -1, 901, 902]]
    ),
    "sum": np.arange(40).reshape(10, 4) * 3 - 1,
    "one": np.array([7, -1, 905, 8, 7]),
    "also": np.array([[9, 907], [10, 7]]),
}


@functools.cache
def trained(dim: int, dtype: str = "float32", param_dtype: str = "float32"):
    """Tables of all poolings, "one" and "also" of one; keys below 200 are stored."""
    options = {
        "dtype": dtype,
        "param_dtype": param_dtype,
        "initializer": jde.initializers.normal(),
        "eval_initializer": jde.initializers.uniform(-0.5, 0.5),
    }
    coll = jde.Tables(
        [
            jde.TableConfig("mean", dim, 1000, pooling="mean", **options),
            jde.TableConfig("sum", dim, 500, pooling="sum", **options),
            jde.TableConfig("rows", dim, 700, feature_names=("one", "also"), **options),
        ]
    )
    keys = jde.ids(np.arange(200))
    batch = {"mean": keys, "sum": keys, "one": keys}
    return coll, coll.lookup(coll.init(seed=1), batch)[2]


@functools.cache
def dequantized(
    dim: int, row_format: str, dtype: str
) -> dict[str, dict[int, np.ndarray]]:
    """Returns what each row says once it is packed, by table and id."""
    coll, state = trained(dim, dtype)
    result = {}
    for name in coll.tables:
        ((chunk),) = coll.export(state, name)
        rows = np.asarray(chunk.rows)
        scale, codes = packed_rows.quantized(rows, row_format)
        rows = codes.astype(np.float64) * scale[:, None].astype(np.float64)
        result[name] = dict(zip(np.asarray(chunk.keys).tolist(), rows, strict=True))
    return result


def expected(
    dim, row_format, dtype, unknown, ids, weights=None
) -> dict[str, np.ndarray]:
    """Rows and bags in float64; ``unknown``: by feature and id, rows not stored."""
    coll, _ = trained(dim, dtype)
    stored = dequantized(dim, row_format, dtype)
    result = {}
    for feature, some in ids.items():
        config = coll.config_of(feature)
        rows = np.zeros((*some.shape, dim))
        for at in np.ndindex(some.shape):
            key = int(some[at])
            if key != -1:
                rows[at] = stored[config.name].get(key, unknown[feature].get(key))
        if weights is not None and config.pooling:
            rows *= weights[feature][..., None]
        if config.pooling:
            rows = rows.sum(axis=-2)
        if config.pooling == "mean":
            rows /= np.maximum((some != -1).sum(axis=-1), 1)[..., None]
        result[feature] = rows
    return result


def unknown_rows(coll, state, ids) -> dict[str, dict[int, np.ndarray]]:
    """Reads what ids that are not stored give, as before packing."""
    result = {}
    for feature, some in ids.items():
        table = coll.config_of(feature)
        plain = [dataclasses.replace(t, pooling=None) for t in coll.tables.values()]
        keys = np.unique(some[some >= 200])
        rows, found, _ = coll.with_tables(plain).find(state, {feature: jde.ids(keys)})
        assert table.name and not np.asarray(found[feature]).any()
        pairs = zip(keys.tolist(), np.asarray(rows[feature], np.float64), strict=True)
        result[feature] = dict(pairs)
    return result


def packed_tables(coll, state, row_format, platform):
    """Packs on a CPU, whose bytes are NumPy's: a GPU's division may differ in a bit."""
    with jax.default_device(jax.devices("cpu")[0]):
        here = jax.device_put(state, jax.devices("cpu")[0])
        served, tables = jde.export.frozen(coll, here, dtype=row_format)
    return served, jax.device_put(tables, jax.devices(platform)[0])


def words(ids: dict[str, np.ndarray]) -> dict[str, jax.Array]:
    return {name: jde.ids(some) for name, some in ids.items()}


def assert_close(rows, wanted, dtype="float32") -> None:
    tolerance = 2e-6 if dtype == "float32" else 2**-8
    for name, each in wanted.items():
        given = np.asarray(rows[name], np.float64)
        limit = tolerance * max(np.abs(each).max(), 1e-30)
        np.testing.assert_allclose(given, each, rtol=tolerance, atol=limit)


@each_format
@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_lookups_read_the_rows_that_are_stored(row_format, dim, dtype, platform):
    coll, state = trained(dim, dtype)
    state = jax.device_put(state, jax.devices(platform)[0])
    served, tables = packed_tables(coll, state, row_format, platform)
    rows, found, _ = jax.jit(served.find)(tables, words(IDS))
    unknown = unknown_rows(coll, state, IDS)
    assert_close(rows, expected(dim, row_format, dtype, unknown, IDS), dtype)
    for name, some in IDS.items():
        assert rows[name].dtype == dtype
        np.testing.assert_array_equal(found[name], (some >= 0) & (some < 200))


@each_format
@pytest.mark.parametrize("dim", [3, 128])
def test_weights_multiply_the_rows(row_format, dim, platform):
    coll, state = trained(dim)
    state = jax.device_put(state, jax.devices(platform)[0])
    served, tables = packed_tables(coll, state, row_format, platform)
    rng = np.random.default_rng(0)
    ids = {name: IDS[name] for name in ("mean", "sum")}
    weights = {n: rng.normal(size=x.shape).astype(np.float32) for n, x in ids.items()}
    rows, _, _ = jax.jit(served.find)(tables, words(ids), weights)
    unknown = unknown_rows(coll, state, ids)
    assert_close(rows, expected(dim, row_format, "float32", unknown, ids, weights))


@each_format
@pytest.mark.parametrize("dim", [5, 64])
def test_bags_of_any_length(row_format, dim, platform):
    """Lengths from 0 to more than a warp, or the writer of a CPU, takes at once."""
    coll, state = trained(dim)
    state = jax.device_put(state, jax.devices(platform)[0])
    served, tables = packed_tables(coll, state, row_format, platform)
    lengths = np.array([0, 1, 33, 200, 5, 0, 40, 2], np.int32)
    rng = np.random.default_rng(1)
    flat = rng.integers(-1, 230, lengths.sum() + 9)
    jagged = jde.Jagged(jde.ids(flat), jnp.asarray(lengths))
    given = {"mean": jagged, "sum": jagged}
    rows, _, _ = jax.jit(served.find)(tables, given)
    unknown = unknown_rows(coll, state, {name: flat for name in given})
    starts = np.concatenate([[0], np.cumsum(lengths)])
    for b, (begin, end) in enumerate(zip(starts, starts[1:], strict=False)):
        one = {name: flat[None, begin:end] for name in given}
        wanted = expected(dim, row_format, "float32", unknown, one)
        assert_close({name: rows[name][b : b + 1] for name in given}, wanted)


@pytest.mark.parametrize("row_format", FORMATS)
def test_unknown_ids_read_what_bfloat16_tables_draw(row_format, platform):
    """Initial rows are rounded to the dtype of the rows before they were packed."""
    coll, state = trained(8, "float32", "bfloat16")
    state = jax.device_put(state, jax.devices(platform)[0])
    served, tables = jde.export.frozen(coll, state, dtype=row_format)
    ids = {"one": jde.ids(np.arange(300, 340))}
    ours, _, _ = served.find(tables, ids)
    wanted, _, _ = coll.find(state, ids)
    np.testing.assert_array_equal(ours["one"], wanted["one"])


@each_format
@pytest.mark.parametrize("dim", [4, 6, 17])
def test_any_bytes_are_read_as_they_are(row_format, dim, platform):
    """Scales of any bits too: they decide what is read, never where."""
    coll, state = trained(dim)
    state = jax.device_put(state, jax.devices(platform)[0])
    served, tables = jde.export.frozen(coll, state, dtype=row_format)
    (name,) = tables
    shape = tables[name].values.shape
    rng = np.random.default_rng(3)
    data = rng.integers(0, 256, shape, np.uint8)
    scale = 2.0 ** rng.integers(-60, 60, len(data)) * rng.choice([-1, 1.25], len(data))
    scale[::3] = rng.choice([np.nan, np.inf, -np.inf, 1e-42], len(scale[::3]))
    data[:, :4] = scale.astype(np.float32)[:, None].view(np.uint8)
    values = jax.device_put(jnp.asarray(data), jax.devices(platform)[0])
    hostile = {name: dataclasses.replace(tables[name], values=values)}
    rows, found, _ = served.find(hostile, {"one": jde.ids(np.arange(200))})
    assert np.asarray(found["one"]).all()
    # Zeros have no sign here; products of the least scale may be flushed to zero.
    possible = packed_rows.read(data, row_format, dim)
    ours = {(row + 0.0).tobytes() for row in possible}
    got = np.asarray(rows["one"])
    got = got[np.isfinite(got).all(axis=1) & (np.abs(got).max(axis=1) > 1e-30)]
    assert len(got) > 100 and all((row + 0.0).tobytes() in ours for row in got)


# ---- what else there is --------------------------------------------------------------


@pytest.fixture(scope="module")
def packed():
    coll, state = trained(16)
    return coll, state, *jde.export.frozen(coll, state, dtype="int8")


def test_only_find_reads_them(packed, tmp_path):
    coll, state, _, _ = packed
    ids = {"one": jde.ids(np.arange(5))}
    rows, residual, state = coll.lookup(state, ids)
    served, tables = jde.export.frozen(coll, state, dtype="int8")
    one = {"rows": jnp.zeros(1, jnp.int32)}
    calls = {
        "lookup": lambda: served.lookup(tables, ids),
        "apply_gradients": lambda: served.apply_gradients(tables, residual, rows),
        "reduce_gradients": lambda: served.reduce_gradients(tables, residual, rows),
        "gather": lambda: served.gather(tables, one),
        "scatter": lambda: served.scatter(
            tables, one, {"rows": {"values": jnp.zeros((1, 16))}}
        ),
        "insert": lambda: served.insert(
            tables, {"rows": jde.ids(np.arange(2))}, {"rows": jnp.zeros((2, 16))}
        ),
        "erase": lambda: served.erase(tables, {"rows": jde.ids(np.arange(2))}),
        "clear": lambda: served.clear(tables),
        "export": lambda: list(served.export(tables, "rows")),
        "grow": lambda: served.grow(tables, {"rows": 100_000}),
        "set_score": lambda: served.set_score(tables, {"rows": 10_000}),
        "frozen": lambda: jde.export.frozen(served, tables, dtype="int8"),
        "safetensors": lambda: jde.export.safetensors(
            tmp_path / "s", served, tables, default_row=0.0
        ),
        "save": lambda: jde.checkpoint.save(tmp_path / "c", 1, tables, tables=served),
    }
    for name, call in calls.items():
        with pytest.raises(ValueError, match=r"only find reads.*jde\.export\.frozen"):
            call()
            raise AssertionError(name)
    assert served.stats(tables)["rows/rows"] == 200


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "uint8", "int2", 8, "float8"])
def test_other_dtypes_are_refused(packed, dtype):
    coll, state, _, _ = packed
    with pytest.raises(ValueError, match="dtype must be one of"):
        jde.export.frozen(coll, state, dtype=dtype)
    with pytest.raises(ValueError, match="row_format must be one of"):
        jde.TableConfig("t", 4, 100, row_format=dtype)


def test_dtypes_may_be_given_as_objects(packed):
    coll, state, served, _ = packed
    for dtype in (jnp.int8, np.dtype(np.int8), "int8"):
        assert jde.export.frozen(coll, state, dtype=dtype)[0] == served
    for dtype in (jnp.float8_e4m3fn, jnp.int4):
        jde.export.frozen(coll, state, dtype=dtype)


def test_rows_of_another_width_are_refused(packed):
    _, _, served, tables = packed
    (name,) = tables
    wrong = dataclasses.replace(tables[name], values=tables[name].values[:, :-4])
    with pytest.raises(ValueError, match="'values' is uint8"):
        served.find({name: wrong}, {"one": jde.ids(np.arange(5))})


@each_format
def test_bytes_of_a_table(row_format):
    coll, state = trained(130)
    before = dict(state)
    _, tables = jde.export.frozen(coll, state, dtype=row_format)
    for name, arrays in tables.items():
        assert arrays.values.shape[1] == packed_rows.width(row_format, 130)
        assert not arrays.optimizer
        assert state[name].index is arrays.index
        assert before[name].values is state[name].values  # untouched, not donated


def test_an_empty_table_has_the_arrays_of_a_packed_one(packed):
    """Shapes that a serving process restores saved arrays into."""
    _, _, served, tables = packed
    shapes = jax.tree.map(lambda x: (x.shape, x.dtype), tables)
    assert shapes == jax.tree.map(lambda x: (x.shape, x.dtype), served.init(seed=0))


def test_batches_and_bags_may_be_empty(packed):
    _, _, served, tables = packed
    ids = {
        "one": jde.ids(np.zeros(0, np.int64)),
        "mean": jde.ids(np.zeros((3, 0), int)),
    }
    rows, _, _ = jax.jit(served.find)(tables, ids)
    assert rows["one"].shape == (0, 16)
    np.testing.assert_array_equal(rows["mean"], np.zeros((3, 16)))


def test_many_tables_take_several_calls():
    tables = [jde.TableConfig(f"t{n}", 8, 128) for n in range(70)]
    coll = jde.Tables(tables)
    ids = {t.name: jde.ids(np.arange(n, n + 5)) for n, t in enumerate(tables)}
    rows, _, state = coll.lookup(coll.init(seed=0), ids)
    served, packed = jde.export.frozen(coll, state, dtype="int8")
    ours, _, _ = jax.jit(served.find)(packed, ids)
    for name, each in rows.items():
        bound = packed_rows.largest_error(np.asarray(each), "int8")
        assert (np.abs(np.asarray(ours[name], np.float64) - each) <= bound).all()
