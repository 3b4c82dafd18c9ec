# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Compares ``TTEmbeddingBag`` with its table, multiplied out in float64."""

import math
import string
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import jax_dynemb as jde

TORCH = Path(__file__).resolve().parents[2] / "jax_dynemb_torch/src"
BAGS = np.array([[7, 7, 899], [9, -1, -1], [-1, -1, -1], [1, 450, -1]])


def make(**options) -> jde.TTEmbeddingBag:
    shapes = {"tt_p_shapes": [9, 10, 11], "tt_q_shapes": [1, 3, 2]}
    options = {"compute_dtype": "float32", "rngs": nnx.Rngs(0), **shapes, **options}
    return jde.TTEmbeddingBag(900, 6, [4, 5], **options)


@nnx.jit
def looked_up(bag: jde.TTEmbeddingBag, *args, **kwargs):
    return bag(*args, **kwargs)


def formula(count: int) -> str:
    """The einsum that multiplies cores out: rows first, then columns."""
    rows, columns = string.ascii_lowercase[:count], string.ascii_lowercase[count:]
    ranks = string.ascii_uppercase
    terms = [rows[t] + ranks[t] + columns[t] + ranks[t + 1] for t in range(count)]
    return f"{','.join(terms)}->{rows}{columns[:count]}"


def dense(cores, xp=np):
    """[prod(p), prod(q)]: the definition of the table."""
    table = xp.einsum(formula(len(cores)), *cores)
    rows = math.prod(core.shape[0] for core in cores)
    return table.reshape(rows, -1)


def cores_of(bag: jde.TTEmbeddingBag) -> list[np.ndarray]:
    return [np.asarray(core[...], np.float64) for core in bag.cores]


def pooled(table, bags, weights=None, mode="sum"):
    weights = np.ones(bags.shape) if weights is None else weights
    live = (bags >= 0) & (bags < 900)
    rows = table[np.where(live, bags, 0)] * (weights * live)[..., None]
    if mode is None:
        return rows
    total = rows.sum(-2)
    count = np.maximum((bags >= 0).sum(-1), 1)[..., None]
    return total / count if mode == "mean" else total


@pytest.mark.parametrize("mode", ["sum", "mean", None])
@pytest.mark.parametrize("weighted", [False, True])
def test_bags_are_those_of_the_table(platform, mode, weighted):
    bag = make(mode=mode)
    weights = np.random.default_rng(0).normal(size=BAGS.shape) if weighted else None
    given = None if weights is None else jnp.asarray(weights, jnp.float32)
    expected = pooled(dense(cores_of(bag)), BAGS, weights, mode)
    got = looked_up(bag, jde.ids(BAGS), per_sample_weights=given)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("offsets", [np.array([0, 2, 2, 5]), [0, 2, 2, 5]])
def test_offsets_as_fbtt_takes_them(platform, offsets):
    bag = make()
    flat = np.array([7, 899, 3, 3, 0])
    table = dense(cores_of(bag))
    expected = [table[[7, 899]].sum(0), 0 * table[0], table[[3, 3, 0]].sum(0)]
    got = bag(jde.ids(flat), offsets)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-7)
    jagged = jde.Jagged(jde.ids(flat), np.diff(offsets))
    np.testing.assert_array_equal(bag(jagged), got)
    with pytest.raises(ValueError, match="leave out offsets"):
        bag(jagged, offsets)


def test_full_weight_has_the_rows_of_the_table_and_no_more(platform):
    bag = make()
    chunks = list(bag.full_weight(chunk_rows=256))
    assert [len(chunk) for chunk in chunks] == [256, 256, 256, 132]
    table = dense(cores_of(bag))
    assert len(table) == 990
    np.testing.assert_allclose(
        np.concatenate(chunks), table[:900], rtol=1e-5, atol=1e-7
    )


def loss_of(rows, target):
    return jnp.sum((rows - target) ** 2)


def test_nnx_grad_and_optax_train_the_cores_as_the_dense_table_would(platform):
    bag, ids = make(), jde.ids(BAGS)
    target = jnp.ones((4, 6))
    expected = tuple(core[...] for core in bag.cores)
    tx = optax.adam(0.01)
    state = tx.init(expected)
    optimizer = nnx.Optimizer(bag, tx, wrt=nnx.Param)

    @nnx.jit
    def step(bag, optimizer, ids):
        grads = nnx.grad(lambda bag: loss_of(bag(ids), target))(bag)
        optimizer.update(bag, grads)

    def dense_loss(cores):
        live = BAGS >= 0
        rows = dense(cores, jnp)[np.where(live, BAGS, 0)] * live[..., None]
        return loss_of(rows.sum(1), target)

    for _ in range(3):
        step(bag, optimizer, ids)
        with jax.default_matmul_precision("float32"):
            updates, state = tx.update(jax.grad(dense_loss)(expected), state, expected)
        expected = optax.apply_updates(expected, updates)
    for core, wanted in zip(bag.cores, expected, strict=True):
        np.testing.assert_allclose(core[...], wanted, rtol=1e-5, atol=1e-6)


def test_it_trains_beside_a_dynamic_table(kit):
    class Model(nnx.Module):
        def __init__(self, rngs):
            self.items = make(rngs=rngs)
            table = jde.TableConfig("user", 6, 128, optimizer=jde.optim.sgd(0.1))
            self.users = jde.nnx.EmbeddingCollection([table], rngs=rngs)

        def __call__(self, ids):
            users = self.users({"user": ids["user"]})["user"]
            return jnp.sum(self.items(ids["items"]) * users, axis=1)

    def loss(model, ids):
        return jnp.mean((model(ids) - 1.0) ** 2)

    @jde.nnx.jit
    def step(model, optimizer, ids):
        value, grads = jde.nnx.value_and_grad(loss)(model, ids)
        optimizer.update(model, grads)
        return value

    model = Model(nnx.Rngs(0))
    optimizer = jde.nnx.Optimizer(model, optax.adam(0.05))
    ids = {"items": jde.ids(BAGS[:2]), "user": jde.ids([2**40, -7])}
    losses = [float(step(model, optimizer, ids)) for _ in range(40)]
    assert losses[-1] < 0.01 < losses[0]


def test_ids_outside_are_counted_in_training_only(platform):
    bag = make()
    ids = jde.ids([[900, 2**40, -5], [899, -1, -1]])
    assert (np.asarray(bag(ids))[0] == 0).all()
    assert int(bag.out_of_range[...]) == 3

    looked_up(bag, ids)
    assert int(bag.out_of_range[...]) == 6
    bag.eval()
    bag(ids)
    assert int(bag.out_of_range[...]) == 6
    bag.train()

    @jax.jit
    def closed_over(ids):  # where nnx lets nothing be written
        return bag(ids)

    closed_over(ids)
    assert int(bag.out_of_range[...]) == 6


def test_only_the_cores_are_parameters():
    bag = make()
    shapes = [leaf.shape for leaf in jax.tree.leaves(nnx.state(bag, nnx.Param))]
    assert shapes == list(bag.config.core_shapes)
    graph, state = nnx.split(bag)
    again = nnx.merge(graph, state)
    ids = jde.ids(BAGS)
    np.testing.assert_array_equal(again(ids), bag(ids))


@pytest.mark.parametrize("law", ["approx-normal", "approx-uniform", "normal"])
def test_reset_parameters_draws_the_law_again(law):
    bag = make()
    before = cores_of(bag)
    bag.reset_parameters(law, rngs=nnx.Rngs(7))
    assert all((a != b).any() for a, b in zip(before, cores_of(bag), strict=True))
    fresh = make(weight_dist=law, rngs=nnx.Rngs(7))
    for a, b in zip(cores_of(bag), cores_of(fresh), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("option", "fix"),
    [
        ({"use_cache": True}, "no cache"),
        ({"learning_rate": 0.1}, "nnx.Optimizer"),
        ({"sparse": True}, "nnx.Optimizer"),
        ({"dim_shape": (1, 2)}, "tt_q_shapes"),
        ({"num_tables": 2}, "TableBatchedTTEmbeddingBag"),
        ({"dtype": jnp.bfloat16}, r"\['dtype'\].*options are ids, compute_dtype"),
        (
            {"optimizer": "SGD", "learning_rate": 0.1, "use_cache": True},
            "argument .*: optimizer, learning_rate: the cores .*; use_cache: every",
        ),
    ],
)
def test_arguments_that_have_another_form_here(option, fix):
    with pytest.raises(TypeError, match=fix):
        make(**option)


@pytest.mark.parametrize(
    ("option", "fix"),
    [
        ({"mode": "max"}, "mode must be one of"),
        ({"tt_p_shapes": [9, 9, 9]}, "tt_p_shapes .* has 729 rows"),
        ({"tt_q_shapes": [2, 2, 2]}, "tt_q_shapes .* has the product"),
    ],
)
def test_values_that_do_not_fit_are_named_as_they_were_written(option, fix):
    with pytest.raises(ValueError, match=fix):
        make(**option)


def test_unknown_law():
    with pytest.raises(ValueError, match="approx-normal"):
        make(weight_dist="approx-uniform-normal")


@pytest.mark.parametrize("ids", ["index", "hash"])
@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_pytorch_pools_the_same_rows(monkeypatch, ids, mode):
    torch = pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(TORCH))
    jdt = pytest.importorskip("jax_dynemb_torch")
    assert "jax_dynemb_torch" in sys.modules
    bag = make(ids=ids, mode=mode, hash_seed=12345)
    bags = np.array([[7, -1, 2**40], [899, 900, -9], [-1, -1, -1]])
    weights = np.random.default_rng(0).normal(size=(3, 3)).astype(np.float32)
    got = looked_up(bag, jde.ids(bags), per_sample_weights=jnp.asarray(weights))
    module = jdt.TTEmbeddingBag(bag.to_torch())
    with torch.no_grad():
        theirs = module(torch.tensor(bags), None, torch.tensor(weights))
    np.testing.assert_allclose(got, theirs.numpy(), rtol=1e-6, atol=1e-6)


def test_offsets_that_begin_later_are_refused():
    with pytest.raises(ValueError, match="offsets begin with 1.*write offsets"):
        make()(jde.ids(np.arange(6)), [1, 2, 6])


@pytest.mark.parametrize("ids", [jde.ids(np.arange(5)), np.arange(5)])
def test_offsets_without_the_last_are_refused(ids):
    """PyTorch leaves it out; a padded tail is in no bag and does not matter."""
    bag = make()
    with pytest.raises(ValueError, match="end with 2, but 3 ids .* append the number"):
        bag(ids, [0, 2])
    padded = np.array([0, 1, 2, 3, 4, -1, -1])
    np.testing.assert_array_equal(bag(jde.ids(padded), [0, 2, 5]), bag(ids, [0, 2, 5]))


def test_chunks_of_no_rows_are_refused():
    with pytest.raises(ValueError, match="chunk_rows must be 1 or more, not 0"):
        make().full_weight(0)
