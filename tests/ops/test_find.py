# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Serving: find reads, never writes, and unseen ids give the evaluation row."""

import jax
import numpy as np

import jax_dynemb as jde
from keys import keys_of_bucket
from support import Twins

DEBUG = jde.initializers.debug()


def table(**options) -> jde.TableConfig:
    options = {"dim": 8, "capacity": 256, "initializer": DEBUG} | options
    return jde.TableConfig(name="t", **options)


def test_unseen_ids_give_zeros_and_change_nothing(platform):
    twins = Twins(table())
    twins.lookup({"t": [1, 2, 3]})
    before = jax.tree.map(np.array, twins.state)
    rows, found = twins.find({"t": [3, 4, -1, 2**62, 1]})
    assert found["t"].tolist() == [True, False, False, False, True]
    assert rows["t"][:, 0].tolist() == [3, 0, 0, 0, 1]
    jax.tree.map(np.testing.assert_array_equal, before, twins.state)


def test_evaluation_initializer(platform):
    twins = Twins(table(eval_initializer=jde.initializers.constant(-2.5)))
    twins.lookup({"t": [1]})
    rows, _ = twins.find({"t": [1, 2, -1]})
    assert rows["t"][:, 7].tolist() == [1, -2.5, 0]


def test_reserved_ids_are_not_found(platform):
    # jde.ids refuses them by value; words made by hand reach the kernel
    twins = Twins(table(eval_initializer=jde.initializers.constant(9.0)))
    words = np.array([-2, -3, -4, -1, 5]).astype(np.int64).view(np.uint32)
    words = words.reshape(5, 2)
    rows, found, _ = twins.coll.find(twins.state, {"t": jax.numpy.asarray(words)})
    assert not np.asarray(found["t"]).any()
    assert np.asarray(rows["t"])[:, 0].tolist() == [9, 9, 9, 0, 9]


def test_ids_of_any_shape(platform):
    twins = Twins(table())
    keys = np.arange(24).reshape(2, 3, 4) * 10**15
    twins.lookup({"t": keys[:1]})
    rows, found = twins.find({"t": keys})
    assert rows["t"].shape == (2, 3, 4, 8)
    assert found["t"].shape == (2, 3, 4)
    assert found["t"][0].all() and not found["t"][1].any()
    rows, found = twins.find({"t": np.int64(5 * 10**15)})
    assert rows["t"].shape == (8,) and found["t"].shape == () and found["t"]


def test_full_bucket(platform):
    twins = Twins(table())
    keys = keys_of_bucket(1, 2, 160)
    twins.lookup({"t": keys[:128]})
    _, found = twins.find({"t": keys})
    assert found["t"].tolist() == [True] * 128 + [False] * 32


def test_several_features_of_one_table(platform):
    twins = Twins(table(feature_names=("a", "b")))
    twins.lookup({"a": [1, 2]})
    rows, found = twins.find({"a": [2, 3], "b": [[1, 3]]})
    assert found["a"].tolist() == [True, False]
    assert found["b"].tolist() == [[True, False]]
    assert rows["b"][0, 0, 0] == 1
    assert twins.find({"b": [2]})[1]["b"].all()
