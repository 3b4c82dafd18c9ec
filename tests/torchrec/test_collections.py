# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A KeyedJaggedTensor gives what a plain dict gives, bit for bit, on any devices."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import jax_dynemb as jde
from meshes import mesh_of

T = jde.torchrec
KEYS = ["a", "b", "c"]
DEVICES = pytest.mark.parametrize("devices", [1, 8])
BATCH = 8
SMALL = np.arange(12) + 2**40, None, np.ones(12, np.int32)


@pytest.fixture(autouse=True, scope="module")
def quick_compilation() -> Iterator[None]:
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def mesh(devices: int) -> Any:
    return None if devices == 1 else mesh_of(devices)


def batch(seed: int, capacity: Any) -> Any:
    draw = np.random.default_rng(seed)
    lengths = draw.integers(0, 4, 3 * BATCH)
    values = draw.integers(0, 40, lengths.sum()) * 2**40 + 7
    weights = draw.normal(size=len(values)).astype(np.float32)
    return T.KeyedJaggedTensor.from_lengths_sync(
        KEYS, values, lengths, weights, capacity=capacity
    )


def plain(kjt: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Makes the same bags without KeyedJaggedTensor."""
    ids, weights = {}, {}
    for key, jt in kjt.to_dict().items():
        ids[key] = jde.Jagged(jde.ids(jt.values()), jnp.asarray(jt.lengths()))
        weights[key] = jnp.asarray(jt.weights())
    return ids, weights


def tables(pooling: str | None) -> list[jde.TableConfig]:
    shared = {"optimizer": jde.optim.adagrad(0.1), "pooling": pooling}
    return [
        jde.TableConfig("t1", 4, 1024, feature_names=("a", "c"), **shared),
        jde.TableConfig("t2", 4, 1024, feature_names=("b",), **shared),
    ]


def train(model: Any, inputs: list[Any], call: Any) -> list[Any]:
    """Outputs, gradients of rows and weights, and the rows at the end."""

    @jde.nnx.jit
    def step(model, ids, weights):
        def loss_fn(model, weights):
            rows = call(model, ids, weights)
            return sum((x * jnp.cos(x)).sum() for x in rows), rows

        both = jde.nnx.value_and_grad(loss_fn, argnums=(0, 1), has_aux=True)
        (_, rows), (grads, d_weights) = both(model, weights)
        jde.nnx.update_tables(model, grads)
        return rows, [each.d_rows for each in grads.rows], d_weights.dense

    seen = [jax.device_get(step(model, *each)) for each in inputs]
    rows = {}
    for table in ("t1", "t2"):
        chunks = list(model.coll.export(model.get_state(), table))
        keys = np.concatenate([chunk.keys for chunk in chunks])
        order = np.argsort(keys)
        rows[table] = np.concatenate([chunk.rows for chunk in chunks])[order]
    return jax.tree.leaves((seen, rows))


def assert_same_bits(first: list[Any], second: list[Any]) -> None:
    assert len(first) == len(second)
    for x, y in zip(first, second, strict=True):
        np.testing.assert_array_equal(x, y)


@DEVICES
@pytest.mark.parametrize("weighted", [False, True])
def test_bags_equal_those_of_a_dict(devices, weighted):
    pooling = "mean" if weighted else "sum"
    kjts = [batch(seed, 64) for seed in range(3)]
    ours = T.EmbeddingBagCollection(
        tables(pooling), weighted, rngs=nnx.Rngs(0), mesh=mesh(devices)
    )
    core = jde.nnx.EmbeddingBagCollection(
        tables(pooling), rngs=nnx.Rngs(0), mesh=mesh(devices)
    )

    def keyed(model, kjt, weights):
        if weights:
            parts = [weights[key] for key in KEYS]
            kjt = kjt.with_weights(jnp.concatenate(parts))
        out = model(kjt)
        return [out[key] for key in ("a", "c", "b")]

    def by_dict(model, ids, weights):
        rows = model(ids, weights or None)
        return [rows[key] for key in ("a", "c", "b")]

    inputs = [plain(kjt) for kjt in kjts]
    inputs = [(ids, weights if weighted else {}) for ids, weights in inputs]
    weights = [w for _, w in inputs]
    keyed_inputs = list(zip(jax.device_put(kjts), weights, strict=True))
    assert_same_bits(train(ours, keyed_inputs, keyed), train(core, inputs, by_dict))


@DEVICES
def test_rows_equal_those_of_a_dict(devices):
    kjts = [batch(seed, 64) for seed in range(2)]
    options = {"rngs": nnx.Rngs(0), "mesh": mesh(devices)}
    ours = T.EmbeddingCollection(tables(None), **options)
    options["rngs"] = nnx.Rngs(0)
    core = jde.nnx.EmbeddingCollection(tables(None), **options)

    def keyed(model, kjt, weights):
        out = model(kjt)
        return [out[key].values() for key in ("a", "c", "b")]

    def by_dict(model, ids, weights):
        rows = model(ids)
        return [rows[key] for key in ("a", "c", "b")]

    inputs = [(plain(kjt)[0], {}) for kjt in kjts]
    ours_rows = train(ours, [(kjt, {}) for kjt in kjts], keyed)
    assert_same_bits(ours_rows, train(core, inputs, by_dict))


def test_core_collections_take_a_keyed_jagged_tensor():
    kjt = batch(0, None)
    coll = jde.Tables(tables("sum"))
    given, expected = (
        coll.lookup(coll.init(0), each)[0] for each in (kjt, plain(kjt)[0])
    )
    for key in KEYS:
        np.testing.assert_array_equal(given[key], expected[key])
    module = jde.nnx.EmbeddingBagCollection(tables("sum"), rngs=nnx.Rngs(0))
    assert list(module(kjt)) == ["a", "c", "b"]


def test_a_plain_dict_still_works():
    model = T.EmbeddingBagCollection(tables("sum"), rngs=nnx.Rngs(0))
    kjt = batch(0, None)
    expected = model(kjt).values()
    np.testing.assert_array_equal(model(plain(kjt)[0]).values(), expected)
    np.testing.assert_array_equal(model(kjt.to_dict()).values(), expected)
    padded = {key: jt.to_padded_dense(4, -1) for key, jt in kjt.to_dict().items()}
    got = model(padded, train=False).values()
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_one_program_for_fifty_batches_and_evaluation_inserts_nothing():
    model = T.EmbeddingBagCollection(tables("sum"), rngs=nnx.Rngs(0))
    programs = []

    @jde.nnx.jit
    def forward(model, kjt):
        programs.append(kjt.capacity_per_key())
        return model(kjt).values()

    policy = T.Capacity()
    for seed in range(50):
        forward(model, batch(seed, policy))
    assert len(programs) == 1
    before = model.stats()["t1/rows"]
    model.eval()
    forward(model, batch(99, policy))
    assert model.stats()["t1/rows"] == before


def test_small_tables_lie_on_every_device():
    configs = [
        T.EmbeddingBagConfig(rows, 8, f"t{rows}", feature_names=[f"f{rows}"])
        for rows in (3, 100, 700, 1500)
    ]
    one, eight = (
        T.EmbeddingBagCollection(configs, rngs=nnx.Rngs(0), mesh=mesh(devices))
        for devices in (1, 8)
    )
    sizes = [
        [table.capacity for table in module.coll.tables.values()]
        for module in (one, eight)
    ]
    assert sizes == [[256, 256, 2048, 3072], [1024, 1024, 2048, 3072]]
    kjt = T.KeyedJaggedTensor([f"f{c.num_embeddings}" for c in configs], *SMALL)
    for module in (one, eight):
        assert not module.is_weighted()
        assert module(kjt).values().shape == (3, 32)
    # Initial rows depend on the declared number, not on the capacity.
    np.testing.assert_array_equal(eight(kjt).values(), one(kjt).values())


def test_a_plan_takes_configs_of_torchrec():
    configs = [T.EmbeddingBagConfig(n, 32, f"t{n}") for n in (3, 4000)]
    planner = T.EmbeddingShardingPlanner(
        T.Topology(8, "cpu", 10**9, hbm_mem_bw=1e12, intra_host_bw=1e11), 64
    )
    plan = planner.plan(configs)
    assert [t.table for t in plan.tables] == ["t3", "t4000"]
    assert plan == planner.plan([config.to_table() for config in configs])
    own = [t.sharding for t in plan.apply(configs)]
    assert own == [t.sharding for t in plan.tables]
    ours = T.EmbeddingBagCollection(
        configs, rngs=nnx.Rngs(0), mesh=mesh_of(8), plan=plan
    )
    lies = {t.table: t.sharding for t in plan.tables}
    assert {t.name: t.sharding for t in ours.coll.tables.values()} == lies


def test_what_has_no_room_is_in_the_stats():
    model = T.EmbeddingBagCollection(tables("sum"), rngs=nnx.Rngs(0))
    kjt = batch(0, None)

    @jde.nnx.jit
    def step(model, values, lengths):
        def loss_fn(model):
            given = T.KeyedJaggedTensor.from_lengths(
                KEYS, values, lengths, capacities={"a": 5, "b": 1, "c": 64}
            )
            return model(given).values().sum()

        return jde.nnx.value_and_grad(loss_fn)(model)[0]

    counts = dict(zip(KEYS, np.asarray(kjt.length_per_key()), strict=True))
    for _ in range(2):
        step(model, jde.ids(kjt.values()), jnp.asarray(kjt.lengths()))
    stats = model.stats()
    assert stats["t1/dropped"] == 2 * max(counts["a"] - 5, 0)
    assert stats["t2/dropped"] == 2 * (counts["b"] - 1) > 0


@DEVICES
def test_a_variable_batch_has_its_own_rows_for_each_key(devices):
    kjt = T.KeyedJaggedTensor.from_lengths_sync(
        KEYS,
        np.arange(7),
        np.array([2, 1, 3, 0, 1, 0]),
        stride_per_key_per_rank=[[2], [1], [3]],
    )
    model = T.EmbeddingBagCollection(
        tables("sum"), rngs=nnx.Rngs(0), mesh=mesh(devices)
    )
    out = model(kjt)
    assert [out[key].shape for key in KEYS] == [(2, 4), (1, 4), (3, 4)]
    one = {key: [[k] for k in range(7)] for key in KEYS}  # bags of one id
    rows = model({k: jde.ids(np.array(v)) for k, v in one.items()}, train=False)
    bags = {"a": [[0, 1], [2]], "b": [[3, 4, 5]], "c": [[], [6], []]}
    for key, ids in bags.items():
        sums = [np.asarray(rows[key])[each].sum(axis=0) for each in ids]
        np.testing.assert_allclose(out[key], sums, rtol=1e-6, atol=1e-7)
    with pytest.raises(ValueError, match="inverse_indices"):
        out.values()


@DEVICES
@pytest.mark.parametrize("need_indices", [False, True])
def test_rows_of_a_variable_batch_are_those_of_its_examples(devices, need_indices):
    ranks, index = [[1], [3], [2]], np.array([[0, 0, 0], [0, 1, 2], [1, 0, 1]])
    short = np.array([1, 2, 0, 1, 1, 2]), np.array([7, 5, 6, 8, 9, 1, 2])
    values, lengths, bags = [], [], np.split(short[1], np.cumsum(short[0])[:-1])
    for begin, chosen in zip((0, 1, 4), index, strict=True):
        values += [i for bag in chosen for i in bags[begin + bag]]
        lengths += short[0][begin + chosen].tolist()
    make = T.KeyedJaggedTensor
    whole = make(KEYS, np.array(values), lengths=np.array(lengths))
    variable = {"lengths": short[0], "stride_per_key_per_rank": ranks}
    model = T.EmbeddingCollection(
        tables(None), need_indices=need_indices, rngs=nnx.Rngs(0), mesh=mesh(devices)
    )
    wanted = model(whole)
    got = model(make(KEYS, short[1], inverse_indices=(KEYS, index), **variable))
    for key in KEYS:
        np.testing.assert_array_equal(got[key].lengths(), wanted[key].lengths())
        np.testing.assert_array_equal(got[key].values(), wanted[key].values())
        if need_indices:
            np.testing.assert_array_equal(got[key].weights(), wanted[key].weights())
    bare = jax.jit(lambda kjt: model(kjt, train=False))(
        make(KEYS, short[1], **variable)
    )
    assert [bare[key].lengths().tolist() for key in KEYS] == [[1], [2, 0, 1], [1, 2]]
    inverse = make(KEYS, short[1], inverse_indices=(KEYS, index), **variable)
    with pytest.raises(TypeError, match=r"model\(kjt, capacity=4096\)"):
        jax.jit(lambda kjt: model(kjt, train=False))(inverse)
    # With room for more entries than there are, the first ones are those of the host.
    roomy = jax.jit(lambda kjt: model(kjt, train=False, capacity=9))(inverse)
    for key in KEYS:
        np.testing.assert_array_equal(roomy[key].lengths(), wanted[key].lengths())
        count = int(wanted[key].lengths().sum())
        assert roomy[key].values().shape == (9, 4)
        np.testing.assert_array_equal(roomy[key].values()[:count], wanted[key].values())
        assert not np.any(roomy[key].values()[count:])
        if need_indices:
            ids = jde.ids(wanted[key].weights())
            np.testing.assert_array_equal(roomy[key].weights()[:count], ids)


def test_examples_without_room_are_counted_and_get_no_gradient():
    """Of bags [5, 6] and [7], the examples 0, 1, 0 and room for four entries."""
    table = T.EmbeddingConfig(64, 4, "t", feature_names=["a"])
    sgd = {"*": jde.optim.sgd(1.0)}
    model = T.EmbeddingCollection(T.with_optimizer([table], sgd), rngs=nnx.Rngs(0))
    optimizer = jde.nnx.Optimizer(model, optax.sgd(1.0))
    kjt = T.KeyedJaggedTensor(
        ["a"],
        np.array([5, 6, 7]),
        lengths=np.array([2, 1]),
        stride_per_key_per_rank=[[2]],
        inverse_indices=(["a"], np.array([[0, 1, 0]])),
    )
    bags = {"a": T.JaggedTensor(np.array([5, 6, 7]), lengths=np.array([3]))}

    @jde.nnx.jit
    def step(model, optimizer, kjt):
        def loss(model, kjt):
            out = model(kjt, capacity={"a": 4})["a"]
            return out.values().sum(), (out.lengths(), out.values())

        (_, seen), grads = jde.nnx.value_and_grad(loss, has_aux=True)(model, kjt)
        optimizer.update(model, grads)
        return seen

    before = model(bags)["a"].values()
    lengths, rows = step(model, optimizer, kjt)
    assert lengths.tolist() == [2, 1, 1]
    np.testing.assert_array_equal(rows, before[np.array([0, 1, 2, 0])])
    uses = np.array([2.0, 1.0, 1.0])[:, None]
    np.testing.assert_allclose(model(bags)["a"].values(), before - uses, rtol=1e-6)
    assert model.stats()["t/dropped"] == 1
    with pytest.raises(ValueError, match="has no key 'a'"):
        model(kjt, capacity={"b": 4})
    with pytest.raises(ValueError, match="0 or more"):
        model(kjt, capacity=-1)


def test_ids_of_32_bits():
    table = jde.TableConfig("a", 4, 256, key_dtype="int32")
    model = T.EmbeddingBagCollection([table], rngs=nnx.Rngs(0))
    values = jnp.array([-7, 5, 5], jnp.int32)
    kjt = T.KeyedJaggedTensor.from_lengths_sync(["a"], values, [1, 2], capacity=4)
    assert kjt.values().tolist() == [-7, 5, 5, -1]
    out = model(kjt)["a"]
    one = model({"a": jnp.array([-7, 5], jnp.int32)}, train=False)["a"]
    np.testing.assert_array_equal(out, np.stack([one[0], 2 * one[1]]))


def test_a_model_comes_back_from_its_state():
    model = T.EmbeddingBagCollection(tables("sum"), rngs=nnx.Rngs(0))
    kjt = batch(0, None)
    expected = model(kjt).values()
    graph, state = nnx.split(model)
    again = nnx.merge(graph, jax.tree.map(jnp.array, state))
    np.testing.assert_array_equal(again(kjt, train=False).values(), expected)


# ---- batches that are routed ahead --------------------------------------------------


def looked_up(model: Any, batch: Any) -> list[Any]:
    out = model(batch)
    if isinstance(out, T.KeyedTensor):
        return [out.values()]
    return [jt.values() for jt in out.values()]


def collection(kind: str, devices: int) -> Any:
    on = {"rngs": nnx.Rngs(0), "mesh": mesh(devices)}
    if kind == "rows":
        return T.EmbeddingCollection(tables(None), **on)
    weighted = kind != "bags"
    bags = T.EmbeddingBagCollection(tables("mean"), is_weighted=weighted, **on)
    if kind != "processed":
        return bags
    positions = T.PositionWeightedModuleCollection(dict.fromkeys(KEYS, 4))
    return T.FeatureProcessedEmbeddingBagCollection(bags, positions)


@pytest.mark.slow
@DEVICES
@pytest.mark.parametrize("kind", ["bags", "weighted", "rows", "processed"])
def test_routed_batches_train_as_the_plain_loop(kind, devices):
    given = [batch(seed, capacity=64) for seed in range(3)]

    def loss_fn(model, kjt):
        rows = looked_up(model, kjt)
        return sum((x * jnp.cos(x)).sum() for x in rows), rows

    def train_on(model, kjt):
        both = jde.nnx.value_and_grad(loss_fn, has_aux=True)
        (_, rows), grads = both(model, kjt)
        jde.nnx.update_tables(model, grads)
        return rows

    plain_step = jde.nnx.jit(train_on)
    step = jde.nnx.jit(lambda m, sent, kjt: (train_on(m, sent), m.route(kjt)))
    model, other = collection(kind, devices), collection(kind, devices)
    wanted = [plain_step(model, kjt) for kjt in given]
    sent, seen = jde.nnx.jit(lambda m, kjt: m.route(kjt))(other, given[0]), []
    for kjt in [*given[1:], given[0]]:
        rows, sent = step(other, sent, kjt)
        seen.append(rows)
    for one, two in zip(jax.tree.leaves(wanted), jax.tree.leaves(seen), strict=True):
        np.testing.assert_array_equal(one, two)


def test_tables_without_an_optimizer_are_named_once(caplog):
    """TorchRec's optimizer of all parameters would update their rows, too."""
    unnamed = T.EmbeddingBagConfig(9, 4, "no_optimizer", feature_names=["a"])
    named = T.EmbeddingBagConfig(9, 4, "named", feature_names=["b"])
    (named,) = T.with_optimizer([named], {"*": jde.optim.adam(0.1)})
    for _ in range(2):
        T.EmbeddingBagCollection([unnamed, named], rngs=nnx.Rngs(0))
    (said,) = [r.getMessage() for r in caplog.records if "optimizer" in r.getMessage()]
    assert "['no_optimizer']" in said and "with_optimizer" in said
