# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Configurations are checked where they are made, and the message has the fix."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jax_dynemb as jde

GOOD = {"name": "t", "dim": 8, "capacity": 1000}


@pytest.mark.parametrize(
    ("options", "fix"),
    [
        ({"dim": 0}, "dim"),
        ({"dim": 4097}, "4096"),
        ({"dim": 2.5}, "dim"),
        ({"capacity": 0}, "capacity"),
        ({"capacity": -5}, "capacity"),
        ({"name": ""}, "name"),
        ({"name": "a/b"}, "name"),
        ({"feature_names": ("a", "a")}, "a"),
        ({"feature_names": "abc"}, "feature_names"),
        ({"feature_names": None}, "feature_names must be a tuple"),
        ({"max_gradient": "x"}, "max_gradient must be a number"),
        ({"score_strategy": "lru"}, "step"),
        ({"on_full": "explode"}, "refuse"),
        ({"pooling": "max"}, "mean"),
        ({"param_dtype": "int8"}, "float32"),
        ({"param_dtype": "float64"}, "float32"),
        ({"dtype": "complex64"}, "float32"),
        ({"key_dtype": "int16"}, "int64"),
        ({"optimizer": "adam"}, r"jde\.optim"),
        ({"initializer": "uniform"}, r"jde\.initializers"),
        ({"initializer": 0.5}, r"jde\.initializers"),
        ({"score_strategy": "no_eviction", "on_full": "evict"}, "no_eviction|on_full"),
    ],
)
def test_messages_say_what_to_write(options, fix):
    with pytest.raises((ValueError, TypeError), match=fix):
        jde.TableConfig(**(GOOD | options))


@pytest.mark.parametrize(
    "make",
    [
        lambda: jde.initializers.uniform(1.0, -1.0),
        lambda: jde.initializers.uniform(-1.0, float("inf")),
        lambda: jde.initializers.normal(stddev=-1.0),
        lambda: jde.initializers.normal(stddev=float("inf")),
        lambda: jde.initializers.normal(mean=float("nan")),
        lambda: jde.initializers.constant(float("nan")),
        lambda: jde.initializers.constant(1e39),
        lambda: jde.initializers.truncated_normal(stddev=0.0),
        lambda: jde.initializers.truncated_normal(lower=2.0, upper=1.0),
    ],
)
def test_initializers_are_checked(make):
    with pytest.raises(ValueError):
        make()


def test_capacity_is_rounded_up_to_buckets():
    for capacity, slots in [(1, 256), (256, 256), (257, 512), (2_000_000, 2_007_040)]:
        table = jde.TableConfig(name="t", dim=1, capacity=capacity)
        assert table.num_slots == slots and table.num_buckets == slots // 128


@given(st.integers(1, 3_000_000))
def test_devices_can_share_the_buckets(capacity: int):
    table = jde.TableConfig(name="t", dim=1, capacity=capacity)
    assert table.num_slots >= capacity
    assert table.num_buckets % min(8, table.num_buckets) == 0
    assert table.num_buckets % table.max_shards == 0
    if capacity > 128 * 1024:
        assert table.max_shards == 64 and table.num_slots < 1.07 * capacity


def test_defaults():
    table = jde.TableConfig(**GOOD)
    assert table.feature_names == ("t",)
    assert table.score_strategy is jde.ScoreStrategy.STEP
    assert np.dtype(table.param_dtype) == np.dtype(table.dtype) == np.float32
    assert table == jde.TableConfig(**GOOD)
    assert hash(table) == hash(jde.TableConfig(**GOOD))
    with pytest.raises(dataclasses.FrozenInstanceError):
        table.dim = 9  # pyright: ignore


def test_collections_are_static():
    a, b = (jde.Tables([jde.TableConfig(**GOOD)]) for _ in range(2))
    assert a == b and hash(a) == hash(b)
    assert list(a.tables) == ["t"] and a.features == {"t": "t"}


@pytest.mark.parametrize(
    ("tables", "fix"),
    [
        ([], "TableConfig"),
        ([GOOD, GOOD], "t"),
        ([GOOD, GOOD | {"name": "u", "feature_names": ("t",)}], "t"),
    ],
)
def test_collections_are_checked(tables, fix):
    with pytest.raises(ValueError, match=fix):
        jde.Tables([jde.TableConfig(**options) for options in tables])


def test_arrays_of_the_state():
    tables = [
        jde.TableConfig(**GOOD, optimizer=jde.optim.adam(0.1), param_dtype="bfloat16"),
        jde.TableConfig(
            name="u", dim=3, capacity=10, optimizer=jde.optim.rowwise_adagrad(0.1)
        ),
    ]
    state = jde.Tables(tables).init(0)
    assert list(state) == ["t", "u"]
    t, u = state["t"], state["u"]
    assert t.index.shape == (8, 544) and t.index.dtype == jnp.uint32
    assert t.values.shape == (1024, 8) and t.values.dtype == jnp.bfloat16
    assert {k: v.shape for k, v in t.optimizer.items()} == {
        "mu": (1024, 8),
        "nu": (1024, 8),
    }
    assert {k: v.shape for k, v in u.optimizer.items()} == {"sum_of_squares": (256,)}
    assert all(v.dtype == jnp.float32 for v in t.optimizer.values())
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(state))


class TestCalls:
    coll = jde.Tables(
        [jde.TableConfig(**GOOD), jde.TableConfig(name="u", dim=2, capacity=9)]
    )

    def test_unknown_feature(self):
        with pytest.raises((KeyError, ValueError), match="nope.*t|t.*nope"):
            self.coll.lookup(self.coll.init(0), {"nope": jde.ids([1])})

    def test_weights_of_another_shape(self):
        with pytest.raises(ValueError, match="weights"):
            self.coll.lookup(
                self.coll.init(0), {"t": jde.ids([1])}, weights={"t": jnp.ones(2)}
            )

    def test_gradients_of_another_shape(self):
        _, residual, state = self.coll.lookup(self.coll.init(0), {"t": jde.ids([1])})
        with pytest.raises(ValueError, match=r"\(1, 8\)"):
            self.coll.apply_gradients(state, residual, {"t": jnp.ones((1, 7))})

    def test_gradients_of_a_missing_feature(self):
        _, residual, state = self.coll.lookup(self.coll.init(0), {"t": jde.ids([1])})
        with pytest.raises((KeyError, ValueError), match="t"):
            self.coll.apply_gradients(state, residual, {})

    def test_a_state_of_another_collection(self):
        for options in (
            {"dim": 4},
            {"capacity": 5000},
            {"param_dtype": "bfloat16"},
            {"optimizer": jde.optim.adam(0.1)},
        ):
            state = jde.Tables([jde.TableConfig(**(GOOD | options))]).init(0)
            state["u"] = self.coll.init(0)["u"]
            ids, row = {"t": jde.ids([1])}, {"t": jnp.ones((1, 8))}
            with pytest.raises(ValueError, match="'t'"):
                self.coll.lookup(state, ids)
            with pytest.raises(ValueError, match="'t'"):
                self.coll.find(state, ids)
            with pytest.raises(ValueError, match="'t'"):
                self.coll.insert(state, ids, row)

    def test_scores_for_a_table_that_keeps_its_own(self):
        with pytest.raises(ValueError, match="customized"):
            self.coll.lookup(
                self.coll.init(0), {"t": jde.ids([1])}, scores={"t": jnp.uint32(1)}
            )

    def test_more_slots_than_a_device_numbers(self):
        with pytest.raises(ValueError, match="mesh"):
            jde.Tables([jde.TableConfig("t", dim=1, capacity=2**31)])

    def test_rows_of_another_shape(self):
        with pytest.raises(ValueError, match="rows|dim|shape"):
            self.coll.insert(
                self.coll.init(0), {"t": jde.ids([1])}, {"t": jnp.ones((1, 3))}
            )
