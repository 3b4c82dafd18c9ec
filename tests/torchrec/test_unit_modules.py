# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Checks keyed tensors, collections and processors as TorchRec's unit tests do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax_dynemb.torchrec.modules.embedding_configs import (
    DataType,
    EmbeddingBagConfig,
    EmbeddingConfig,
    PoolingType,
    data_type_to_dtype,
    dtype_to_data_type,
)
from jax_dynemb.torchrec.modules.embedding_modules import (
    EmbeddingBagCollection,
    EmbeddingCollection,
)
from jax_dynemb.torchrec.modules.feature_processor_ import (
    PositionWeightedModule,
    PositionWeightedModuleCollection,
)
from jax_dynemb.torchrec.modules.fp_embedding_modules import (
    FeatureProcessedEmbeddingBagCollection,
)
from jax_dynemb.torchrec.modules.regroup import KTRegroupAsDict
from jax_dynemb.torchrec.sparse import jagged_tensor
from jax_dynemb.torchrec.sparse.jagged_tensor import (
    JaggedTensor,
    KeyedJaggedTensor,
    KeyedTensor,
)

from tests.meshes import mesh_of

DRAW = np.random.default_rng(0)
REGROUPS = [
    *("regroup_kts", "permute_multi_embedding"),
    *("_regroup_keyed_tensors", "_fbgemm_permute_pooled_embs"),
]
A, B, C = (DRAW.normal(size=(2, n)).astype(np.float32) for n in (3, 1, 2))


def keyed():
    return [
        KeyedTensor.from_tensor_list(["a", "b"], [A, B], cat_dim=1, key_dim=1),
        KeyedTensor(["c"], [2], C, 1, [0, 2], {"c": 0}),
    ]


def test_a_keyed_tensor_has_its_arrays_by_key_and_side_by_side():
    one, other = keyed()
    assert (one.keys(), one.key_dim()) == (["a", "b"], 1)
    assert (one.length_per_key(), one.offset_per_key()) == ([3, 1], [0, 3, 4])
    np.testing.assert_array_equal(one.values(), np.hstack([A, B]))
    np.testing.assert_array_equal(one["b"], B)
    assert list(other.to_dict()) == ["c"] and other.to("cuda") is other
    rows = KeyedTensor.from_tensor_list(["x", "y"], [A, A[:1]], 0, 0)
    assert rows.length_per_key() == [2, 1] and rows.values().shape == (3, 3)
    nothing = KeyedTensor([], [], np.zeros(0, np.float32))
    assert nothing.to_dict() == {} and nothing.length_per_key() == []
    assert str(nothing) == "KeyedTensor()\n" and nothing.offset_per_key() == [0]


def test_groups_may_skip_repeat_and_mix_keys_and_carry_gradients():
    groups = [["c", "a"], ["a"], ["c"]]
    expected = {"x": np.hstack([C, A]), "y": A, "z": C}
    regroup = KTRegroupAsDict(groups=groups, keys=list("xyz"), multi_device=False)
    for out in (regroup(keyed()), KeyedTensor.regroup_as_dict(keyed(), groups, "xyz")):
        assert list(out) == list("xyz")
        jax.tree.map(np.testing.assert_array_equal, dict(out), expected)

    def total(kts):
        out = regroup(kts)
        return out["x"].sum() + 10 * out["y"].sum()

    grads = jax.grad(total)(keyed())
    np.testing.assert_array_equal(grads[0]["a"], np.full((2, 3), 11))
    np.testing.assert_array_equal(grads[0]["b"], np.zeros((2, 1)))  # in no group
    np.testing.assert_array_equal(grads[1]["c"], np.ones((2, 2)))


@pytest.mark.parametrize("name", REGROUPS)
def test_functions_below_regroup_do_the_same(name):
    out = getattr(jagged_tensor, name)(keyed(), [["c", "a"], ["a"]])
    np.testing.assert_array_equal(out[0], np.hstack([C, A]))
    np.testing.assert_array_equal(out[1], A)
    grads = jax.grad(lambda kts: getattr(jagged_tensor, name)(kts, [["c"]])[0].sum())
    np.testing.assert_array_equal(grads(keyed())[1]["c"], np.ones((2, 2)))


@pytest.mark.parametrize(
    ("groups", "once"),
    [
        ([["c", "a"], ["b"]], True),
        ([["a", "b", "c"]], True),
        ([["c", "a"]], False),
        ([["c", "a"], ["b", "a"]], False),
        ([["c", "a"], ["b", "d"]], False),
    ],
)
def test_groups_that_use_each_key_once(groups, once):
    assert jagged_tensor._all_keys_used_once(keyed(), groups) is once


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *(("FP32", "float32"), ("FP16", "float16"), ("BF16", "bfloat16")),
        *(("INT64", "int64"), ("INT32", "int32"), ("INT8", "int8"), ("UINT8", "uint8")),
        *(("NFP8", "float8_e4m3fn"), ("INT4", "int4"), ("INT2", "int2")),
    ],
)
def test_data_types_name_dtypes(name, dtype):
    assert data_type_to_dtype(DataType(name)) == jnp.dtype(dtype)
    assert data_type_to_dtype(name) == jnp.dtype(dtype)
    assert dtype_to_data_type(jnp.dtype(dtype)) is DataType(name)
    assert dtype_to_data_type(f"torch.{dtype}") is DataType(name)
    with pytest.raises(ValueError, match="use one of FP32"):
        data_type_to_dtype("FP12")
    with pytest.raises(ValueError, match="use one of float32"):
        dtype_to_data_type(np.complex64)


@pytest.mark.parametrize("dtype", [DataType.BF16, DataType.FP16])
def test_groups_may_be_cast(dtype):
    out = KTRegroupAsDict([["a", "c"]], ["x"], emb_dtype=dtype)(keyed())["x"]
    name = {"BF16": "bfloat16", "FP16": "float16"}[dtype.value]
    assert out.dtype == jnp.dtype(name)
    np.testing.assert_array_equal(out, np.hstack([A, C]).astype(jnp.dtype(name)))


def table(kind, name, features, **more):
    return kind(64, 4, name, feature_names=features, **more)


def kjt(*keys, lengths, values=None):
    values = np.arange(sum(lengths)) if values is None else values
    return KeyedJaggedTensor(list(keys), np.array(values), lengths=np.array(lengths))


def test_bags_of_shared_features_and_tables_have_columns_in_the_order_of_tables():
    tables = [
        table(EmbeddingBagConfig, "t", ["f", "g"], pooling=PoolingType.MEAN),
        table(EmbeddingBagConfig, "u", ["g"]),
    ]
    ebc = EmbeddingBagCollection(tables, device="meta", rngs=nnx.Rngs(0))
    assert ebc.to("cuda") is ebc and not ebc.is_weighted()
    out = ebc(kjt("g", "f", lengths=[2, 0, 1, 1]))
    assert out.keys() == ["f", "g@t", "g@u"] and out.values().shape == (2, 12)
    assert out.offset_per_key() == [0, 4, 8, 12]
    assert not np.asarray(out["g@t"])[1].any() and not np.asarray(out["g@u"])[1].any()
    again = ebc(kjt("f", "g", lengths=[1, 0, 1, 1], values=[0, 0, 1]))
    both = np.asarray(again["g@t"])
    np.testing.assert_allclose(out["g@t"][0], both.mean(0), rtol=1e-6)
    np.testing.assert_array_equal(again["f"][0], both[0])  # one table, one id


def test_configs_come_back_with_their_fields():
    given = [
        table(EmbeddingBagConfig, "t", ["f"], pooling="MEAN"),
        EmbeddingBagConfig(32, 8, "u"),
        EmbeddingBagConfig(16, 4, "v", data_type="FP16").to_table(capacity=300),
    ]
    ebc = EmbeddingBagCollection(given, rngs=nnx.Rngs(0))
    configs = ebc.embedding_bag_configs()
    assert isinstance(configs, list)
    assert [c.num_embeddings for c in configs] == [64, 32, 300]
    assert [c.embedding_dim for c in configs] == [4, 8, 4]
    assert [c.feature_names for c in configs] == [["f"], ["u"], ["v"]]
    assert [c.name for c in configs] == ["t", "u", "v"]
    assert configs[0].pooling == "MEAN" and configs[2].pooling == PoolingType.SUM
    assert configs[2].data_type == DataType.FP16
    configs[0].feature_names.append("g")  # a copy: the collection stays as it is
    assert given[0].feature_names == ["f"] and ebc.routes[0].feature == "f"
    ec = EmbeddingCollection(
        [table(EmbeddingConfig, "t", ["f"], tt_ranks=2)], rngs=nnx.Rngs(0)
    )
    assert ec.embedding_configs()[0].num_embeddings == 64 and ec.embedding_dim() == 4


def test_tables_of_one_name_are_refused():
    for kind, config in (
        (EmbeddingBagCollection, EmbeddingBagConfig),
        (EmbeddingCollection, EmbeddingConfig),
    ):
        twice = [table(config, "t", ["f"]), table(config, "t", ["g"])]
        with pytest.raises(ValueError, match="'t'"):
            kind(twice, rngs=nnx.Rngs(0))


def test_rows_of_shared_features_come_with_their_ids():
    tables = [
        table(EmbeddingConfig, "t", ["f", "g"]),
        table(EmbeddingConfig, "u", ["g"]),
    ]
    ec = EmbeddingCollection(tables, need_indices=True, rngs=nnx.Rngs(0))
    assert ec.embedding_names_by_table() == [["f", "g@t"], ["g@u"]]
    out = ec(kjt("f", "g", lengths=[1, 2, 0, 2], values=[5, 6, 7, 7, 6]))
    assert list(out) == ["f", "g@t", "g@u"]
    assert out["f"].lengths().tolist() == [1, 2]
    assert out["g@u"].lengths().tolist() == [0, 2]
    assert out["g@t"].weights().tolist() == [7, 6]
    rows = np.asarray(out["f"].values())
    np.testing.assert_array_equal(out["g@t"].values(), rows[[2, 1]])


def processed(processors):
    tables = [table(EmbeddingBagConfig, f"t{k}", [k]) for k in ("f", "g")]
    ebc = EmbeddingBagCollection(tables, is_weighted=True, rngs=nnx.Rngs(0))
    return FeatureProcessedEmbeddingBagCollection(ebc, processors)


def test_position_weights_are_those_of_places_in_bags():
    module = PositionWeightedModule(3, device="cuda")
    module.position_weight[...] = jnp.array([1.0, 0.5, 0.25])
    jt = JaggedTensor(np.arange(6), lengths=np.array([3, 0, 2, 1]))
    out = module(jt)
    assert out.weights().tolist() == [1, 0.5, 0.25, 1, 0.5, 1]
    assert out.values().tolist() == jt.values().tolist()


@pytest.mark.parametrize("form", ["collection", "modules by key"])
def test_processed_bags_are_weighted_and_pooled(form):
    if form == "collection":
        processors = PositionWeightedModuleCollection({"f": 3, "g": 2}, device="cpu")
        weights = processors.position_weights
    else:
        weights = processors = {"f": PositionWeightedModule(3)}
        processors["g"] = PositionWeightedModule(2)
    weights["f"].position_weight[...] = jnp.array([2.0, 3.0, 5.0])
    model = processed(processors)
    assert model.is_weighted()
    batch = kjt("f", "g", lengths=[2, 0, 1, 1])
    out = model(batch)
    assert out.keys() == ["f", "g"] and out.values().shape == (2, 8)
    ones = model.embedding_bag_collection(
        KeyedJaggedTensor(
            ["f", "g"], [0, 1, 2, 3], np.ones(4, np.float32), [1, 1, 1, 1]
        )
    )
    rows = np.asarray(ones["f"])
    np.testing.assert_allclose(out["f"][0], 2 * rows[0] + 3 * rows[1], rtol=1e-5)
    extra = kjt("f", "x", "g", lengths=[2, 0, 1, 1, 1, 1], values=[0, 1, 9, 9, 2, 3])
    np.testing.assert_allclose(model(extra).values(), out.values(), rtol=1e-6)
    function, collection = model.split()
    apart = collection(function(extra))
    np.testing.assert_allclose(apart.values(), out.values(), rtol=1e-6)


@pytest.mark.parametrize("devices", [1, 8])
def test_batches_without_entries_or_without_bags_have_rows_of_none(devices):
    options = {} if devices == 1 else {"mesh": mesh_of(devices)}
    rngs = nnx.Rngs(0)
    ebc = EmbeddingBagCollection(
        [table(EmbeddingBagConfig, "t", ["f"])], rngs=rngs, **options
    )
    ec = EmbeddingCollection([table(EmbeddingConfig, "t", ["f"])], rngs=rngs, **options)
    for bags in (8, 0):
        batch = kjt("f", lengths=[0] * bags, values=np.zeros(0, np.int64))
        for train in (True, False):
            pooled = ebc(batch, train=train)["f"]
            assert pooled.shape == (bags, 4) and not np.asarray(pooled).any()
            rows = ec(batch, train=train)["f"]
            assert rows.values().shape == (0, 4) and rows.lengths().shape == (bags,)
