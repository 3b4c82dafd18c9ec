# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""``num_embeddings=N`` holds N ids: none is evicted, and a file's N rows are stored."""

import math
import re

import numpy as np
import pytest
from flax import nnx

import jax_dynemb as jde
from tests.meshes import mesh_of

T = jde.torchrec
SIZES = (1, 129, 1000, 4096, 10_000)


def config(n, name="a", **fields):
    return T.EmbeddingBagConfig(n, 4, name, feature_names=[name], **fields)


def bags_of(tables, **options):
    return T.EmbeddingBagCollection(tables, rngs=nnx.Rngs(0), **options)


def each_once(ids, name="a"):
    return T.KeyedJaggedTensor([name], ids, lengths=np.ones(len(ids), np.int32))


@pytest.mark.parametrize("n", SIZES)
def test_every_id_of_a_vocabulary_keeps_its_row(n):
    model, draw = bags_of([config(n)]), np.random.default_rng(0)
    for _ in range(2):
        for ids in np.array_split(draw.permutation(n), 1 + n // 2000):
            model(each_once(ids))
    stats = model.stats()
    assert (stats["a/rows"], stats["a/evicted"], stats["a/refused"]) == (n, 0, 0)


@pytest.mark.parametrize("devices", [1, 8])
def test_a_state_dict_of_as_many_rows_is_stored(devices):
    tables = [config(n, f"t{n}") for n in SIZES]
    options = {} if devices == 1 else {"mesh": mesh_of(devices)}
    model = bags_of(tables, **options)
    rows = {
        f"t{n}": np.random.default_rng(n).normal(size=(n, 4)).astype(np.float32)
        for n in SIZES
    }
    weights = {f"model.ebc.embedding_bags.{t}.weight": w for t, w in rows.items()}
    T.load_torch_state_dict(model, weights)
    for name, expected in rows.items():
        chunks = list(model.coll.export(model.get_state(), name))
        keys = np.concatenate([chunk.keys for chunk in chunks])
        stored = np.concatenate([chunk.rows for chunk in chunks])
        assert sorted(keys.tolist()) == list(range(len(expected)))
        np.testing.assert_array_equal(stored[np.argsort(keys)], expected)


def test_a_refused_state_dict_changes_nothing_and_its_advice_is_taken():
    tables = [config(100, "b"), config(1000).to_table(capacity=1000)]
    model = bags_of(tables)
    weights = {
        "embedding_bags.b.weight": np.ones((100, 4), np.float32),
        "embedding_bags.a.weight": np.ones((1000, 4), np.float32),
    }
    with pytest.raises(ValueError, match="found no place") as error:
        T.load_torch_state_dict(model, weights)
    assert (model.stats()["a/rows"], model.stats()["b/rows"]) == (0, 0)
    capacity = int(re.search(r"capacity=(\d+)", str(error.value))[1])
    model = bags_of([tables[0], config(1000).to_table(capacity=capacity)])
    T.load_torch_state_dict(model, weights)
    assert model.stats()["a/rows"] == 1000


def test_first_rows_have_the_law_of_the_number_that_was_given():
    for n in SIZES:
        bound = 1 / math.sqrt(n)
        expected = jde.initializers.uniform(-bound, bound)
        assert config(n).to_table().initializer == expected


def test_another_capacity_may_be_chosen_and_memory_says_the_bytes():
    model = bags_of([config(10_000, "b"), config(10_000).to_table(capacity=10_000)])
    chosen, given = model.coll.tables["a"], model.coll.tables["b"]
    assert chosen.capacity == 10_000 < chosen.num_slots < 11_000
    assert given.num_slots == given.capacity == 19_456
    memory = model.coll.memory()
    assert memory["b"]["hbm"] > 1.8 * memory["a"]["hbm"]
    assert memory["b"]["hbm"] >= given.num_slots * (4 * 4 + 8 + 8)


def test_a_checkpoint_of_the_former_capacity_goes_on(tmp_path):
    adam = jde.optim.adam(0.1)

    @jde.nnx.jit
    def step(model, kjt):
        def loss_of(model):
            return (model(kjt).values() ** 2).sum()

        loss, grads = jde.nnx.value_and_grad(loss_of)(model)
        jde.nnx.update_tables(model, grads)
        return loss

    former = bags_of([config(1000, optimizer=adam).to_table(capacity=1000)])
    kjt = each_once(np.arange(0, 800, 3))
    for _ in range(3):
        step(former, kjt)
    jde.checkpoint.save(tmp_path, 1, {"model": former}, wait=True)
    now = bags_of([config(1000, optimizer=adam)])
    jde.checkpoint.restore(tmp_path, {"model": now})
    assert now.stats()["a/rows"] == former.stats()["a/rows"] == 267
    np.testing.assert_array_equal(now(kjt).values(), former(kjt).values())
    for _ in range(2):
        assert float(step(now, kjt)) == float(step(former, kjt))
