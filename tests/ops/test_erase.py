# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""erase removes a key, and its slot is free again."""

import numpy as np

import jax_dynemb as jde
from keys import keys_of_bucket
from support import Twins, export, stat


def make(**options) -> Twins:
    options = {"dim": 4, "capacity": 256} | options
    return Twins(jde.TableConfig(name="t", **options))


def test_erased_keys_are_gone_others_stay(platform):
    twins = make()
    twins.lookup({"t": [1, 2, 3, 4]})
    twins.erase({"t": [2, 4, 9, -1, 2]})  # unseen, padding, twice
    assert set(export(twins.coll, twins.state, "t")) == {1, 3}
    assert stat(twins, "t/rows") == 2 and stat(twins, "t/inserted") == 4
    assert twins.find({"t": [1, 2, 3, 4]})[1]["t"].tolist() == [1, 0, 1, 0]
    twins.check()


def test_an_erased_key_starts_anew(platform):
    twins = make(optimizer=jde.optim.adam(0.5))
    first, residuals = twins.lookup({"t": [5, 6]})
    twins.apply(residuals, {"t": np.ones((2, 4))})
    twins.erase({"t": [5]})
    rows, _ = twins.lookup({"t": [5, 6]})
    np.testing.assert_array_equal(rows["t"][0], first["t"][0])
    assert (rows["t"][1] != first["t"][1]).all()
    twins.check()


def test_the_place_is_free_again(platform):
    twins = make(on_full="refuse")
    keys = keys_of_bucket(0, 2, 140)
    twins.lookup({"t": keys[:128]})
    twins.erase({"t": keys[3:15]})
    twins.lookup({"t": keys[128:]})
    assert set(export(twins.coll, twins.state, "t")) == set(keys[:3] + keys[15:])
    assert stat(twins, "t/refused") == stat(twins, "t/evicted") == 0
    twins.check()


def test_every_slot_of_a_bucket_can_be_emptied(platform):
    twins = make()
    keys = keys_of_bucket(1, 2, 128)
    for _ in range(3):
        twins.lookup({"t": keys})
        twins.erase({"t": keys[::-1]})
        assert stat(twins, "t/rows") == 0
    twins.check()


def test_updates_of_erased_rows_are_counted(platform):
    twins = make()
    _, residuals = twins.lookup({"t": [1, 2, 1]})
    twins.erase({"t": [1]})
    twins.apply(residuals, {"t": np.ones((3, 4))})
    assert stat(twins, "t/lost_updates") == 2
    twins.check()


def test_who_takes_the_slot_of_an_erased_row_gets_none_of_its_gradients(platform):
    twins = make(on_full="refuse")
    keys = keys_of_bucket(1, 2, 129)
    _, residuals = twins.lookup({"t": keys[:128]})
    twins.erase({"t": keys[5:6]})
    twins.lookup({"t": keys[128:]})  # there is one slot for it
    twins.apply(residuals, {"t": np.ones((128, 4))})
    assert stat(twins, "t/lost_updates") == 1 and stat(twins, "t/refused") == 0
    twins.check()


def test_who_takes_a_slot_after_a_clear_gets_no_gradients_from_before(platform):
    twins = make()
    keys = keys_of_bucket(1, 2, 256)
    _, residuals = twins.lookup({"t": keys[:128]})
    twins.state = twins.coll.clear(twins.state)
    twins.oracle.clear()
    twins.lookup({"t": keys[128:]})  # as many as there are slots
    twins.apply(residuals, {"t": np.ones((128, 4))})
    assert stat(twins, "t/lost_updates") == 128
    twins.check()


def test_erase_in_one_of_two_tables(platform):
    twins = Twins(*(jde.TableConfig(name=n, dim=2, capacity=256) for n in "ab"))
    twins.lookup({"a": [1, 2], "b": [1, 2]})
    twins.erase({"b": [1]})
    assert (stat(twins, "a/rows"), stat(twins, "b/rows")) == (2, 1)
    twins.check()
