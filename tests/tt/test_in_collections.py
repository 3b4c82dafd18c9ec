# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tensor-train tables beside dynamic ones: one collection, on one device and a mesh."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import jax_dynemb as jde
from oracle import tt_core_gradients, tt_lookup, tt_row_numbers, tt_table
from support import HostJagged, without_identity

ROWS = 320
ITEM = jde.TTConfig(
    "item",
    16,
    ROWS,
    (6, 5),
    initializer=jde.tt.normal(1.0),
    optimizer=jde.optim.sgd(0.1),
    feature_names=("item", "last_item"),
    pooling="sum",
    compute_dtype="float32",
)
USER = jde.TableConfig("user", dim=8, capacity=1024, optimizer=jde.optim.sgd(0.5))


def batch(seed: int = 0, size: int = 16) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "last_item": rng.integers(-1, ROWS + 5, (size, 3)),
        "user": rng.integers(0, 40, size),
        "item": rng.integers(-1, ROWS, (size, 2)),
    }


def on_device(ids: dict[str, Any]) -> dict[str, Any]:
    return {name: jde.ids(each) for name, each in ids.items()}


def mesh_of(devices: int) -> Mesh:
    return Mesh(np.array(jax.devices("cpu")[:devices]), ("data",))


def oracle_rows(cores: Any, ids: np.ndarray, weights: Any = None) -> np.ndarray:
    numbers = tt_row_numbers(ids.reshape(-1), ROWS, ITEM.num_rows, False)
    return tt_lookup([np.asarray(c) for c in cores], numbers, ids, weights, "sum")


def oracle_sums(cores: Any, parts: list[tuple[np.ndarray, np.ndarray]]) -> list[Any]:
    """Gradients of cores of several lookups, with rows of NaN as zeros."""
    sums = [np.zeros(c.shape) for c in cores]
    host = [np.asarray(c) for c in cores]
    for ids, d_rows in parts:
        numbers = tt_row_numbers(ids.reshape(-1), ROWS, ITEM.num_rows, False)
        finite = np.where(np.isfinite(d_rows).all(-1, keepdims=True), d_rows, 0)
        one = tt_core_gradients(host, numbers, ids, None, "sum", finite)
        sums = [a + b for a, b in zip(sums, one, strict=True)]
    return sums


def assert_close(mine: Any, theirs: Any, tolerance: float = 1e-5) -> None:
    for a, b in zip(mine, theirs, strict=True):
        scale = np.abs(b).max() + 1e-30
        np.testing.assert_allclose(a / scale, b / scale, atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("shards", [None, 1, 4, 8])
def test_a_step_of_both_kinds(shards):
    mesh = None if shards is None else mesh_of(shards)
    coll = jde.Tables([ITEM, USER], mesh=mesh)
    alone = jde.Tables([USER], mesh=mesh)
    state, ids = coll.init(3), batch(size=13 if shards == 4 else 16)
    rows, residual, state = jax.jit(coll.lookup)(state, on_device(ids))
    assert list(rows) == ["item", "last_item", "user"]
    cores = state["item"].cores
    assert_close(cores, jde.tt.init(ITEM, 3).cores, 1e-6)
    for name in ("item", "last_item"):
        np.testing.assert_allclose(
            rows[name], oracle_rows(cores, ids[name]), rtol=1e-5, atol=1e-4
        )
    only = alone.lookup(alone.init(3), {"user": jde.ids(ids["user"])})[0]
    np.testing.assert_array_equal(rows["user"], only["user"])
    rng = np.random.default_rng(1)
    d_rows = {n: rng.normal(size=r.shape).astype(np.float32) for n, r in rows.items()}
    d_rows["item"][2, 3] = np.nan
    after = jax.jit(coll.apply_gradients)(state, residual, d_rows)
    parts = [(ids[name], d_rows[name]) for name in ("item", "last_item")]
    moved = [(a - b) / -0.1 for a, b in zip(after["item"].cores, cores, strict=True)]
    assert_close(moved, oracle_sums(cores, parts), 2e-5)
    stats = coll.stats(after)
    assert stats["item/nonfinite"] == 1
    assert stats["item/out_of_range"] == (ids["last_item"] >= ROWS).sum()
    assert stats["item/num_embeddings"] == ROWS
    assert stats["user/rows"] == len(set(ids["user"].tolist()))
    found = coll.find(after, on_device(ids))[1]
    inside = (ids["last_item"] >= 0) & (ids["last_item"] < ROWS)
    np.testing.assert_array_equal(found["last_item"], inside)


@pytest.mark.parametrize("shards", [None, 4])
def test_bags_of_any_length_with_weights(shards):
    coll = jde.Tables([ITEM], mesh=None if shards is None else mesh_of(shards))
    state, rng = coll.init(0), np.random.default_rng(2)
    bags = [list(rng.integers(0, ROWS, n)) for n in (3, 0, 7, 1, 0, 12)]
    host = HostJagged.of(bags, capacity=32)
    ids = {"item": jde.Jagged(jde.ids(host.values), jnp.asarray(host.lengths))}
    weights = rng.random(32).astype(np.float32)
    rows, residual, state = coll.lookup(state, ids, {"item": jnp.asarray(weights)})
    cores = [np.asarray(core) for core in state["item"].cores]
    flat = np.where(np.arange(32) < host.lengths.sum(), host.values, -1)
    numbers = tt_row_numbers(flat, ROWS, ITEM.num_rows, False)
    want = tt_lookup(cores, numbers, host, weights, "sum")
    np.testing.assert_allclose(rows["item"], want, rtol=1e-4, atol=1e-4)
    d_rows = rng.normal(size=want.shape).astype(np.float32)
    got, _ = coll.weight_gradients(state, residual, {"item": d_rows})
    table, bag = tt_table(cores), np.repeat(np.arange(6), host.lengths)
    truth = np.zeros(32)
    live = np.arange(host.lengths.sum())
    truth[live] = (d_rows[bag] * table[host.values[live]]).sum(1)
    np.testing.assert_allclose(got["item"], truth, rtol=1e-4, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("shards", [None, 2])
def test_lookups_in_lists_and_under_scan(shards):
    """Two micro-batches update once: as a list, or stacked by scan."""
    coll = jde.Tables([ITEM, USER], mesh=None if shards is None else mesh_of(shards))
    start = coll.init(0)
    both = [batch(seed) for seed in (5, 6)]
    residuals, gradients, state = [], [], start
    for ids in both:
        rows, residual, state = coll.lookup(state, on_device(ids))
        residuals.append(residual)
        gradients.append({n: jnp.cos(r) for n, r in rows.items()})
    as_list = coll.apply_gradients(state, residuals, gradients)
    parts = [
        (ids[name], np.asarray(d[name]))
        for ids, d in zip(both, gradients, strict=True)
        for name in ("item", "last_item")
    ]
    cores = start["item"].cores
    moved = [(a - b) / -0.1 for a, b in zip(as_list["item"].cores, cores, strict=True)]
    assert_close(moved, oracle_sums(cores, parts), 2e-5)

    def micro(state, ids):
        rows, residual, state = coll.lookup(state, ids)
        return state, (residual, {n: jnp.cos(r) for n, r in rows.items()})

    stacked = {n: jde.ids(np.stack([ids[n] for ids in both])) for n in both[0]}
    state, (residual, d_rows) = jax.lax.scan(micro, coll.init(0), stacked)
    scanned = coll.apply_gradients(state, residual, d_rows)
    assert_close(scanned["item"].cores, as_list["item"].cores)


def test_a_learning_rate_of_one_step():
    coll = jde.Tables([ITEM, USER])
    state = coll.init(0)
    rows, residual, state = coll.lookup(state, on_device(batch()))
    slow = coll.apply_gradients(state, residual, rows, learning_rate={"item": 0.01})
    fast = coll.apply_gradients(state, residual, rows)
    for before, a, b in zip(
        state["item"].cores, slow["item"].cores, fast["item"].cores, strict=True
    ):
        np.testing.assert_allclose((a - before) * 10, b - before, rtol=2e-2, atol=1e-5)


def test_clipping_counts_cores_and_rows():
    coll = jde.Tables([ITEM, USER])
    state, ids = coll.init(0), batch()
    rows, residual, state = coll.lookup(state, on_device(ids))
    d_rows = {n: jnp.sin(r) for n, r in rows.items()}
    clipped = jde.optim.clip_by_global_norm(0.5, coll, state, residual, d_rows)
    parts = [(ids[n], np.asarray(d_rows[n])) for n in ("item", "last_item")]
    squares = sum((g**2).sum() for g in oracle_sums(state["item"].cores, parts))
    for user in set(ids["user"].tolist()):
        squares += (np.asarray(d_rows["user"])[ids["user"] == user].sum(0) ** 2).sum()
    np.testing.assert_allclose(clipped.norm, np.sqrt(squares), rtol=1e-4)


@pytest.mark.parametrize("ranks", [(6, 5)])
@pytest.mark.parametrize("shards", [None, 4])
def test_rows_stream_out(shards, ranks):
    coll = jde.Tables([ITEM, USER], mesh=None if shards is None else mesh_of(shards))
    state = coll.init(0)
    chunks = list(coll.export(state, "item"))
    keys = np.concatenate([chunk.keys for chunk in chunks])
    np.testing.assert_array_equal(keys, np.arange(ROWS))
    rows = np.concatenate([chunk.rows for chunk in chunks])
    want = tt_table([np.asarray(core) for core in state["item"].cores])[:ROWS]
    np.testing.assert_allclose(rows, want, rtol=1e-5, atol=1e-4)


def test_clear_makes_the_initial_cores():
    coll = jde.Tables([ITEM, USER])
    start = coll.init(7)
    rows, residual, state = coll.lookup(start, on_device(batch()))
    state = coll.clear(coll.apply_gradients(state, residual, rows))
    own = (jax.tree.map(without_identity, each["item"]) for each in (state, start))
    jax.tree.map(np.testing.assert_array_equal, *own)
    assert coll.stats(state)["user/rows"] == 0


def test_inside_a_shard_map_of_the_caller():
    mesh, ids = mesh_of(4), batch()
    whole = jde.Tables([ITEM, USER], mesh=mesh)
    inside = jde.Tables([ITEM, USER], axis_name="data")
    state, split = whole.init(0), PartitionSpec("data")
    specs = whole.partition_specs()

    def step(state, ids):
        rows, residual, state = inside.lookup(state, ids)
        return rows, inside.apply_gradients(state, residual, rows)

    mapped = jax.shard_map(
        step,
        mesh=mesh,
        in_specs=(specs, split),
        out_specs=(split, specs),
        check_vma=False,
    )
    rows, after = jax.jit(mapped)(state, on_device(ids))
    want, residual, new = whole.lookup(state, on_device(ids))
    for name in want:
        np.testing.assert_allclose(rows[name], want[name], rtol=1e-6, atol=1e-6)
    expected = whole.apply_gradients(new, residual, want)
    assert_close(after["item"].cores, expected["item"].cores)


def test_explicit_axes():
    mesh = jax.make_mesh(
        (4,), ("data",), (jax.sharding.AxisType.Explicit,), devices=jax.devices()[:4]
    )
    coll = jde.Tables([ITEM], mesh=mesh)
    with jax.set_mesh(mesh):
        state, ids = coll.init(0), batch(size=10)
        given = {"item": jde.ids(ids["item"])}
        rows, residual, state = jax.jit(coll.lookup)(state, given)
        after = jax.jit(coll.apply_gradients)(state, residual, rows)
    cores = coll.init(0)["item"].cores
    np.testing.assert_allclose(
        rows["item"], oracle_rows(cores, ids["item"]), rtol=1e-5, atol=1e-4
    )
    parts = [(ids["item"], np.asarray(rows["item"]))]
    moved = [(a - b) / -0.1 for a, b in zip(after["item"].cores, cores, strict=True)]
    assert_close(moved, oracle_sums(cores, parts), 2e-5)


@pytest.mark.parametrize("shards", [None, 2])
def test_a_flax_collection_of_both_kinds(shards):
    mesh = None if shards is None else mesh_of(shards)

    class Model(nnx.Module):
        def __init__(self, rngs):
            tables = [dataclasses.replace(USER, pooling="sum"), ITEM]
            self.sparse = jde.nnx.EmbeddingBagCollection(tables, rngs=rngs, mesh=mesh)
            self.top = nnx.Linear(24, 1, rngs=rngs)

        def __call__(self, ids):
            rows = self.sparse(ids)
            return self.top(jnp.concatenate(list(rows.values()), axis=1))[:, 0]

    model = Model(nnx.Rngs(0))
    if mesh is not None:
        everywhere = NamedSharding(mesh, PartitionSpec())
        nnx.update(model.top, jax.device_put(nnx.state(model.top), everywhere))
    optimizer = jde.nnx.Optimizer(model, optax.adam(1e-2))
    rng = np.random.default_rng(0)
    ids = {"user": rng.integers(0, 40, (64, 2)), "item": rng.integers(0, ROWS, (64, 2))}
    label = jnp.asarray((ids["item"][:, 0] < ROWS // 2) * 1.0)

    @jde.nnx.jit
    def step(model, optimizer, ids):
        def loss_fn(model):
            return optax.sigmoid_binary_cross_entropy(model(ids), label).mean()

        loss, grads = jde.nnx.value_and_grad(loss_fn)(model)
        optimizer.update(model, grads)
        return loss

    losses = [float(step(model, optimizer, on_device(ids))) for _ in range(60)]
    assert losses[-1] < 0.5 * losses[0]
    assert model.sparse.stats()["item/out_of_range"] == 0


ONE_ID, SLOT = {"item": jde.ids([[1]])}, {"item": np.zeros(1, np.int32)}


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda c, s: c.insert(s, ONE_ID, {"item": np.ones((1, 16))}), "insert"),
        (lambda c, s: c.erase(s, ONE_ID), "erase"),
        (lambda c, s: c.grow(s, {"item": 1000}), "grow"),
        (lambda c, s: c.set_score(s, {"item": 1}), "set_score"),
        (lambda c, s: c.apply_delta(s, "item", []), "apply_delta"),
        (lambda c, s: c.gather(s, SLOT), "gather"),
        (lambda c, s: c.scatter(s, SLOT, {"item": {}}), "scatter"),
        (lambda c, s: c.lookup(s, ONE_ID, scores={"item": 1}), "scores"),
        (lambda c, s: list(c.export(s, "item", since=3)), "delta"),
    ],
)
def test_what_a_tensor_train_does_not_have(call, what):
    coll = jde.Tables([ITEM, USER])
    with pytest.raises(ValueError, match=f"(?s)({what}.*item|item.*{what})"):
        call(coll, coll.init(0))


def test_without_an_optimizer_the_caller_updates():
    coll = jde.Tables([dataclasses.replace(ITEM, optimizer=None), USER])
    state = coll.init(0)
    rows, residual, state = coll.lookup(state, on_device(batch()))
    with pytest.raises(ValueError, match="core_gradients"):
        coll.apply_gradients(state, residual, rows)
    reduced, _ = coll.reduce_gradients(state, residual, rows)
    assert [g.shape for g in reduced["item"].cores] == list(ITEM.core_shapes)


# ---- residuals -----------------------------------------------------------------------

HOT = dataclasses.replace(ITEM, residual=1024)


@pytest.mark.parametrize(
    ("shards", "capacity", "sharding"),
    [(None, 1024, "row_wise"), (4, 1024, "row_wise"), (8, 100, "replicated")],
)
def test_a_residual_adds_rows_that_begin_as_zeros(shards, capacity, sharding):
    """A table that is too small for equal shares is copied to each device."""
    mesh = None if shards is None else mesh_of(shards)
    hot = dataclasses.replace(ITEM, residual=capacity)
    coll, alone = jde.Tables([hot, USER], mesh=mesh), jde.Tables([ITEM], mesh=mesh)
    assert coll.tables["item_residual"].sharding == sharding
    assert list(coll.tables) == ["item", "user", "item_residual"]
    state, ids = coll.init(1), batch()
    rows, residual, state = coll.lookup(state, on_device(ids))
    items = {n: jde.ids(ids[n]) for n in ("item", "last_item")}
    plain = alone.lookup(alone.init(1), items)[0]
    for name in items:  # the same bits
        np.testing.assert_array_equal(rows[name], plain[name])
    d_rows = {n: jnp.cos(r) for n, r in rows.items()}
    after = coll.apply_gradients(state, residual, d_rows)
    live = {n: (ids[n] >= 0) & (ids[n] < ROWS) for n in items}
    seen = set(np.concatenate([ids[n][live[n]] for n in items]).tolist())
    assert coll.stats(after)["item_residual/rows"] == len(seen)
    moved = np.zeros((ROWS, 16))
    for name in items:
        bag, place = np.nonzero(live[name])
        np.add.at(moved, ids[name][bag, place], np.asarray(d_rows[name])[bag])
    table = tt_table([np.asarray(core) for core in after["item"].cores])[:ROWS]
    table = table - 0.1 * moved
    found, _, _ = coll.find(after, on_device(ids))
    for name in items:
        each = np.where(
            live[name][..., None], table[np.clip(ids[name], 0, ROWS - 1)], 0
        )
        np.testing.assert_allclose(found[name], each.sum(1), rtol=1e-4, atol=1e-3)


def test_an_evicted_residual_loses_a_correction_and_no_row():
    one = jde.TableConfig(
        "hot", 16, 128, initializer=jde.initializers.zeros(), score_strategy="lfu"
    )
    coll = jde.Tables([dataclasses.replace(ITEM, residual=one, pooling=None)])
    state = coll.init(0)
    for first in (0, 160):
        ids = {"item": jde.ids(np.arange(first, first + 160))}
        rows, residual, state = coll.lookup(state, ids)
        d_rows = {"item": jnp.sin(rows["item"])}
        state = coll.apply_gradients(state, residual, d_rows)
    stats = coll.stats(state)
    assert stats["hot/rows"] == stats["hot/capacity"] < ROWS
    kept = {int(key) for chunk in coll.export(state, "hot") for key in chunk.keys}
    rows, found, state = coll.find(state, {"item": jde.ids(np.arange(ROWS))})
    table = tt_table([np.asarray(core) for core in state["item"].cores])[:ROWS]
    gone = np.array(sorted(set(range(ROWS)) - kept))
    np.testing.assert_allclose(rows["item"][gone], table[gone], rtol=1e-4, atol=1e-4)
    assert bool(found["item"].all())


def test_a_residual_grows_and_has_weights():
    coll = jde.Tables([HOT])
    state = coll.init(0)
    coll, state = coll.grow(state, {"item_residual": 2000})
    assert coll.tables["item_residual"].capacity >= 2000
    ids, weights = batch()["item"], np.random.default_rng(0).random((16, 2))
    given = {"item": jnp.asarray(weights, jnp.float32)}
    rows, residual, state = coll.lookup(state, {"item": jde.ids(ids)}, given)
    state = coll.apply_gradients(state, residual, rows)
    rows, residual, state = coll.lookup(state, {"item": jde.ids(ids)}, given)
    d_weights, state = coll.weight_gradients(state, residual, {"item": rows["item"]})
    each, _, _ = coll.with_tables(
        [dataclasses.replace(HOT, pooling=None), coll.tables["item_residual"]]
    ).find(state, {"item": jde.ids(ids)})
    want = (np.asarray(rows["item"])[:, None] * np.asarray(each["item"])).sum(-1)
    np.testing.assert_allclose(d_weights["item"], want, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("options", "fix"),
    [
        ({"dim": 8}, "must have dim 16"),
        ({"key_dtype": "int32"}, "'int64'"),
        ({"pooling": "mean"}, "leave feature_names and pooling out"),
        ({"feature_names": ("a",)}, "leave feature_names and pooling out"),
        ({"initializer": jde.initializers.normal()}, "zeros"),
    ],
)
def test_residuals_that_do_not_fit(options, fix):
    fields = {"dim": 16, "initializer": jde.initializers.zeros()} | options
    with pytest.raises(ValueError, match=fix):
        dataclasses.replace(
            ITEM, residual=jde.TableConfig("hot", capacity=128, **fields)
        )


def test_a_residual_needs_a_collection():
    with pytest.raises(ValueError, match=r"jde\.Tables\(\[config\]\)"):
        jde.tt.init(HOT, 0)


@pytest.mark.parametrize("ids", ["index", "hash"])
def test_ids_of_32_bits(ids):
    """Ids of int32, in a program and out of it, with a residual beside."""
    wide = dataclasses.replace(HOT, ids=ids)
    narrow = dataclasses.replace(wide, key_dtype="int32", residual=1024)
    both = []
    for config, make in ((wide, jde.ids), (narrow, lambda x: jnp.asarray(x, "int32"))):
        coll = jde.Tables([config])
        state = coll.init(0)
        for seed in range(2):
            item = make(batch(seed)["item"])
            rows, residual, state = coll.lookup(state, {"item": item})
            state = coll.apply_gradients(state, residual, rows)
        both.append((rows["item"], *state["item"].cores))
        assert coll.tables["item_residual"].key_dtype == config.key_dtype
    for mine, theirs in zip(*both, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_ids_of_32_bits_where_64_are_expected():
    with pytest.raises(TypeError, match="the table's config key_dtype='int32'"):
        jde.tt.find(ITEM, jde.tt.init(ITEM, 0).cores, jnp.array([[1, 2]]))
