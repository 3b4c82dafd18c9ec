# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Slots, sizes and residuals that no lookup gave: harmless as data, refused as shapes.

Under compute-sanitizer's memcheck these are the cases that would touch foreign memory.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde
from jax_dynemb._src.ops import find, lookup
from jax_dynemb._src.ops import rows as _rows
from jax_dynemb._src.ops.layout import FeatureInput, FeatureLayout
from jax_dynemb._src.ops.residual import FeatureGradient
from jax_dynemb._src.ops.sum_rows import sum_bags, sum_rows
from jax_dynemb._src.ops.update_rows import reduce, update
from jax_dynemb._src.spec import TableSpec

BIG = 2**31 - 1
SLOTS = [
    0,
    127,
    128,
    129,
    255,
    256,
    257,
    2000,
    -1,
    -2,
    -3,
    -4,
    -(2**31),
    BIG,
    BIG - 127,
]
DIMS = [1, 4, 8, 130]


def make(optimizer=None, **options):
    """A table of 256 slots, with 40 rows of ones."""
    options = {"dim": 8, "capacity": 256, "pooling": None} | options
    optimizer = optimizer or jde.optim.sgd(1.0)
    config = jde.TableConfig(
        name="t",
        optimizer=optimizer,
        initializer=jde.initializers.constant(1.0),
        **options,
    )
    coll = jde.Tables([config])
    ids = jde.ids(np.arange(40).reshape(-1, 1) if config.pooling else np.arange(40))
    _, residual, state = coll.lookup(coll.init(0), {"t": ids})
    return coll, residual, state


def with_slots(residual, slots):
    """Makes the residual of one feature name these slots."""
    one = residual.features["t"]
    n = one.slots.shape[0]
    slots = np.resize(np.array(slots, np.int64).astype(np.int32), n)
    one = dataclasses.replace(one, slots=jnp.asarray(slots))
    return dataclasses.replace(residual, features={"t": one}), slots


def foreign(slots, rows=256):
    """How many say that they have a row, and have none."""
    return int((slots >= rows).sum())


OPTIMIZERS = {
    "sgd": jde.optim.sgd(1.0),
    "adagrad": jde.optim.adagrad(0.1),
    "rowwise_adagrad": jde.optim.rowwise_adagrad(0.1),
    "adam": jde.optim.adam(0.1),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("dim", DIMS)
def test_an_update_passes_over_foreign_slots(platform, optimizer, dim):
    coll, residual, state = make(OPTIMIZERS[optimizer], dim=dim)
    hostile, slots = with_slots(residual, SLOTS)
    before = np.asarray(state["t"].values)
    lost = coll.stats(state)["t/lost_updates"]
    ones = {"t": jnp.ones((40, dim))}
    state = jax.jit(coll.apply_gradients)(state, hostile, ones)
    changed = (np.asarray(state["t"].values) != before).any(axis=1)
    assert set(np.flatnonzero(changed)) <= {s for s in slots if 0 <= s < 256}
    assert coll.stats(state)["t/lost_updates"] - lost == foreign(slots)


def test_a_large_batch_of_foreign_slots(platform):
    # More than one kernel can sort alone.
    n = 300_000
    coll = jde.Tables([jde.TableConfig(name="t", dim=4, capacity=256)])
    ids = jde.ids(np.arange(n) % 7)
    _, residual, state = coll.lookup(coll.init(0), {"t": ids})
    hostile, slots = with_slots(residual, SLOTS)
    ones = {"t": jnp.ones((n, 4))}
    state = jax.jit(coll.apply_gradients)(state, hostile, ones)
    assert coll.stats(state)["t/lost_updates"] == foreign(slots)


@pytest.mark.parametrize("dim", DIMS)
def test_a_reduction_passes_over_foreign_slots(platform, dim):
    coll, residual, state = make(dim=dim)
    hostile, slots = with_slots(residual, SLOTS)
    ones = {"t": jnp.ones((40, dim))}
    sums, _ = jax.jit(coll.reduce_gradients)(state, hostile, ones)
    named = {int(s) for s in slots if 0 <= s < 256}
    got = np.asarray(sums["t"].slots)
    assert set(got[got != -1].tolist()) == named
    for slot, row in zip(got, np.asarray(sums["t"].grads), strict=True):
        assert (row == (0 if slot == -1 else (slots == slot).sum())).all()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_gather_reads_zeros_and_scatter_writes_nothing(platform, optimizer):
    coll, _, state = make(OPTIMIZERS[optimizer])
    slots = {"t": jnp.array(SLOTS, jnp.int32)}
    rows, state = jax.jit(coll.gather)(state, slots)
    live = np.array([0 <= s < 256 for s in SLOTS])
    for name, array in rows["t"].items():
        assert (np.asarray(array)[~live] == 0).all(), name
    stored = np.asarray(state["t"].values)
    np.testing.assert_array_equal(
        rows["t"]["values"][live], stored[np.array(SLOTS)[live]]
    )
    sevens = {"t": {"values": jnp.full((len(SLOTS), 8), 7.0)}}
    state = jax.jit(coll.scatter)(state, slots, sevens)
    expected = stored.copy()
    expected[np.array(SLOTS)[live]] = 7.0
    np.testing.assert_array_equal(state["t"].values, expected)


def test_the_residual_of_a_larger_table_stays_within_this_one(platform):
    coll, _, state = make()
    larger = jde.Tables([jde.TableConfig(name="t", dim=8, capacity=1 << 16)])
    ids = jde.ids(np.arange(5000))
    _, residual, _ = larger.lookup(larger.init(0), {"t": ids})
    slots = np.asarray(residual.features["t"].slots)
    ones = {"t": jnp.ones((5000, 8))}
    state = jax.jit(coll.apply_gradients)(state, residual, ones)
    assert coll.stats(state)["t/lost_updates"] >= foreign(slots) > 0


@pytest.mark.parametrize("first", [-(2**31), -300, -1, 0, 1, 2, BIG])
def test_an_export_from_any_bucket(platform, first):
    coll, _, state = make()
    config, index = coll.engine.stack_of("t").local, state["t"].index
    keys, _, slots, count = _rows.export_batch(
        config, index, jnp.array([first], jnp.int32), 3, jnp.zeros(2, jnp.uint32)
    )
    words = np.ascontiguousarray(np.asarray(index))
    # An entry is four words: key, score. See ops/state.py.
    entries = words[:, 32:].reshape(len(words), 128, 4)
    live = entries[..., 2:].any(axis=-1)
    buckets = [b for b in range(first, first + 3) if 0 <= b < len(words)]
    expected = [b * 128 + i for b in buckets for i in range(128) if live[b, i]]
    assert np.asarray(slots)[: int(count[0])].tolist() == expected
    assert (np.asarray(slots)[len(expected) :] == -1).all()
    np.testing.assert_array_equal(
        np.asarray(keys)[: len(expected)], entries.reshape(-1, 4)[expected, :2]
    )


OFFSETS = {
    "falling": [0, 9, 3, 20, 5, 12],
    "negative": [-5, 0, 4, -(2**31), 6, 12],
    "past_the_end": [0, 40, 2000, BIG, BIG, BIG],
    "late": [11, 11, 12, 12, 12, 12],
}


# Rows of 8, 48 and 136 columns are pooled by three kernels on a GPU.
@pytest.mark.parametrize("dim", [8, 48, 136])
@pytest.mark.parametrize("offsets", OFFSETS)
@pytest.mark.parametrize("pooling", ["sum", "mean"])
@pytest.mark.parametrize("n", [12, 700])
def test_kernels_stay_within_arrays_whatever_the_offsets(
    platform, dim, offsets, pooling, n
):
    coll, _, state = make(pooling=pooling, dim=dim)
    config = coll.engine.stack_of("t").local
    layout = FeatureLayout("t", "t", pooling, (n,), (n,), (5,), 0, False)
    given = FeatureInput(
        jde.ids(np.arange(n)), jnp.array(OFFSETS[offsets], jnp.int32), None
    )
    scores = jnp.zeros((1, 2), jnp.uint32)
    (found,), _ = find([config], state, [(layout, given)])
    (looked,), state, _ = lookup([config], state, [(layout, given)], scores)
    assert found["rows"].shape == looked["rows"].shape == (5, dim)
    # Slots of ids in no bag may not have been written: all that counts is what they do.
    gradient = FeatureGradient(
        layout,
        jnp.ones((5, dim)),
        given.ids,
        looked["slots"],
        given.offsets,
        None,
        looked.get("scale"),
    )
    hyper = jnp.zeros((1, 5), jnp.float32)
    state = update([config], state, [gradient], hyper)
    sums, _ = reduce([config], state, [gradient], False)
    assert np.asarray(sums["t"][0]).max() < config.num_slots
    assert np.isfinite(
        np.asarray(sum_bags(config, jnp.ones((n, dim)), given.offsets))
    ).all()


def test_a_feature_without_bags_has_no_gradients(platform):
    coll, residual, state = make(pooling="sum")
    config = coll.engine.stack_of("t").local
    layout = FeatureLayout("t", "t", "sum", (40,), (40,), (0,), 0, False)
    gradient = FeatureGradient(
        layout,
        jnp.ones((0, 8)),
        residual.features["t"].ids,
        residual.features["t"].slots,
        jnp.zeros(1, jnp.int32),
        None,
        None,
    )
    before = np.asarray(state["t"].values)
    state = update([config], state, [gradient], jnp.ones((1, 5), jnp.float32))
    np.testing.assert_array_equal(state["t"].values, before)


def test_groups_beyond_their_number_are_passed_over(platform):
    spec = TableSpec.of(jde.TableConfig(name="t", dim=4, capacity=128))
    slots = jnp.array([0, 1, 2, 3, 127, 128, BIG, -1], jnp.int32)
    n = slots.shape[0]
    layout = FeatureLayout("t", "t", "none", (n,), (n,), (n,), 1, False)
    rows = jnp.ones((n, 4))
    feature = FeatureGradient(layout, rows, slots, slots, None, None, None)
    (sums,) = sum_rows([spec], [3], [feature])
    np.testing.assert_array_equal(sums, np.ones((3, 4)))


# ---- what is known while tracing -----------------------------------------------------


@pytest.mark.parametrize(
    "slots",
    [
        np.zeros(3, np.uint8),
        np.zeros(3, np.float32),
        np.zeros((3, 1), np.int32),
        np.int32(3),
        np.zeros(3, bool),
    ],
)
def test_slots_of_another_form_are_refused(slots):
    coll, _, state = make()
    slots = {"t": jnp.asarray(slots)}
    with pytest.raises(ValueError, match=r"Table 't': slots must be int32\[n\]"):
        jax.jit(coll.gather, donate_argnums=0)(state, slots)
    with pytest.raises(ValueError, match=r"Table 't': slots must be int32\[n\]"):
        jax.jit(coll.scatter)(state, slots, {"t": {"values": jnp.zeros((3, 8))}})
    assert coll.stats(state)["t/rows"] == 40  # the state is alive


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"values": np.zeros((2, 8))}, "values have shape"),
        ({"values": np.zeros((3, 4))}, "values have shape"),
        ({"sum_of_squares": np.zeros(3)}, "sum_of_squares have shape"),
        ({"scores": np.zeros((3, 1), np.uint32)}, "scores have shape"),
        ({"mu": np.zeros((3, 8))}, "has no .'mu'."),
    ],
)
def test_rows_of_another_shape_are_refused(rows, message):
    coll, _, state = make(jde.optim.adagrad(0.1))
    slots = {"t": jnp.zeros(3, jnp.int32)}
    with pytest.raises(ValueError, match=message):
        coll.scatter(state, slots, {"t": rows})


@pytest.mark.parametrize(
    "field",
    [
        {"slots": np.zeros(40, np.uint8)},
        {"slots": np.zeros(39, np.int32)},
        {"ids": np.zeros((39, 2), np.uint32)},
        {"ids": np.zeros((40, 2), np.float32)},
        {"offsets": np.zeros(41, np.int32)},
        {"weights": np.zeros(40, np.float32)},
        {"scale": np.zeros(40, np.float32)},
    ],
)
@pytest.mark.parametrize("op", ["apply_gradients", "reduce_gradients"])
def test_a_residual_of_another_layout_is_refused(field, op):
    coll, residual, state = make()
    arrays = {name: jnp.asarray(array) for name, array in field.items()}
    one = dataclasses.replace(residual.features["t"], **arrays)
    wrong = dataclasses.replace(residual, features={"t": one})
    with pytest.raises(ValueError, match="Feature 't': .* of the residual must be"):
        getattr(coll, op)(state, wrong, {"t": jnp.ones((40, 8))})


def test_a_residual_of_another_collection_is_refused():
    coll, _, state = make()
    _, pooled, _ = make(pooling="sum")
    with pytest.raises(ValueError, match="the residual is of table 't' with pooling"):
        coll.apply_gradients(state, pooled, {"t": jnp.ones((40, 8))})
    coll, residual, state = make()
    with pytest.raises(ValueError, match="the gradient has shape"):
        coll.apply_gradients(state, residual, {"t": jnp.ones((39, 8))})
