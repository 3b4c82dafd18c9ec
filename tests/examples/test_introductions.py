# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The programs of other libraries' introductions, with their imports changed.

What JAX forces beyond an import is marked: a seed, ids and arrays of NumPy, an
optimizer that the module takes, and rooms of tables with several initialisers.
"""

import re

import pytest

TORCHREC = """
import numpy as np  # import
from flax import nnx  # import
import jax_dynemb.torchrec as torchrec  # import

ebc = torchrec.EmbeddingBagCollection(
    device="meta",
    tables=[
        torchrec.EmbeddingBagConfig(
            name="product_table",
            embedding_dim=64,
            num_embeddings=4096,
            feature_names=["product"],
            pooling=torchrec.PoolingType.SUM,
        ),
        torchrec.EmbeddingBagConfig(
            name="user_table",
            embedding_dim=64,
            num_embeddings=4096,
            feature_names=["user"],
            pooling=torchrec.PoolingType.SUM,
        ),
    ],
    rngs=nnx.Rngs(0),  # JAX
)
model = torchrec.distributed.DistributedModelParallel(ebc, device="cuda")
print(model)
print(model.plan)
mb = torchrec.KeyedJaggedTensor(
    keys=["product", "user"],
    values=np.array([101, 202, 303, 404, 505, 606]),  # JAX
    lengths=np.array([2, 0, 1, 1, 1, 1], dtype=np.int64),  # JAX
)
print(mb.to("cpu"))
pooled_embeddings = model(mb)
print(pooled_embeddings)
assert pooled_embeddings["product"].shape == (3, 64)
assert not pooled_embeddings["product"][1].any()
"""

FBTT = """
from flax import nnx  # import
import jax_dynemb as jde  # import
from jax_dynemb import TTEmbeddingBag  # import
from jax_dynemb.nnx import TableBatchedTTEmbeddingBag  # import

tt_emb = TTEmbeddingBag(
    num_embeddings=1000000,
    embedding_dim=64,
    tt_p_shapes=[120, 90, 110],
    tt_q_shapes=[4, 4, 4],
    tt_ranks=[12, 14],
    sparse=False,
    use_cache=False,
    weight_dist="uniform",
    rngs=nnx.Rngs(0),  # JAX
)
embedding_sum = TTEmbeddingBag(
    10, 3, None, None, tt_ranks=[2, 2], sparse=False, use_cache=False,
    rngs=nnx.Rngs(0),  # JAX
)
input = jde.ids([1, 2, 4, 5, 4, 3, 2, 9])  # JAX
offsets = [0, 4, 8]  # JAX
assert embedding_sum(input, offsets).shape == (2, 3)
tt_emb = TableBatchedTTEmbeddingBag(
    num_tables=100,
    num_embeddings=1000000,
    embedding_dim=64,
    tt_p_shapes=[120, 90, 110],
    tt_q_shapes=[4, 4, 4],
    tt_ranks=[12, 14],
    sparse=False,
    use_cache=False,
    weight_dist="uniform",
    rngs=nnx.Rngs(0),  # JAX
)
"""

ONE_EMBEDDING = """
import numpy as np  # import
import jax_dynemb as flow  # import
import optax  # import
from flax import nnx  # import

tables = [
    flow.one_embedding.make_table_options(
        flow.one_embedding.make_uniform_initializer(low=-0.1, high=0.1)
    ),
    flow.one_embedding.make_table_options(
        flow.one_embedding.make_uniform_initializer(low=-0.05, high=0.05)
    ),
    flow.one_embedding.make_table_options(
        flow.one_embedding.make_uniform_initializer(low=-0.15, high=0.15)
    ),
]
store_options = flow.one_embedding.make_cached_ssd_store_options(
    cache_budget_mb=8142,
    persistent_path=folder,
    capacity=40000,
    size_factor=1,
    physical_block_size=512,
)
embedding_size = 128
embedding = flow.one_embedding.MultiTableEmbedding(
    name="my_embedding",
    embedding_dim=embedding_size,
    dtype="float32",
    key_type="int64",
    tables=tables,
    store_options=store_options,
    optimizer=flow.optim.sgd(0.1),  # JAX
    capacities=[20000] * 3,  # JAX
)
embedding.to("cuda")
num_tables = 3
class TrainGraph(nnx.Module):
    def __init__(self):
        self.embedding_lookup = embedding
        self.mlp = nnx.Linear(embedding_size * num_tables, 1, rngs=nnx.Rngs(0))  # JAX
    def __call__(self, ids):
        rows = self.embedding_lookup(ids)
        loss = self.mlp(rows.reshape(-1, num_tables * embedding_size))
        return loss.sum()
graph = TrainGraph()
optimizer = flow.nnx.Optimizer(graph, optax.sgd(0.1))  # JAX
@flow.nnx.jit  # JAX
def train(graph, optimizer, ids):  # JAX
    loss, grads = flow.nnx.value_and_grad(lambda m, i: m(i))(graph, ids)  # JAX
    optimizer.update(graph, grads)  # JAX
    return loss  # JAX
ids = np.random.randint(0, 1000, (100, num_tables), dtype=np.int64)
with flow.nnx.prefetch_rows(embedding, [ids]) as prefetcher:  # JAX
    for ids_tensor in prefetcher:  # JAX
        loss = train(graph, optimizer, ids_tensor)
print(loss)
ids = np.array([[488, 333, 220], [18, 568, 508]], dtype=np.int64)
columns = embedding(ids)
ids = np.array([488, 333, 220, 18, 568, 508], dtype=np.int64)
table_ids = np.array([0, 1, 2, 0, 1, 2])
assert (embedding(ids, table_ids) == columns.reshape(6, 128)).all()
"""


@pytest.mark.parametrize(
    ("text", "forced"),
    [
        pytest.param(TORCHREC, 3, id="TorchRec"),
        pytest.param(FBTT, 5, id="FBTT", marks=pytest.mark.slow),
        pytest.param(ONE_EMBEDDING, 11, id="OneEmbedding", marks=pytest.mark.slow),
    ],
)
def test_an_introduction_runs_with_its_imports_changed(text, forced, tmp_path, capsys):
    exec(compile(text, "introduction", "exec"), {"folder": str(tmp_path)})
    assert len(re.findall("# JAX$", text, re.MULTILINE)) == forced
