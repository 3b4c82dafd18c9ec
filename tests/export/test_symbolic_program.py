# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""jde.export.program with batches of any size; Tables.find is what it must equal."""

import json

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde
from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.ops.sizes import is_positive, largest
from served import compiled, serve

pytest.importorskip("flatbuffers", reason="jax.export needs it to write bytes")

KEYS = np.arange(1, 100) * 10_007
BOUND = 64


def trained(tables: list[jde.TableConfig]) -> tuple:
    """Tables, their state with the keys in each, and what serves them."""
    coll = jde.Tables(tables)
    narrow = {t.name for t in tables if t.key_dtype == "int32"}
    ids = {
        t.feature_names[0]: jnp.asarray(KEYS, jnp.int32)
        if t.name in narrow
        else jde.ids(KEYS)
        for t in tables
    }
    _, _, state = coll.lookup(coll.init(seed=3), ids)
    return coll, state, *jde.export.frozen(coll, state)


def some_ids(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Present, unknown and padding ones."""
    return rng.choice(np.concatenate([KEYS, KEYS + 1, [-1, -1]]), shape)


def one_table(**options) -> tuple:
    return trained([jde.TableConfig("t", 4, 500, **options)])


def looks_up(served: jde.Tables, feature: str = "t"):
    def look_up(tables, ids):
        rows, found, _ = served.find(tables, {feature: ids})
        return rows[feature], found[feature]

    return look_up


def assert_same(answer, expected) -> None:
    assert not isinstance(answer, str), answer
    for given, wanted in zip(answer, jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(given, wanted)


# ---- a fresh process -----------------------------------------------------------------

MANY = [
    jde.TableConfig("mean", 4, 500, pooling="mean"),
    jde.TableConfig("sum", 8, 500, pooling="sum", feature_names=("fixed", "bags")),
    jde.TableConfig(
        "narrow",
        3,
        500,
        key_dtype="int32",
        eval_initializer=jde.initializers.normal(),
    ),
    jde.TableConfig("flat", 5, 500, feature_names=("each", "ragged")),
]
SHAPES = {
    "ids": {
        "mean": "b, ...",
        "fixed": "b, ...",
        "bags": jde.Jagged("n, ...", "k"),
        "narrow": "c, ...",
        "each": "b, ...",
        "ragged": jde.Jagged("n, ...", "k"),
    },
    "weights": {"fixed": "b, ..."},
}


def many_ids(seed: int, b: int, c: int, n: int, k: int) -> dict:
    """A batch of every feature in ``MANY``; c may be as large as b, or not."""
    rng = np.random.default_rng(seed)
    lengths = np.bincount(rng.integers(0, k, max(0, n - 2)), minlength=k)
    lengths = jnp.asarray(lengths, jnp.int32)
    return {
        "ids": {
            "mean": jde.ids(some_ids(rng, b, 3)),
            "fixed": jde.ids(some_ids(rng, b, 2)),
            "bags": jde.Jagged(jde.ids(some_ids(rng, n)), lengths),
            "narrow": jnp.asarray(some_ids(rng, c, 2, 2), jnp.int32),
            "each": jde.ids(some_ids(rng, b)),
            "ragged": jde.Jagged(jde.ids(some_ids(rng, n)), lengths),
        },
        "weights": {"fixed": jnp.asarray(rng.random((b, 2)), jnp.float32)},
    }


@pytest.mark.slow
def test_a_fresh_process_takes_batches_of_any_size(tmp_path):
    coll, state, served, tables = trained(MANY)

    def look_up(tables, batch):
        return served.find(tables, batch["ids"], batch["weights"])[:2]

    sizes = [(1, 1, 1, 1), (7, 5, 30, 9), (BOUND, 20, 300, 40), (7, 5, 30, 9)]
    batches = [many_ids(n, *each) for n, each in enumerate(sizes)]
    data = jde.export.program(
        look_up,
        tables,
        batches[1],
        shapes=(None, SHAPES),
        constraints=[f"b <= {BOUND}", "c <= 20", "n <= 300", "k <= 40"],
        platforms=("cpu", "cuda"),
    )
    above = many_ids(8, BOUND + 1, 1, 1, 1)
    nothing = many_ids(9, 0, 1, 1, 1)
    *answers, error, empty = serve(tmp_path, data, tables, [*batches, above, nothing])
    for batch, answer in zip(batches, answers, strict=True):
        expected = coll.find(state, batch["ids"], batch["weights"])[:2]
        assert_same(answer, expected)
    assert f"constraint b <= {BOUND}" in error
    assert f"'b' = {BOUND + 1}" in error
    assert "Expected value >= 1 for dimension variable 'b'" in empty
    assert compiled(tmp_path) == len(set(sizes))


# ---- what a dimension may be ---------------------------------------------------------


@pytest.mark.parametrize("pooling", [None, "sum"])
def test_a_dimension_of_one_less_may_be_empty(pooling):
    coll, state, served, tables = one_table(pooling=pooling)
    ids = jde.ids(some_ids(np.random.default_rng(0), 5, 3))
    data = jde.export.program(
        looks_up(served),
        tables,
        ids,
        shapes=(None, "b - 1, ..."),
        constraints=["b <= 6"],
    )
    call = jde.export.load_program(data).call
    for size in (0, 1, 5):
        rows, found, _ = coll.find(state, {"t": ids[:size]})
        assert_same(jax.tree.leaves(call(tables, ids[:size])), (rows["t"], found["t"]))
    with pytest.raises(ValueError, match=r"b <= 6"):
        call(tables, jnp.concatenate([ids, ids[:1]]))


def test_specs_of_jax_export_are_taken_with_their_constraints():
    coll, state, served, tables = one_table()
    ids = jde.ids(some_ids(np.random.default_rng(1), 8))
    specs = jax.export.symbolic_args_specs(
        (tables, ids), (None, "2*b, ..."), constraints=["b <= 4"]
    )
    data = jde.export.program(looks_up(served), *specs)
    call = jde.export.load_program(data).call
    rows, found, _ = coll.find(state, {"t": ids})
    assert_same(jax.tree.leaves(call(tables, ids)), (rows["t"], found["t"]))
    with pytest.raises(ValueError, match=r"<= 8"):
        call(tables, jnp.concatenate([ids, ids[:2]]))


def test_a_lookup_needs_no_bound():
    coll, state, served, tables = one_table()
    ids = jde.ids(some_ids(np.random.default_rng(2), 5000))
    data = jde.export.program(
        looks_up(served), tables, ids[:2], shapes=(None, "b, ...")
    )
    answer = jde.export.load_program(data).call(tables, ids)
    rows, found, _ = coll.find(state, {"t": ids})
    assert_same(jax.tree.leaves(answer), (rows["t"], found["t"]))


def test_the_plain_reader_of_jax_takes_the_bytes_inside():
    coll, state, served, tables = one_table()
    ids = jde.ids(some_ids(np.random.default_rng(3), 3))
    given = {"shapes": (None, "b, ..."), "constraints": ["b <= 4"]}
    data = jde.export.program(looks_up(served), tables, ids, **given)
    head = len(b"jax_dynemb program 1\n")
    size = int.from_bytes(data[head : head + 8], "little")
    inside = data[head + 16 : head + 16 + size]
    answer = jax.export.deserialize(bytearray(inside)).call(tables, ids)
    rows, found, _ = coll.find(state, {"t": ids})
    assert_same(jax.tree.leaves(answer), (rows["t"], found["t"]))


def test_many_tables_of_symbolic_size():
    """A call looks at the sizes of its batch from 32 operands on."""
    tables = [jde.TableConfig(f"t{n}", 4, 200) for n in range(12)]
    coll, state, served, frozen = trained(tables)

    def look_up(tables, ids):
        return served.find(tables, ids)[0]

    rng = np.random.default_rng(4)
    ids = {t.name: jde.ids(some_ids(rng, 600)) for t in tables}
    data = jde.export.program(
        look_up,
        frozen,
        ids,
        shapes=(None, "b, ..."),
        constraints=["b <= 600", "b >= 600"],
    )
    answer = jde.export.load_program(data).call(frozen, ids)
    assert_same(jax.tree.leaves(answer), coll.find(state, ids)[0])


# ---- what it may not be --------------------------------------------------------------


def test_the_size_of_bags_is_static():
    _, _, served, tables = one_table(pooling="sum")
    ids = jde.ids(np.zeros((2, 3), np.int64))
    with pytest.raises(ValueError, match=r"the size of its bags.*pass a jde\.Jagged"):
        jde.export.program(looks_up(served), tables, ids, shapes=(None, "2, n, ..."))


def test_constraints_need_shapes():
    _, _, served, tables = one_table()
    ids = jde.ids(np.zeros(2, np.int64))
    with pytest.raises(ValueError, match=r"shapes=\.\.\. is needed too"):
        jde.export.program(looks_up(served), tables, ids, constraints=["b <= 4"])


# ---- scratch -------------------------------------------------------------------------


def result_of_lookup(monkeypatch, **given) -> str:
    """The types that a training lookup's call returns, 24 bytes of scratch an id."""

    def scratch_bytes(op, buckets, dims, ids):
        return 24 * sum(ids)

    monkeypatch.setattr(_ffi, "scratch_bytes", scratch_bytes)
    coll = jde.Tables([jde.TableConfig("t", 4, 500, pooling="sum")])
    state, ids = coll.init(seed=0), jde.ids(np.zeros((2, 3), np.int64))
    specs = jax.export.symbolic_args_specs((state, ids), (None, "b, ..."), **given)
    exported = jax.export.export(
        jax.jit(lambda state, ids: coll.lookup(state, {"t": ids})[0]),
        disabled_checks=[jax.export.DisabledSafetyCheck.custom_call("dynemb_lookup")],
    )(*specs)
    text = exported.mlir_module()
    return next(line for line in text.splitlines() if "dynemb_lookup" in line)


def test_scratch_is_that_of_the_largest_batch(monkeypatch):
    types = result_of_lookup(monkeypatch, constraints=["b <= 50"])
    assert f"tensor<{24 * 3 * 50}xui8>" in types


def test_scratch_needs_a_bound(monkeypatch):
    with pytest.raises(ValueError, match=r"constraints=\['b <= 4096'\]"):
        result_of_lookup(monkeypatch)


def test_bounds_of_dimensions():
    b, c = jax.export.symbolic_shape(
        "b, c", constraints=["b <= 4096", "c <= 100", "c >= 3"]
    )
    (free,) = jax.export.symbolic_shape("free")
    sizes = [(7, 7), (b, 4096), (3 * b, 12288), (b * c, 409_600), (b - 1, 4095)]
    assert [largest(size) for size, _ in sizes] == [most for _, most in sizes]
    assert largest(b * c * 7 + 3) == 7 * 409_600 + 3
    assert largest(free) is None
    assert [is_positive(x) for x in (0, 1, b, b - 1, c - 2)] == [0, 1, 1, 0, 1]


def test_constraints_stand_behind_the_program():
    """The form stands in program.py: readers of other versions rely on it."""
    _, _, served, tables = one_table()
    ids = jde.ids(np.zeros(2, np.int64))
    mark = b"jax_dynemb program 1\n"

    def constraints_of(data):
        assert data.startswith(mark)
        size = int.from_bytes(data[len(mark) : len(mark) + 8], "little")
        return json.loads(data[len(mark) + 16 + size :])

    assert constraints_of(jde.export.program(looks_up(served), tables, ids)) == []
    given = {"shapes": (None, "b, ..."), "constraints": ["b <= 4"]}
    data = jde.export.program(looks_up(served), tables, ids, **given)
    assert "b <= 4" in constraints_of(data)
