# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""OneEmbedding's module gives the rows of plain tables, by column or by table id."""

import dataclasses

import jax
import numpy as np
import optax
import pytest

import jax_dynemb as jde
from peer_options import given, options_of, wanted

ONE = jde.one_embedding
STORE = ONE.make_device_mem_store_options("snapshots", capacity=1000)
LAWS = [ONE.make_table(ONE.make_constant_initializer(float(t))) for t in (1, 2, 3)]
IDS = np.array([[7, 2**40, 9], [7, 7, -1]])


def embedding(laws=LAWS, capacities=(128, 128, 128), **options):
    options = {"optimizer": jde.optim.sgd(1.0)} | options
    return ONE.MultiTableEmbedding(
        "emb", 4, "float32", "int64", laws, STORE, capacities=capacities, **options
    )


def test_a_column_is_of_its_table():
    module = embedding()
    rows = module(IDS)
    want = np.array([[1, 2, 3], [1, 2, 0]])
    np.testing.assert_array_equal(rows, np.repeat(want[..., None], 4, axis=-1))
    np.testing.assert_array_equal(module(jde.ids(IDS)), rows)
    counts = [module.stats()[f"emb_{t}/rows"] for t in range(3)]
    assert counts == [1, 2, 1]  # 7 is another row in each table


@pytest.mark.parametrize("shape", [(6,), (2, 3), (1, 6, 1)])
def test_table_ids_say_the_table_of_each_id(shape):
    ids = np.arange(6).reshape(shape)
    of = np.array([0, 2, 2, 1, 0, 1]).reshape(shape)
    rows = embedding()(ids, of)
    np.testing.assert_array_equal(rows, np.repeat((of + 1.0)[..., None], 4, axis=-1))


def test_equal_tables_share_one_key_space():
    """As in OneEmbedding, where a table id only chooses the initialiser."""
    module = embedding([None, LAWS[1]], None, default_initializer=LAWS[1])
    rows = module(np.array([[5, 5], [6, 7]]))
    assert rows.shape == (2, 2, 4) and module.stats()["emb/rows"] == 3
    assert module.coll.tables["emb"].capacity == 1000
    assert module(np.array([5]), np.array([1])).shape == (1, 4)


def test_one_table_takes_ids_of_any_shape():
    module = ONE.MultiTableEmbedding("e", 4, store_options=STORE)
    assert module(np.arange(24).reshape(2, 3, 4)).shape == (2, 3, 4, 4)
    (chunk,) = module.coll.export(module.get_state(), "e")
    assert 0.03 < chunk.rows.std() < 0.07  # normal(0, 0.05), OneEmbedding's default


@pytest.mark.parametrize("key_type", ["int64", "int32", np.int64, "oneflow.int32"])
def test_a_padding_index_reads_zeros_and_has_no_row(key_type):
    module = ONE.MultiTableEmbedding(
        "e", 4, "float32", key_type, LAWS[:1], STORE, padding_idx=3
    )
    rows = module(np.array([3, 4, -1]))
    np.testing.assert_array_equal(rows[:, 0], [0, 1, 0])
    assert module.stats()["e/rows"] == 1


def test_a_step_moves_rows_by_the_sum_of_their_gradients():
    """SGD of rate 1 on sum(rows): each occurrence takes 1 from its row."""
    module = embedding()
    optimizer = jde.nnx.Optimizer(module, optax.sgd(0.1))

    @jde.nnx.jit
    def step(module, optimizer, ids):
        loss, grads = jde.nnx.value_and_grad(lambda m, i: m(i).sum())(module, ids)
        optimizer.update(module, grads)
        return loss

    ids = jde.ids(np.array([[7, 8, -1], [7, 9, 5]]))
    assert step(module, optimizer, ids) == 4 * (1 + 2 + 0 + 1 + 2 + 3)
    rows = module(np.array([[7, 8, 5]]), train=False)
    np.testing.assert_array_equal(rows[0, :, 0], [1 - 2, 2 - 1, 3 - 1])


def test_options_of_stores(tmp_path):
    devices = jax.device_count()
    path, mib = str(tmp_path), 2**20 / 1e9
    store = ONE.make_cached_host_mem_store_options(8, path, capacity=500, size_factor=3)
    assert store.capacity == 500
    assert store.tier == jde.tiers.host(hbm_gigabytes=8 * mib * devices)
    store = ONE.make_cached_ssd_store_options(8, [path], host_cache_budget_mb=64)
    want = jde.tiers.ssd(path, hbm_gigabytes=8 * mib * devices, host_gigabytes=64 * mib)
    assert (store.capacity, store.tier) == (None, want)
    store = ONE.make_cached_ssd_store_options(8, path, 700)
    assert store.capacity == 700 and store.tier.store.path == f"{path}/0-1"
    assert store.tier.host_gigabytes is None


def test_a_table_above_an_ssd(tmp_path):
    store = ONE.make_cached_ssd_store_options(0.01, str(tmp_path), 16384)
    module = ONE.MultiTableEmbedding("e", 4, store_options=store)
    with jde.tiers.open_stores(module.coll) as stores:
        assert isinstance(stores["e"], jde.stores.Log)
    assert (tmp_path / "0-1" / "e" / "LOCK").exists()


BAD = {
    "several widths": (
        lambda: ONE.MultiTableEmbedding("e", [4, 1], store_options=STORE),
        "a table for each",
    ),
    "no store": (lambda: ONE.MultiTableEmbedding("e", 4), "make_device_mem_store"),
    "columns": (lambda: ONE.make_table_options(LAWS), "columns of several widths"),
    "no capacities": (lambda: embedding(capacities=None), r"add capacities=\[rows"),
    "few capacities": (lambda: embedding(capacities=[8]), "1 numbers for 3 tables"),
    "a flat batch": (lambda: embedding()(np.arange(6)), r"\[batch, 3\], or table_ids"),
    "table ids": (lambda: embedding()(IDS, np.zeros(3)), "a table for each id"),
    "paths": (
        lambda: ONE.make_device_mem_store_options(["a", "b"], 10),
        "2 paths for 1 processes",
    ),
    "blocks": (
        lambda: ONE.make_device_mem_store_options("a", 10, physical_block_size=100),
        "must be one of",
    ),
    "factor": (lambda: ONE.make_device_mem_store_options("a", 10, 0), "size_factor"),
    "capacity": (lambda: ONE.make_device_mem_store_options("a", 0), "above 0"),
    "no cache": (lambda: ONE.make_cached_ssd_store_options(0, "a", 9), "budget_mb"),
    "no size": (lambda: ONE.make_cached_ssd_store_options(9, "a"), "capacity or"),
    "snapshots": (lambda: embedding().save_snapshot("a"), "jde.checkpoint.save"),
}


@pytest.mark.parametrize("case", BAD)
def test_mistakes_say_what_to_write(case):
    call, match = BAD[case]
    with pytest.raises((ValueError, TypeError, AttributeError), match=match):
        call()


STORES, MODULES = options_of("oneembedding"), options_of("oneembedding_module")


@pytest.mark.parametrize("name", STORES)
def test_every_option_of_a_store_does_what_the_list_says(monkeypatch, name):
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    monkeypatch.setattr(jax, "local_device_count", lambda: 1)
    given_ = {"cache_budget_mb": 8, "persistent_path": "rows", "capacity": 1000}
    plain = ONE.make_cached_ssd_store_options(**given_)
    made = ONE.make_cached_ssd_store_options(**given_ | given(name, STORES[name]))
    expected = wanted(STORES[name]) if "gives" in STORES[name] else {}
    assert made == dataclasses.replace(plain, **expected)


@pytest.mark.parametrize("name", MODULES)
def test_every_option_of_the_module_does_what_the_list_says(name):
    option = MODULES[name]
    example = given(name, option)
    if name in ("tables", "store_options", "default_initializer"):
        example[name] = eval(example[name], vars(ONE))
    base = {"name": "e", "embedding_dim": 8, "store_options": STORE}
    (plain,) = ONE.MultiTableEmbedding(**base).coll.tables.values()
    (made,) = ONE.MultiTableEmbedding(**base | example).coll.tables.values()
    expected = wanted(option) if "gives" in option else {}
    assert made == dataclasses.replace(plain, **expected)


def test_a_seed_draws_the_rows():
    rows = [
        ONE.MultiTableEmbedding("e", 4, store_options=STORE, seed=seed)(np.array([5]))
        for seed in (0, 0, 7)
    ]
    assert (rows[0] == rows[1]).all() and (rows[0] != rows[2]).all()


def test_a_prefetcher_takes_the_matrix_of_ids():
    """SGD of rate 1 on sum(rows): an id that came n times has n less than its law."""
    stores = {}

    def store_of(table):
        return stores.setdefault(table.name, jde.stores.Memory(table))

    tier = jde.tiers.external(store_of, host_rows=256, ring_rows=256)
    options = ONE.StoreOptions(None, tier)
    module = ONE.MultiTableEmbedding(
        "emb",
        4,
        tables=LAWS,
        store_options=options,
        capacities=(4096,) * 3,
        optimizer=jde.optim.sgd(1.0),
    ).to("cuda")

    @jde.nnx.jit
    def train(module, ids):
        _, grads = jde.nnx.value_and_grad(lambda m, i: m(i).sum())(module, ids)
        jde.nnx.update_tables(module, grads)

    draw = np.random.default_rng(0)
    given = [draw.integers(0, 700, (40, 3)) for _ in range(40)]
    with jde.nnx.prefetch_rows(
        module, ((ids, n) for n, ids in enumerate(given))
    ) as prefetcher:
        for number, (ids, beside) in enumerate(prefetcher):
            assert beside == number
            train(module, ids)
        prefetcher.drain()
        for t in range(3):
            store = prefetcher.stores[f"emb_{t}"]
            keys = store.keys()
            chunk = store.layout.unpack(keys, store.get(keys)[1])
            rows = dict(zip(keys.tolist(), chunk.rows[:, 0].tolist(), strict=True))
            assert len(rows) > 100
            for chunk in module.coll.export(module.get_state(), f"emb_{t}"):
                rows |= zip(chunk.keys.tolist(), chunk.rows[:, 0].tolist(), strict=True)
            ids, counts = np.unique([ids[:, t] for ids in given], return_counts=True)
            left = (t + 1.0 - counts).tolist()
            assert rows == dict(zip(ids.tolist(), left, strict=True))
    with (
        pytest.raises(ValueError, match=r"a row prefetcher takes \[batch, 3\]"),
        jde.nnx.prefetch_rows(module, [np.arange(6)]) as prefetcher,
    ):
        next(prefetcher)
