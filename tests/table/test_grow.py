# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Growth: every row stays as it is, and there is room for more."""

import dataclasses

import jax
import numpy as np
import optax
import pytest

import jax_dynemb as jde
from growth import TABLES, check_growth
from jax_dynemb._src.engines.shard.grow import larger
from keys import keys_of_bucket
from support import Twins, export


def test_on_one_device(platform):
    check_growth(Twins(*TABLES))


def test_gradients_of_a_lookup_before_reach_no_other_row(platform):
    coll = jde.Tables([jde.TableConfig("t", dim=2, capacity=256)])
    ids = {"t": jde.ids(np.array(keys_of_bucket(1, 2, 8)))}
    _, residual, state = coll.lookup(coll.init(0), ids)
    grown, state = coll.grow(state, {"t": 512})
    # The keys of bucket 1 are in bucket 2 or 3 now, those of bucket 0 in 0 or 1.
    _, _, state = grown.lookup(
        state, {"t": jde.ids(np.array(keys_of_bucket(0, 2, 99)))}
    )
    before = export(grown, state, "t")
    state = grown.apply_gradients(state, residual, {"t": np.ones((8, 2), np.float32)})
    after = export(grown, state, "t")
    assert before.keys() == after.keys() and len(after) == 107
    for key, row in before.items():
        np.testing.assert_array_equal(row.values, after[key].values)
    assert grown.stats(state)["t/lost_updates"] == 8


@pytest.mark.parametrize("buckets", [2, 4, 8, 24, 264, 520, 1024, 1088])
@pytest.mark.parametrize("rows", [1.01, 2, 5, 64])
def test_a_multiple_that_every_table_can_have(buckets, rows):
    table = jde.TableConfig("t", dim=1, capacity=buckets * 128)
    assert table.num_buckets == buckets
    wanted = int(rows * table.num_slots)
    grown = larger(table, wanted)
    assert grown.num_slots == grown.capacity >= wanted
    assert grown.num_buckets % buckets == 0
    # A power of two becomes the next power of two or less, others eight times as much.
    assert grown.num_slots < wanted * 8 + 8 * table.num_slots
    assert dataclasses.replace(grown, capacity=table.capacity) == table


def test_what_optax_stores_once_stays():
    table = jde.TableConfig("t", dim=2, capacity=256, optimizer=optax.adam(0.1))
    coll = jde.Tables([table])
    state = coll.init(0)
    ids = {"t": jde.ids(np.arange(8))}
    rows, residual, state = coll.lookup(state, ids)
    state = coll.apply_gradients(state, residual, rows)
    grown, larger_state = coll.grow(state, {"t": 512})
    assert jax.tree.leaves(state["t"].extra)
    for before, after in zip(
        jax.tree.leaves(state["t"].extra),
        jax.tree.leaves(larger_state["t"].extra),
        strict=True,
    ):
        np.testing.assert_array_equal(before, after)
    both = []
    for each, own in ((coll, state), (grown, larger_state)):
        rows, residual, own = each.lookup(own, ids)
        own = each.apply_gradients(own, residual, rows)
        both.append(export(each, own, "t"))
    assert both[0].keys() == both[1].keys()
    for key, row in both[0].items():
        np.testing.assert_array_equal(row.values, both[1][key].values)


def test_mistakes():
    coll = jde.Tables(TABLES)
    state = coll.init(0)
    with pytest.raises(ValueError, match="1024 rows already.*another TableConfig"):
        coll.grow(state, {"adam": 512})
    with pytest.raises(ValueError, match="did you mean 'adam'"):
        coll.grow(state, {"adan": 4096})
    with pytest.raises(ValueError, match="Tables that grew are others"):
        coll.grow(coll.grow(state, {"adam": 2048})[1], {"adam": 4096})
    same, as_before = coll.grow(state, {"adam": 1024})
    assert same == coll and as_before["adam"] is state["adam"]
