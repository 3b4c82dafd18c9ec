# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Training lookups: find, else insert."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jax_dynemb as jde
from strategies import key_lists
from support import Twins, stat

UNIFORM = jde.initializers.uniform(-0.5, 0.5)


def table(name: str = "t", **options) -> jde.TableConfig:
    options = {"dim": 8, "capacity": 1024, "initializer": UNIFORM} | options
    return jde.TableConfig(name=name, **options)


def test_unseen_ids_get_rows_once(platform):
    twins = Twins(table())
    first, _ = twins.lookup({"t": [5, 6, 5, -1]})
    assert stat(twins, "t/rows") == stat(twins, "t/inserted") == 2
    np.testing.assert_array_equal(first["t"][0], first["t"][2])
    assert (first["t"][0] != first["t"][1]).all()
    assert (first["t"][3] == 0).all()
    second, _ = twins.lookup({"t": [6, 5, 7, 7]})
    assert stat(twins, "t/rows") == 3
    np.testing.assert_array_equal(second["t"][1], first["t"][0])
    twins.check()


def test_many_duplicates_of_many_unseen_keys(platform):
    twins = Twins(table(capacity=4096))
    rng = np.random.default_rng(0)
    pool = rng.integers(-(2**62), 2**62, 300)
    twins.lookup({"t": rng.choice(pool, 20_000)})
    assert stat(twins, "t/rows") == 300
    twins.check()


def test_rows_do_not_depend_on_the_batch(platform):
    keys = np.arange(1, 65) * 7919
    together, one_by_one = Twins(table()), Twins(table())
    rows, _ = together.lookup({"t": keys})
    for part in keys[::-1].reshape(8, 8):
        one_by_one.lookup({"t": part})
    again, _ = one_by_one.lookup({"t": keys})
    np.testing.assert_array_equal(rows["t"], again["t"])


def test_seed_and_table_name_choose_the_rows(platform):
    rows = [
        Twins(table(name), seed=seed).lookup({name: [1, 2, 3]})[0][name]
        for name in ("t", "u")
        for seed in (0, 1)
    ]
    for i, a in enumerate(rows):
        for b in rows[i + 1 :]:
            assert (a != b).all()


def test_several_tables_and_features_in_one_call(platform):
    twins = Twins(
        table("a", feature_names=("x", "y")), table("b", dim=3), table("c", dim=1)
    )
    twins.lookup({"x": [1, 2], "y": [[2], [3]], "b": [1], "c": [-1, 9, 9]})
    assert [stat(twins, f"{t}/rows") for t in "abc"] == [3, 1, 1]
    twins.lookup({"y": [4, -1]})  # a call may leave features and tables out
    assert [stat(twins, f"{t}/lookups") for t in "abc"] == [2, 1, 1]
    twins.check()


def test_reserved_ids_are_refused_and_counted(platform):
    twins = Twins(table())
    words = np.array([-2, -3, -4, 8], np.int64).view(np.uint32).reshape(4, 2)
    rows, residual, state = twins.coll.lookup(twins.state, {"t": words})
    stats = twins.coll.stats(state)
    assert stats["t/refused"] == 3 and stats["t/rows"] == 1
    expected, _ = twins.oracle.lookup({"t": np.array([-2, -3, -4, 8])})
    np.testing.assert_array_equal(rows["t"], expected["t"])
    state = twins.coll.apply_gradients(state, residual, {"t": np.ones((4, 8), "f")})
    assert twins.coll.stats(state)["t/lost_updates"] == 0


@pytest.mark.parametrize("shape", [(), (1,), (0,), (2, 3), (2, 0, 3), (1, 2, 3, 4)])
def test_ids_of_any_shape(platform, shape):
    twins = Twins(table())
    rows, residuals = twins.lookup({"t": np.arange(np.prod(shape)).reshape(shape)})
    assert rows["t"].shape == (*shape, 8)
    twins.apply(residuals, {"t": np.ones((*shape, 8))})
    twins.check()


@given(st.lists(key_lists(size=64), min_size=1, max_size=4))
def test_any_batches(batches):
    twins = Twins(table(capacity=256))
    for batch in batches:
        twins.lookup({"t": batch})
        twins.find({"t": batch[::-1]})
    twins.check()
