# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Jagged lengths that no bags have: harmless inside jit, refused on the host."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde
from jax_dynemb._src.ops.call import Call
from jax_dynemb._src.ops.offsets import offsets_of, offsets_of_each

BIG = 2**31 - 1
# Lengths, and how many ids there are.
HOSTILE = {
    "negative_first": ([-5, 10, 5], 10),
    "negative_between": ([10, -8, 10], 12),
    "overflowing_sum": ([BIG] * 5, 6),
    "sum_to_zero": ([2**30] * 4, 8),
    "too_long": ([2, 50], 3),
    "least": ([-(2**31), 3, -1], 4),
    "offsets": ([0, 3, 5, 9], 9),
    "no_ids": ([1, 0, 2], 0),
}


def expected(lengths, capacity):
    """Offsets, and bags that were cut, in Python's integers."""
    offsets, malformed = [0], 0
    for length in lengths:
        wanted = offsets[-1] + max(length, 0)
        offsets.append(min(wanted, capacity))
        malformed += length < 0 or wanted > capacity
    return offsets, malformed


@pytest.mark.parametrize("name", HOSTILE)
def test_offsets(platform, name):
    lengths, capacity = HOSTILE[name]
    offsets, malformed = jax.jit(offsets_of, static_argnums=1)(
        jnp.array(lengths, jnp.int32), capacity
    )
    truth = expected(lengths, capacity)
    assert (offsets.tolist(), int(malformed[0])) == (truth[0], truth[1])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32"])
@pytest.mark.parametrize("bags", [0, 1, 5, 4096, 4097, 20_000])
def test_offsets_of_many_bags(platform, dtype, bags):
    rng = np.random.default_rng(bags)
    lengths = rng.integers(-2 if dtype[0] == "i" else 0, 8, bags).astype(dtype)
    if bags > 100:
        lengths[rng.integers(0, bags, 9)] = np.iinfo(dtype).max
    capacity = 3 * bags
    offsets, malformed = offsets_of(jnp.asarray(lengths), capacity)
    truth = expected(lengths.tolist(), capacity)
    assert (offsets.tolist(), int(malformed[0])) == (truth[0], truth[1])


@pytest.mark.parametrize("features", [0, 1, 2, 40, 300])
def test_offsets_of_each(platform, features):
    rng = np.random.default_rng(features)
    bags = rng.integers(0, 3000, features)
    given = [(rng.integers(-1, 6, n).astype(np.int32), int(2 * n)) for n in bags]
    made = offsets_of_each([(jnp.asarray(lengths), n) for lengths, n in given])
    assert len(made) == features
    for (lengths, capacity), (offsets, malformed) in zip(given, made, strict=True):
        truth = expected(lengths.tolist(), capacity)
        assert (offsets.tolist(), int(malformed[0])) == (truth[0], truth[1])


def test_the_call_of_programs_that_were_exported_before(platform):
    call = Call("offsets", (), capacity=np.int64(9))
    call.operand(jnp.array([3, -1, 4, 5], jnp.int32))
    call.result((5,), jnp.int32)
    call.result((1,), jnp.uint32)
    offsets, malformed = call.run()
    assert (offsets.tolist(), int(malformed[0])) == ([0, 3, 3, 7, 9], 2)


def test_lengths_of_all_features_are_one_call():
    tables = [
        jde.TableConfig(
            name=name,
            dim=8,
            capacity=512,
            pooling=pooling,
            feature_names=[name, f"{name}2"],
        )
        for name, pooling in (("sum", "sum"), ("mean", "mean"), ("rows", None))
    ]
    coll = jde.Tables(tables)
    bags = jde.Jagged(jde.ids(np.arange(8)), jnp.array([3, 0, 2, 1], jnp.int32))
    ids = {f: bags for table in tables for f in table.feature_names}
    for call in (coll.lookup, coll.find):
        text = jax.jit(call).lower(coll.init(0), ids).as_text()
        assert text.count("@dynemb_offsets") == 1


@pytest.mark.parametrize("pooling", ["sum", "mean", None])
@pytest.mark.parametrize("name", HOSTILE)
def test_a_step_cuts_and_counts(platform, name, pooling):
    lengths, capacity = HOSTILE[name]
    coll = jde.Tables(
        [
            jde.TableConfig(
                name="t",
                dim=8,
                capacity=512,
                pooling=pooling,
                optimizer=jde.optim.sgd(1.0),
                initializer=jde.initializers.constant(2.0),
            )
        ]
    )
    values = jde.ids(np.arange(capacity))

    @jax.jit
    def step(state, lengths):
        rows, residual, state = coll.lookup(state, {"t": jde.Jagged(values, lengths)})
        ones = {"t": jnp.ones_like(rows["t"])}
        return rows["t"], coll.apply_gradients(state, residual, ones)

    rows, state = step(coll.init(0), jnp.array(lengths, jnp.int32))
    offsets, malformed = expected(lengths, capacity)
    sizes = np.diff(offsets)
    if pooling == "sum":
        truth = 2.0 * sizes
    elif pooling == "mean":
        truth = np.where(sizes > 0, 2.0, 0.0)
    else:
        truth = np.where(np.arange(capacity) < offsets[-1], 2.0, 0.0)
    np.testing.assert_array_equal(rows, np.repeat(truth[:, None], 8, axis=1))
    assert coll.stats(state)["t/malformed_lengths"] == malformed
    assert coll.stats(state)["t/rows"] == offsets[-1]
    assert coll.stats(state)["t/lost_updates"] == 0


def test_a_serving_lookup_counts_nothing(platform):
    coll = jde.Tables([jde.TableConfig(name="t", dim=4, capacity=128, pooling="sum")])
    values = jde.ids(np.arange(4))

    @jax.jit
    def find(state, lengths):
        return coll.find(state, {"t": jde.Jagged(values, lengths)})

    rows, _, state = find(coll.init(0), jnp.array([-1, BIG, BIG], jnp.int32))
    assert (rows["t"] == 0).all()
    assert coll.stats(state)["t/malformed_lengths"] == 0


def refused(lengths, capacity=4):
    coll = jde.Tables([jde.TableConfig(name="t", dim=4, capacity=128, pooling="sum")])
    ids = jde.Jagged(jde.ids(np.arange(capacity)), lengths)
    coll.lookup(coll.init(0), {"t": ids})


@pytest.mark.parametrize("form", [np.asarray, list, jnp.asarray])
@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([3, -2, 1], "has -2 at bag 1"),
        ([3, 2], "add up to 5, but there are 4 ids"),
        ([0, 1, 1, 4], r"look like offsets.*np\.diff\(offsets\)"),
        ([1.0, 2.0], "must be integers"),
        ([True, False], "must be integers"),
        ([[1, 2]], "must be integers"),
    ],
)
def test_known_lengths_are_refused(form, lengths, message):
    cpu = jax.devices("cpu")[0]
    with jax.default_device(cpu), pytest.raises(ValueError, match=message):
        refused(form(lengths))


@pytest.mark.parametrize("length", [2**32 + 3, 2**63 - 1, -(2**32) + 3])
def test_wide_lengths_do_not_wrap(length):
    with pytest.raises(ValueError, match=r"add up to|has -"):
        jde.Jagged(jde.ids(np.arange(9)), np.array([length], np.int64))
    with pytest.raises(ValueError, match="add up to"):
        jde.Jagged(jde.ids(np.arange(9)), np.array([2**64 - 1, 1], np.uint64))


@pytest.mark.parametrize("bags", [[[1.5]], [[1], [True]], [["a"]], [[np.float32(2)]]])
def test_lists_of_other_things_are_refused(bags):
    with pytest.raises(TypeError, match="ids must be integers"):
        jde.Jagged.from_lists(bags)


def test_lists_keep_wide_and_unsigned_ids():
    jagged = jde.Jagged.from_lists([[2**63 + 5], [], [7]], capacity=4)
    expected = jde.ids(np.array([2**63 + 5, 7, 2**64 - 1, 2**64 - 1], np.uint64))
    np.testing.assert_array_equal(jagged.values, expected)
    assert np.asarray(jagged.lengths).tolist() == [1, 0, 1]
    assert jde.Jagged.from_lists([[], []]).values.shape == (0, 2)


def test_lists_refuse_ids_of_more_than_64_bits():
    with pytest.raises(ValueError, match="no 64-bit id"):
        jde.Jagged.from_lists([[2**64]])
