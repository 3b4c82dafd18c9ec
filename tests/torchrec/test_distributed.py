# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A program of TorchRec's form: planner, wrapper, pipeline, quantised model."""

import jax
import numpy as np
import optax
import pytest
from flax import nnx

import jax_dynemb as jde
from tests.meshes import mesh_of

T = jde.torchrec
NUMBERS = {"hbm_cap": 2**33, "hbm_mem_bw": 1e11, "intra_host_bw": 1e10}
SGD = jde.optim.sgd(0.5)


def configs(kind=T.EmbeddingBagConfig):
    return [kind(100, 4, f"t{i}", feature_names=[f"f{i}"]) for i in range(2)]


def of(seed):
    ids = np.random.default_rng(seed).integers(0, 50, 32)
    return T.KeyedJaggedTensor(["f0", "f1"], ids, lengths=np.full(16, 2))


class Model(nnx.Module):
    def __init__(self, **options):
        rngs = nnx.Rngs(0)
        tables = T.with_optimizer(configs(), {"*": SGD})
        self.ebc = T.EmbeddingBagCollection(tables, device="meta", rngs=rngs, **options)
        self.over = nnx.Linear(8, 1, rngs=rngs)

    def __call__(self, kjt):
        logits = self.over(self.ebc(kjt).values())[:, 0]
        return (logits - 1.0) ** 2, logits


def rows_of(model, table="t0"):
    chunks = list(model.ebc.coll.export(model.ebc.get_state(), table))
    keys = np.concatenate([chunk.keys for chunk in chunks])
    rows = np.concatenate([chunk.rows for chunk in chunks])
    return dict(zip(keys.tolist(), rows, strict=True))


def plan_for(devices, sharding="row_wise"):
    constraints = {f"t{i}": T.ParameterConstraints([sharding]) for i in range(2)}
    topology = T.Topology(devices, "cpu", **NUMBERS)
    return T.EmbeddingShardingPlanner(topology, constraints=constraints)


def test_a_pipeline_trains_as_the_plain_loop():
    piped, plain = Model(), Model()
    optimizers = [jde.nnx.Optimizer(m, optax.adam(0.1)) for m in (piped, plain)]
    pipeline = T.TrainPipelineSparseDist(piped, optimizers[0], "cuda")
    batches, outputs = iter([of(seed) for seed in range(4)]), []
    with pytest.raises(StopIteration):
        while True:
            outputs.append(pipeline.progress(batches))

    @jde.nnx.jit
    def step(model, optimizer, kjt):
        def loss_of(model, kjt):
            losses, logits = model(kjt)
            return losses.sum(), logits

        graded = jde.nnx.value_and_grad(loss_of, has_aux=True)
        (_, logits), grads = graded(model, kjt)
        optimizer.update(model, grads)
        return logits

    expected = [step(plain, optimizers[1], of(seed)) for seed in range(4)]
    np.testing.assert_allclose(outputs, expected, rtol=1e-6)
    before = rows_of(piped)
    np.testing.assert_allclose(before[3], rows_of(plain)[3], rtol=1e-6)
    piped.eval()
    assert pipeline.progress(iter([of(9)])).shape == (8,)
    np.testing.assert_array_equal(before[3], rows_of(piped)[3])
    assert before.keys() == rows_of(piped).keys()


def test_a_pipeline_takes_the_optimizer_of_the_model():
    with pytest.raises(TypeError, match="jde.nnx.Optimizer"):
        T.TrainPipelineSparseDist(Model(), optax.adam(0.1))  # pyright: ignore


@pytest.mark.parametrize("sharding", ["row_wise", "table_wise"])
def test_a_wrapped_model_has_the_plan_of_its_collections(sharding):
    mesh = mesh_of(8)
    plan = plan_for(8, sharding).collective_plan(Model(), [])
    model = Model(mesh=mesh, plan=plan)
    assert T.DistributedModelParallel(model, device="cuda", plan=plan) is model
    assert [choice.sharding for choice in model.plan.choices] == [sharding] * 2
    pipeline = T.TrainPipelineSparseDist(model, None)
    assert pipeline.progress(iter([of(0)])).shape == (8,)
    with pytest.raises(ValueError, match="mesh=mesh, plan=plan among .* of ebc"):
        T.DistributedModelParallel(Model(), plan=plan)
    placed = T.DistributedModelParallel(Model(mesh=mesh)).plan["ebc"]
    assert [table.sharding for table in placed.tables] == ["row_wise"] * 2


def test_a_plan_for_one_device_fits_every_model():
    plan = plan_for(1, "column_wise").plan(Model().ebc)
    assert T.DistributedModelParallel(Model(), plan=plan).plan == plan


def test_a_planner_without_arguments_measures_the_devices(monkeypatch):
    measured = []

    def measure(mesh):
        measured.append(mesh.size)
        return jde.Topology(mesh.size, **NUMBERS, compute_device="cpu")

    monkeypatch.setattr("jax_dynemb._src.planner.Topology.measure", measure)
    planner = T.EmbeddingShardingPlanner()
    assert measured == [jax.device_count()]
    assert (planner.batch_size, planner.topology.hbm_cap) == (512, 2**33)
    given = T.Topology(2, "cpu", local_world_size=1)
    assert (given.world_size, given.per_host, given.hbm_mem_bw) == (2, 1, 1e11)
    assert planner.plan(configs()) == planner.plan(Model())


@pytest.mark.parametrize("kind", ["bags", "rows"])
def test_one_table_is_trained_by_both_collections(kind):
    class Both(nnx.Module):
        def __init__(self):
            first, other = T.EmbeddingCollection, T.EmbeddingBagCollection
            names = [T.EmbeddingConfig, T.EmbeddingBagConfig]
            if kind == "bags":
                first, other, names = other, first, names[::-1]
            tables = T.with_optimizer(configs(names[0]), {"*": SGD})
            self.first = first(tables, rngs=nnx.Rngs(0))
            shared = names[1](100, 4, "t0", feature_names=["g"])
            self.other = other([shared], rows_of=self.first)

    def loss_of(model, kjt, others):
        weights = {"first": 1.0, "other": 10.0}
        outs = {"first": model.first(kjt), "other": model.other(others)}
        keys = {"first": "f0", "other": "g"}
        total = 0.0
        for name, weight in weights.items():
            out = outs[name][keys[name]]
            rows = out.values() if isinstance(out, T.JaggedTensor) else out
            total += weight * rows.sum()
        return total

    @jde.nnx.jit
    def step(model, kjt, others):
        grads = jde.nnx.value_and_grad(loss_of)(model, kjt, others)[1]
        jde.nnx.update_tables(model, grads)

    model = Both()
    kjt = T.KeyedJaggedTensor(["f0", "f1"], np.arange(8), lengths=np.ones(8, int))
    others = T.KeyedJaggedTensor(["g"], np.array([2, 3, 40]), lengths=[1, 1, 1])
    model.first(kjt), model.other(others)
    before = [found(model.first), found(model.other)]
    step(model, kjt, others)
    after = [found(model.first), found(model.other)]
    assert before[0].keys() == {0, 1, 2, 3, 40} == before[1].keys()
    moved = {key: (before[0][key] - after[0][key])[0] for key in before[0]}
    expected = {0: 0.5, 1: 0.5, 2: 5.5, 3: 5.5, 40: 5.0}
    assert moved == pytest.approx(expected, rel=1e-5)
    np.testing.assert_array_equal(after[0][2], after[1][2])


def found(module):
    chunks = list(module.coll.export(module.get_state(), "t0"))
    keys = np.concatenate([chunk.keys for chunk in chunks])
    rows = np.concatenate([chunk.rows for chunk in chunks])
    return dict(zip(keys.tolist(), rows, strict=True))


def test_tables_of_others_are_named():
    first = T.EmbeddingCollection(configs(T.EmbeddingConfig), rngs=nnx.Rngs(0))
    for wrong in (T.EmbeddingBagConfig(9, 4, "u"), T.EmbeddingBagConfig(9, 8, "t0")):
        with pytest.raises(ValueError, match="rows_of: there is no table"):
            T.EmbeddingBagCollection([wrong], rows_of=first)


@pytest.mark.parametrize(
    ("dtype", "error"), [("torch.qint8", 1 / 254), (T.DataType.INT4, 1 / 14)]
)
def test_a_quantised_model_is_near_and_leaves_the_first_one_alone(dtype, error):
    model = Model()
    model(of(0))
    rows = rows_of(model)
    packed = T.quantize_embeddings(model, dtype)
    exact = np.asarray(model.ebc(of(0), train=False).values())
    near = np.asarray(packed.ebc(of(0)).values())
    largest = max(np.abs(row).max() for row in rows.values())
    assert 0 < np.abs(near - exact).max() <= 2 * error * largest * 1.01
    pipeline = T.TrainPipelineSparseDist(model)
    pipeline.progress(iter([of(0)]))  # donates the arrays of the first model
    np.testing.assert_array_equal(packed.ebc(of(0)).values(), near)
    with pytest.raises(ValueError, match="no counterpart"):
        T.quantize_embeddings(model, "int8", per_table_weight_dtype={"t0": "int4"})
    assert T.quantize_embeddings(model, "int8", inplace=True) is model
