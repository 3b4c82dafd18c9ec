# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A sentence with the fix says what does not fit or is refused."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx

import jax_dynemb as jde
from jax_dynemb._src.torchrec.refused import ATTRIBUTES, MEMBERS
from jax_dynemb._src.torchrec.refused_names import NAMES

T = jde.torchrec
KJT = T.KeyedJaggedTensor
JT = T.JaggedTensor


def kjt(keys=("a", "b"), weights=None, lengths=(1, 2, 0, 1), **options):
    total = int(np.sum(lengths))
    return KJT.from_lengths_sync(
        list(keys), np.arange(total), np.array(lengths), weights, **options
    )


MISTAKES = {
    "a length below zero": (
        lambda: kjt(lengths=(1, -1, 0, 1)),
        "has 0 entries or more",
    ),
    "too few values": (
        lambda: KJT.from_lengths_sync(["a"], np.arange(2), [1, 2]),
        "add up to 3, but there are 2 values",
    ),
    "values of no bag": (
        lambda: KJT.from_lengths_sync(["a"], np.arange(4), [1, 2]),
        "add up to len",
    ),
    "lengths of no batch": (lambda: kjt(lengths=(1, 2, 0)), "len.keys. . stride"),
    "another stride": (lambda: kjt(stride=3), "stride 3"),
    "float lengths": (lambda: KJT(["a"], np.arange(1), lengths=[1.0]), "integers"),
    "more than int32": (
        lambda: KJT(["a"], np.arange(1), lengths=np.array([2**31])),
        "several",
    ),
    "a key twice": (lambda: kjt(keys=("a", "a")), "rename them"),
    "a string for keys": (lambda: kjt(keys=["a", 3]), "names"),
    "one weight": (lambda: kjt(weights=np.ones(1, np.float32)), "one weight for each"),
    "reserved ids": (lambda: KJT(["a"], np.array([-2]), lengths=[1]), "reserved"),
    "offsets from one": (
        lambda: KJT.from_offsets_sync(["a"], np.arange(2), np.array([1, 2])),
        "offsets - offsets",
    ),
    "offsets that fall": (
        lambda: KJT.from_offsets_sync(["a"], np.arange(2), np.array([0, 2, 1])),
        "where bags begin",
    ),
    "lengths against offsets": (
        lambda: JT(np.arange(2), lengths=[1, 1], offsets=[0, 2, 2]),
        "Give one",
    ),
    "neither": (lambda: JT(np.arange(2)), "lengths=... .entries of each bag"),
    "too little room": (lambda: kjt(capacity=2), "raise its capacity"),
    "no room for a key": (lambda: kjt(capacity={"a": 8}), "no number for keys"),
    "room of no number": (lambda: kjt(capacity="x"), "give a whole number"),
    "room of a broken number": (lambda: kjt(capacity=1.5), "give a whole number"),
    "room of a key that is none": (
        lambda: kjt(capacity={"a": 8, "b": "y"}),
        "'y': give a whole number",
    ),
    "room for other keys": (lambda: kjt(capacity=[8]), "there are 2 keys"),
    "a multiple of no number": (lambda: T.Capacity("x"), "give a whole number"),
    "no rows": (lambda: T.EmbeddingConfig(0, 4, "t").to_table(), "1 or more"),
    "half a column": (lambda: T.EmbeddingConfig(8, 0.5, "t").to_table(), "1 or more"),
    "features in a string": (
        lambda: T.EmbeddingConfig(8, 4, "t", feature_names="f").to_table(),
        "write \\['f'\\]",
    ),
    "cores of half numbers": (
        lambda: T.EmbeddingConfig(8, 4, "t", data_type="FP16", tt_ranks=2).to_table(),
        "compute_dtype",
    ),
    "cores around another number": (
        lambda: T.EmbeddingConfig(
            8, 4, "t", weight_init_max=1, weight_init_min=0, tt_ranks=2
        ).to_table(),
        "lie around 0",
    ),
    "rows for cores": (
        lambda: T.EmbeddingConfig(
            8, 4, "t", init_fn=jde.initializers.zeros(), tt_ranks=2
        ).to_table(),
        "makes rows, not cores",
    ),
    "weights of a tensor train": (
        lambda: T.load_torch_state_dict(
            T.EmbeddingCollection(
                [T.EmbeddingConfig(8, 4, "t", tt_ranks=2)], rngs=nnx.Rngs(0)
            ),
            {"embeddings.t.weight": np.zeros((8, 4))},
        ),
        "from_dense",
    ),
    "rank counts": (
        lambda: kjt(stride_per_key_per_rank=[[1], [1]]),
        "one length for each bag",
    ),
    "inverse of no bag": (
        lambda: kjt(
            stride_per_key_per_rank=[[2], [2]],
            inverse_indices=(["a", "b"], np.array([[0, 2], [0, 1]])),
        ),
        "name one for each example",
    ),
    "inverse of some keys": (
        lambda: kjt(inverse_indices=(["a"], np.array([[0, 1]]))),
        "no row for keys",
    ),
    "some weights": (
        lambda: KJT.from_jt_dict(
            {
                "a": JT(np.arange(1), np.ones(1, np.float32), [1]),
                "b": JT(np.arange(1), lengths=[1]),
            }
        ),
        "all of them weights, or none",
    ),
    "concat of other batches": (
        lambda: KJT.concat([kjt(), kjt(keys=("c",), lengths=(1,))]),
        "of one batch",
    ),
    "concat of equal keys": (lambda: KJT.concat([kjt(), kjt()]), "occur twice"),
    "concat of nothing": (lambda: KJT.concat([]), "one tensor or more"),
    "offsets with room": (lambda: kjt(capacity=8).offsets(), "packed"),
    "no weights": (lambda: kjt().weights(), "weights_or_none"),
    "no inverse": (lambda: kjt().inverse_indices(), "inverse_indices_or_none"),
    "split of too many": (lambda: kjt().split([1, 2]), "takes 3 keys"),
    "from_dense of nothing": (lambda: JT.from_dense([]), "JaggedTensor.empty"),
    "lengths beyond the row": (
        lambda: JT.from_dense_lengths(np.zeros((1, 2)), np.array([3])),
        "0 to 2",
    ),
    "keyed columns": (
        lambda: T.KeyedTensor(["a"], [2], np.zeros((1, 3))),
        "columns of each key",
    ),
    "a data type": (
        lambda: T.EmbeddingBagConfig(8, 4, "t", data_type="INT8").to_table(),
        "FP32, FP16, BF16",
    ),
    "no pooling": (
        lambda: T.EmbeddingBagConfig(8, 4, "t", pooling=T.PoolingType.NONE).to_table(),
        "EmbeddingCollection",
    ),
    "a policy": (
        lambda: T.EmbeddingConfig(
            8, 4, "t", virtual_table_eviction_policy=object()
        ).to_table(),
        "score_strategy",
    ),
    "dims": (
        lambda: T.EmbeddingCollection(
            [T.EmbeddingConfig(8, 4, "t"), T.EmbeddingConfig(8, 2, "u")],
            rngs=nnx.Rngs(0),
        ),
        "one embedding_dim",
    ),
    "a device of JAX": (
        lambda: T.EmbeddingBagCollection([], False, jax.devices()[0], rngs=None),
        "mesh=",
    ),
    "a dtype of ids": (lambda: kjt().to("cpu", dtype="float16"), "with_weights"),
    "lengths in place of weights": (lambda: JT(np.arange(3), [1, 2]), "come weights"),
    "two axes of keys": (
        lambda: T.KeyedTensor.from_tensor_list(["a"], [np.ones((1, 1))], 1, 0),
        "give one number",
    ),
    "an unknown table": (
        lambda: T.with_optimizer([T.EmbeddingConfig(8, 4, "t")], {"u": None}),
        "no table",
    ),
    "an unweighted processor": (
        lambda: T.FeatureProcessedEmbeddingBagCollection(
            T.EmbeddingBagCollection(
                [T.EmbeddingBagConfig(8, 4, "t")], rngs=nnx.Rngs(0)
            ),
            None,
        ),
        "is_weighted=True",
    ),
    "no place": (lambda: T.PositionWeightedModule(0), "longest bag"),
    "a policy of warm-up": (
        lambda: T.warmup_schedule([T.WarmupStage("up")]),
        "none of",
    ),
    "bounds": (lambda: T.from_fused_params({"bounds_check_mode": 0}), "out of bounds"),
    "cache": (lambda: T.from_fused_params({"cache_load_factor": -1}), "above 0"),
    "a typo": (lambda: T.from_fused_params({"lerning_rate": 0.1}), "unknown"),
    "an optimizer": (lambda: T.from_fused_params({"optimizer": "rprop"}), "none of"),
}


def used(made):
    """Reads bags: a KeyedJaggedTensor that does not fit says so then."""
    return made.to_dict() if isinstance(made, KJT) else made


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name):
    call, sentence = MISTAKES[name]
    with pytest.raises((ValueError, TypeError), match=sentence):
        used(call())


def test_text_of_long_tensors_is_cut():
    lengths = np.full(400, 9, np.int32)
    text = str(KJT(["a"], np.arange(3600), lengths=lengths))
    assert len(text) < 300
    assert "[0, 1, 2, ..., 6, 7, 8]" in text and "[3591, 3592, 3593, ..." in text
    jt = T.JaggedTensor(np.ones((500, 8), np.float32), lengths=np.ones(500, int))
    assert len(str(jt)) < 600
    kt = T.KeyedTensor(["a"], [8], np.ones((500, 8), np.float32))
    assert len(str(kt)) < 600
    short = T.JaggedTensor(np.arange(5), lengths=np.array([2, 3]))
    assert str(short) == "JaggedTensor({\n    [[0, 1], [2, 3, 4]]\n})\n"


def test_unknown_keys_name_the_nearest():
    tensor = kjt(keys=("user", "item"))
    with pytest.raises(KeyError, match="did you mean 'user'"):
        tensor["usr"]
    with pytest.raises(IndexError, match="no key 2"):
        tensor.permute([2])
    keyed = T.KeyedTensor.from_tensor_list(["user"], [np.zeros((1, 2))])
    with pytest.raises(KeyError, match="did you mean 'user'"):
        keyed["usr"]
    with pytest.raises(KeyError, match="regroup"):
        T.KeyedTensor.regroup([keyed], [["item"]])
    model = T.EmbeddingBagCollection(
        [T.EmbeddingBagConfig(8, 4, "t")], rngs=nnx.Rngs(0)
    )
    with pytest.raises(KeyError, match="no key 't'"):
        model(tensor)
    with pytest.raises(TypeError, match="KeyedJaggedTensor, or a"):
        model(np.zeros(3))


def test_weights_where_they_belong():
    config = [T.EmbeddingBagConfig(8, 4, "a")]
    plain = T.EmbeddingBagCollection(config, rngs=nnx.Rngs(0))
    weighted = T.EmbeddingBagCollection(config, True, rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match="has no weights"):
        weighted(kjt())
    with pytest.raises(ValueError, match="is_weighted"):
        plain({"a": jde.ids([1])}, weights={"a": np.ones(1)})


def test_fields_of_a_config():
    config = T.EmbeddingBagConfig(
        400, 8, "t", T.DataType.BF16, ["f"], pooling=T.PoolingType.MEAN
    )
    table = config.to_table(sharding="table_wise", capacity=1000)
    assert table.initializer == jde.initializers.uniform(-0.05, 0.05)
    assert (table.param_dtype, table.pooling) == ("bfloat16", "mean")
    assert (table.capacity, table.sharding) == (1000, "table_wise")
    with pytest.warns(UserWarning, match="need_pos of table"):
        T.EmbeddingConfig(8, 4, "t", need_pos=True).to_table()
    optimized = T.with_optimizer([config], {"*": jde.optim.adam(0.1)})
    assert optimized[0].to_table().optimizer == jde.optim.adam(0.1)
    assert config.optimizer is None


def test_the_migration_page_has_every_name():
    page = (Path(__file__).parents[2] / "docs/concepts/torchrec.md").read_text()
    refused = page[page.index("## Refused names") :]
    assert [name for name in NAMES if f"`{name}`" not in refused] == []


@pytest.mark.parametrize("name", sorted(ATTRIBUTES))
def test_refused_methods_say_what_to_use(name):
    for thing in (kjt(), kjt()["a"], T.KeyedTensor.from_tensor_list([], [])):
        with pytest.raises(AttributeError, match="is refused: .{20}"):
            getattr(thing, name)
        assert not hasattr(thing, "no_such_name")


@pytest.mark.parametrize("name", sorted(MEMBERS))
def test_refused_members_of_collections_say_what_to_use(name):
    collections = (
        T.EmbeddingBagCollection([T.EmbeddingBagConfig(8, 4, "t")], rngs=nnx.Rngs(0)),
        T.EmbeddingCollection([T.EmbeddingConfig(8, 4, "t")], rngs=nnx.Rngs(0)),
    )
    for module in collections:
        with pytest.raises(
            AttributeError, match=f"Collection.{name} is refused: .{{20}}"
        ):
            getattr(module, name)
        assert not hasattr(module, "no_such_name")


def test_names_of_outputs_by_table():
    configs = [
        T.EmbeddingConfig(8, 4, "t", feature_names=["a", "b"]),
        T.EmbeddingConfig(8, 4, "u", feature_names=["b"]),
    ]
    collection = T.EmbeddingCollection(configs, rngs=nnx.Rngs(0))
    assert collection.embedding_names_by_table() == [["a", "b@t"], ["b@u"]]


def test_what_torchrec_does_in_another_way_says_how():
    config = T.EmbeddingBagConfig(8, 4, "t")
    for kind in (T.EmbeddingBagCollection, T.EmbeddingCollection):
        with pytest.raises(TypeError, match=r"rngs=nnx.Rngs\(0\)"):
            kind([config])
    with pytest.raises(ValueError, match="write EmbeddingConfig for EmbeddingBagConf"):
        T.EmbeddingCollection([config], rngs=nnx.Rngs(0))
    plain = T.EmbeddingConfig(8, 4, "t")
    for tables in ([plain], iter([config, plain])):
        with pytest.raises(ValueError, match="write EmbeddingBagConfig for Embedd"):
            T.EmbeddingBagCollection(tables, rngs=nnx.Rngs(0))
    with pytest.raises(TypeError, match=r"rngs=nnx.Rngs\(0\)"):
        T.EmbeddingBagCollection([config], rngs=0)  # pyright: ignore
    with pytest.raises(TypeError, match=r"write regroup\(\[kt\], groups\)"):
        T.KeyedTensor.regroup(T.KeyedTensor.from_tensor_list([], []), [])  # pyright: ignore
    with pytest.raises(TypeError, match='write {"\\*": '):
        T.with_optimizer([config], jde.optim.adam(0.1))  # pyright: ignore
    with pytest.raises(TypeError, match=r"to_dict\(\).items\(\)"):
        list(kjt())
    with pytest.raises(TypeError, match=r"write split\(\[1, 1\]\)"):
        kjt().split(1)  # pyright: ignore
    with pytest.raises(TypeError, match="for each collection of the model"):
        T.load_torch_state_dict(nnx.Linear(1, 1, rngs=nnx.Rngs(0)), {})  # pyright: ignore
    with pytest.raises(ValueError, match="Topology.measure"):
        T.Topology(world_size=800)
    with pytest.raises(ValueError, match="1 of tpu cannot be measured"):
        T.Topology(1, "tpu")
    with pytest.raises(TypeError, match="order is world_size, compute_device"):
        T.Topology(8, 10**9, 1e12, 1e11)  # pyright: ignore


def test_exact_regions_say_once_that_they_compile(caplog):
    from jax_dynemb._src.torchrec import construct as _construct

    _construct._seen.clear()
    _construct._told.clear()
    for n in range(20):
        KJT.from_lengths_sync(["a"], np.arange(n), [n])
    told = [r for r in caplog.records if "Capacity" in r.getMessage()]
    assert len(told) == 1


def test_a_checkpoint_that_does_not_fit():
    config = [T.EmbeddingBagConfig(8, 4, "t")]
    model = T.EmbeddingBagCollection(config, rngs=nnx.Rngs(0))
    with pytest.raises(KeyError, match="has no table"):
        T.load_torch_state_dict(model, {"embedding_bags.u.weight": np.zeros((8, 4))})
    with pytest.raises(ValueError, match="embedding_dim"):
        T.load_torch_state_dict(model, {"embedding_bags.t.weight": np.zeros((8, 3))})
    many = {"m.embeddings.t.weight": np.zeros((600, 4), np.float32)}
    with pytest.raises(ValueError, match="found no place"):
        T.load_torch_state_dict(model, many)


class NoEvictionPolicy:
    """TorchRec's, by its name: a table that keeps its rows."""


POLICIES = [
    (None, "step", None),
    (NoEvictionPolicy(), "no_eviction", None),
    ({"eviction_ttl_mins": 60}, "timestamp", "unused_for"),
    ({"eviction_threshold": 15, "decay_rate": 0.99}, "lfu", "count_below"),
    ({"eviction_threshold": 0.25}, "step", "norm_below"),
    (
        {"training_id_keep_count": 50, "eviction_ttl_mins": 0},
        "customized",
        "keep_at_most",
    ),
    ({"training_id_keep_count": 50, "eviction_ttl_mins": 9}, "timestamp", "unused_for"),
]


@pytest.mark.parametrize(("policy", "strategy", "field"), POLICIES)
def test_an_eviction_policy_becomes_scores_and_a_rule(policy, strategy, field):
    config = T.EmbeddingConfig(64, 4, "t", virtual_table_eviction_policy=policy)
    table = config.to_table()
    assert isinstance(table, jde.TableConfig) and table.score_strategy == strategy
    rule = config.eviction_rule()
    assert (rule is None) == (field is None)
    if field is not None:
        assert getattr(rule, field) is not None
        module = T.EmbeddingCollection([config], rngs=nnx.Rngs(0))
        bags = {"t": JT(np.arange(3), lengths=[1, 2])}
        scores = {"t": np.uint32(1)} if strategy == "customized" else None
        module._lookup({"t": bags["t"].jagged()}, None, scores, True)
        removed = module.erase_where({"t": rule})["t"]
        # New rows were used once, just now; rows of 4 small numbers have a small norm.
        assert int(removed) == {"count_below": 3, "norm_below": 3}.get(field, 0)


def test_a_policy_of_a_tensor_train_is_refused():
    config = T.EmbeddingConfig(
        64,
        4,
        "t",
        tt_ranks=2,
        virtual_table_eviction_policy={"eviction_ttl_mins": 60},
    )
    with pytest.raises(ValueError, match="no rows that could leave"):
        config.to_table()


def parts_of(jt: T.JaggedTensor) -> tuple[Any, Any]:
    weights = jt.weights_or_none()
    return np.asarray(jt.lengths()).tolist(), None if weights is None else list(weights)


VALUES, WEIGHTS = np.array([7, 8, 9]), np.array([0.5, 1.0, 2.0], np.float32)
LENGTHS, OFFSETS = np.array([1, 2]), np.array([0, 1, 3])
ORDERS = {
    "weights, lengths": lambda: JT(VALUES, WEIGHTS, LENGTHS),
    "weights, named lengths": lambda: JT(VALUES, WEIGHTS, lengths=LENGTHS),
    "weights, None, offsets": lambda: JT(VALUES, WEIGHTS, None, OFFSETS),
    "weights, lengths, offsets": lambda: JT(VALUES, WEIGHTS, LENGTHS, OFFSETS),
    "all by name": lambda: JT(VALUES, weights=WEIGHTS, lengths=LENGTHS),
    "whole weights": lambda: JT(VALUES, np.array([1, 1, 1]), lengths=LENGTHS),
}

ORDERS |= {
    "no weights, lengths": lambda: JT(VALUES, None, LENGTHS),
    "no weights, no lengths, offsets": lambda: JT(VALUES, None, None, OFFSETS),
}


@pytest.mark.parametrize("order", ORDERS)
def test_arguments_are_taken_in_the_order_of_torchrec(order):
    weights = None if order.startswith("no weights") else WEIGHTS.tolist()
    weights = [1, 1, 1] if order == "whole weights" else weights
    assert parts_of(ORDERS[order]()) == ([1, 2], weights)
