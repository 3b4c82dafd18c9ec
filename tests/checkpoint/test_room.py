# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""No restore drops rows unless the caller allows it."""

import dataclasses
import re

import jax
import numpy as np
import optax
import pytest
from flax import nnx

import jax_dynemb as jde
from meshes import mesh_of
from support import advised_capacity

SMALL = jde.TableConfig(
    "item",
    4,
    1024,
    max_capacity=65_536,
    score_strategy="no_eviction",
    initializer=jde.initializers.normal(0.1),
)
OTHER = dataclasses.replace(SMALL, name="shop", feature_names=(), capacity=512)
IDS = np.arange(3000)


class Model(nnx.Module):
    def __init__(self, *tables: jde.TableConfig, mesh=None):
        rngs = nnx.Rngs(0)
        self.sparse = jde.nnx.EmbeddingCollection(tables, rngs=rngs, mesh=mesh)
        self.top = nnx.Linear(4, 1, rngs=rngs)


def grown_run(folder, *tables: jde.TableConfig, mesh=None) -> Model:
    """A saved run whose first table has grown to hold 3,000 rows."""
    model = Model(*tables, mesh=mesh)
    model.sparse.grow({"item": 4096})
    ids = {"item": jde.ids(IDS)}
    if len(tables) > 1:
        ids["shop"] = jde.ids(IDS[:300])
    model.sparse(ids)
    optimizer = jde.nnx.Optimizer(model, optax.adam(1e-3))
    run = {"model": model, "optimizer": optimizer}
    jde.checkpoint.save(folder, 40, run, wait=True)
    return model


def rows(model: Model, table: str = "item") -> np.ndarray:
    model.sparse.eval()
    found = np.asarray(model.sparse({table: jde.ids(IDS)})[table])
    model.sparse.train()
    return found


MIXES = {
    "alone": ([SMALL], None),
    "shared": ([SMALL, OTHER], None),
    "mesh": ([SMALL, OTHER], 2),
    "uneven": ([SMALL, OTHER], 3),
    "tier": (
        [dataclasses.replace(SMALL, tier=jde.tiers.host(hbm_fraction=0.5))],
        None,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("mix", MIXES)
def test_the_same_script_goes_on_with_grown_tables(mix, tmp_path):
    tables, devices = MIXES[mix]
    mesh = None if devices is None else mesh_of(devices)
    before = grown_run(tmp_path, *tables, mesh=mesh)
    model = Model(*tables, mesh=mesh)
    optimizer = jde.nnx.Optimizer(model, optax.adam(1e-3))
    old = model.sparse.get_state()
    run = {"model": model, "optimizer": optimizer}
    restored = jde.checkpoint.restore(tmp_path, run)
    assert restored.notes == (
        "Table 'model/sparse/tables/item' has grown from 1024 to the 4096 slots that "
        "its rows need.",
    )
    first = model.sparse.coll.state_name("item")
    assert old[first].values.is_deleted()
    assert model.sparse.coll == before.sparse.coll
    stats = model.sparse.stats()
    assert stats["item/capacity"] == 4096 and stats["item/rows"] > 2900
    old_stats = before.sparse.stats()
    for name in ("rows", "inserted", "refused", "evicted", "lookups", "step"):
        assert stats[f"item/{name}"] == old_stats[f"item/{name}"]
    np.testing.assert_array_equal(rows(model), rows(before))
    if len(tables) > 1:
        np.testing.assert_array_equal(rows(model, "shop"), rows(before, "shop"))
    # And it trains, and grows further.
    step(model, optimizer, {"item": jde.ids(IDS + 10_000)})
    model.sparse.grow({"item": 16_384})
    step(model, optimizer, {"item": jde.ids(IDS + 20_000)})
    assert model.sparse.stats()["item/rows"] > stats["item/rows"]


@jde.nnx.jit
def step(model, optimizer, ids):
    def loss_fn(model):
        return (model.top(model.sparse(ids)["item"]) ** 2).sum()

    loss, grads = jde.nnx.value_and_grad(loss_fn)(model)
    optimizer.update(model, grads)
    return loss


def test_an_abstract_model_grows_too(tmp_path):
    before = grown_run(tmp_path, SMALL)
    model = nnx.eval_shape(lambda: Model(SMALL))
    jde.checkpoint.restore(tmp_path, {"model": model})
    np.testing.assert_array_equal(rows(model), rows(before))


def test_a_module_grows_no_further_than_its_bound(tmp_path):
    before = grown_run(tmp_path, SMALL)
    model = Model(dataclasses.replace(SMALL, max_capacity=2048))
    refused = r"of 3000 rows would find no place .* Raise max_capacity to 4096 or more"
    with pytest.raises(ValueError, match=refused):
        jde.checkpoint.restore(tmp_path, {"model": model})
    assert model.sparse.stats()["item/rows"] == 0  # lives on
    model = Model(dataclasses.replace(SMALL, max_capacity=4096))
    jde.checkpoint.restore(tmp_path, {"model": model})
    assert model.sparse.stats()["item/rows"] == before.sparse.stats()["item/rows"]


def test_rows_are_dropped_where_that_is_allowed(tmp_path):
    before = grown_run(tmp_path, SMALL)
    model = Model(SMALL)
    with pytest.warns(UserWarning, match=r"rows found no place") as caught:
        restored = jde.checkpoint.restore(tmp_path, {"model": model}, allow_drop=True)
    assert model.sparse.stats()["item/rows"] == 1024
    left = before.sparse.stats()["item/rows"] - 1024
    assert f"{left} of {left + 1024} rows" in str(caught[0].message)
    assert str(caught[0].message) in restored.notes


def test_dropped_rows_are_in_the_log(tmp_path, caplog):
    grown_run(tmp_path, SMALL)
    with pytest.warns(UserWarning):
        jde.checkpoint.restore(tmp_path, {"model": Model(SMALL)}, allow_drop=True)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "rows found no place" in caplog.text


def plain(folder, coll: jde.Tables, ids=IDS):
    _, _, state = coll.lookup(coll.init(0), {"item": jde.ids(ids)})
    jde.checkpoint.save(folder, 1, state, tables=coll, wait=True)
    return state


@pytest.mark.parametrize("devices", [None, 2])
def test_plain_states_are_refused_and_the_advice_works(devices, tmp_path):
    mesh = None if devices is None else mesh_of(devices)
    small = jde.Tables([SMALL, OTHER], mesh=mesh)
    large, _ = small.grow(small.init(0), {"item": 4096})
    held = large.stats(plain(tmp_path, large))["item/rows"]
    state = small.init(1)
    with pytest.raises(ValueError, match="rows would find no place") as raised:
        jde.checkpoint.restore(tmp_path, state, tables=small)
    sentence = str(raised.value)
    assert f"of {held} rows" in sentence and "has 1024 slots" in sentence
    assert "It was saved with 4096" in sentence
    assert small.stats(state)["item/rows"] == 0  # lives on
    # The three ways out of the sentence.
    call = re.search(r"(coll, state = coll\.grow\(.*?\)), and restore", sentence)
    assert call is not None
    names = {"coll": small}
    exec(call[1], names)
    coll, state = names["coll"], names["state"]
    restored = jde.checkpoint.restore(tmp_path, state, tables=coll)
    assert coll.stats(restored.tree)["item/rows"] == held and coll == large
    declared = dataclasses.replace(SMALL, capacity=advised_capacity(raised.value))
    coll = jde.Tables([declared, OTHER], mesh=mesh)
    restored = jde.checkpoint.restore(tmp_path, coll.init(2), tables=coll)
    assert coll.stats(restored.tree)["item/rows"] == held
    with pytest.warns(UserWarning, match="rows found no place"):
        restored = jde.checkpoint.restore(
            tmp_path, small.init(3), tables=small, allow_drop=True
        )
    assert small.stats(restored.tree)["item/rows"] == 1024


def test_a_smaller_table_with_room_for_every_row_is_taken(tmp_path):
    small, large = (
        jde.Tables([SMALL]),
        jde.Tables([dataclasses.replace(SMALL, capacity=4096)]),
    )
    plain(tmp_path, large, IDS[:500])
    restored = jde.checkpoint.restore(tmp_path, small.init(1), tables=small)
    assert small.stats(restored.tree)["item/rows"] == 500


def test_another_hash_seed_grows_until_every_row_has_a_place(tmp_path):
    """Full buckets fall into others unevenly, so an equal size is not enough."""
    seeded = dataclasses.replace(SMALL, hash_seed=5)
    full = np.arange(20_000)
    before = Model(SMALL)
    before.sparse({"item": jde.ids(full)})
    assert before.sparse.stats()["item/rows"] == 1024
    jde.checkpoint.save(tmp_path, 1, {"model": before}, wait=True)
    model = Model(seeded)
    jde.checkpoint.restore(tmp_path, {"model": model})
    stats = model.sparse.stats()
    assert stats["item/rows"] == 1024 and stats["item/capacity"] == 2048
    coll = jde.Tables([seeded])
    state = jax.tree.map(lambda x: x, before.sparse.get_state())
    jde.checkpoint.save(tmp_path / "plain", 1, state, tables=before.sparse.coll)
    with pytest.raises(ValueError, match="of 1024 rows would find no place") as raised:
        jde.checkpoint.restore(tmp_path / "plain", coll.init(0), tables=coll)
    assert advised_capacity(raised.value) == 2048


def test_rows_of_a_store_need_a_place_too(tmp_path):
    config = jde.TableConfig("item", 4, 1024)
    store = jde.stores.Memory(config)
    tier = jde.tiers.external(store, hbm_fraction=0.5)
    coll = jde.Tables([dataclasses.replace(config, tier=tier)])
    batches = [{"item": jde.ids(IDS[i : i + 500])} for i in range(0, 3000, 500)]
    state = coll.init(0)
    with jde.tiers.prefetch_rows(coll, batches) as prefetcher:
        for _ in batches:
            ids, state = prefetcher.next(state)
            _, _, state = coll.lookup(state, ids)
        jde.checkpoint.save(
            tmp_path, 1, state, tables=coll, prefetcher=prefetcher, wait=True
        )
    without = jde.Tables([config])
    state, stores = without.init(0), {"item": store}
    with pytest.raises(ValueError, match="rows would find no place") as raised:
        jde.checkpoint.restore(tmp_path, state, tables=without, stores=stores)
    assert without.stats(state)["item/rows"] == 0
    large = jde.Tables(
        [dataclasses.replace(config, capacity=advised_capacity(raised.value))]
    )
    found = jde.checkpoint.restore(tmp_path, large.init(0), tables=large, stores=stores)
    held = large.stats(found.tree)["item/rows"]
    assert held > 1024 and f"of {held} rows" in str(raised.value)
