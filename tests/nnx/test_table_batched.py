# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tensor trains of one size give what one module each gives, and FBTT's numbers."""

import json
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import jax_dynemb as jde
from peer_options import given, options_of, wanted

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
SHAPES = {"tt_ranks": [4, 5], "compute_dtype": "float32"}
IDS, OFFSETS = np.array([7, 7, 899, 0, 3, 5]), np.array([0, 2, 2, 3, 6])
OPTIONS = options_of("fbtt")


def make(num_tables=2, **options):
    options = SHAPES | {"rngs": nnx.Rngs(0)} | options
    return jde.nnx.TableBatchedTTEmbeddingBag(num_tables, 900, 6, **options)


@pytest.mark.parametrize("where", ["host", "device", "jit"])
def test_bags_of_all_tables_are_those_of_each(where):
    bags = make()
    full = [np.concatenate(list(table.full_weight())) for table in bags.tables]
    offsets = OFFSETS if where == "host" else jnp.asarray(OFFSETS)
    if where == "jit":
        call = nnx.jit(lambda bags, ids, offsets: bags(ids, offsets))
        got = call(bags, jde.ids(IDS), offsets)
    else:  # offsets are constants of the program
        got = nnx.jit(lambda bags, ids: bags(ids, offsets))(bags, jde.ids(IDS))
    assert got.shape == (2, 2, 6)
    for t, bag in np.ndindex(2, 2):
        own = IDS[OFFSETS[2 * t + bag] : OFFSETS[2 * t + bag + 1]]
        want = full[t][own].sum(axis=0)
        np.testing.assert_allclose(got[t, bag], want, rtol=1e-5, atol=1e-7)


def test_fbtt_rows_of_two_tables():
    """Both tables have the cores of one case that FBTT itself computed."""
    cases = json.loads((GOLDEN / "fbtt.json").read_text())["cases"]
    case = next(c for c in cases if c["name"] == "two_cores.dense")
    with np.load(GOLDEN / "fbtt.npz") as z:
        z = {k.removeprefix("two_cores.dense."): z[k] for k in z.files}
    cores = {f"tt_cores.{i}": np.repeat(z[f"core{i}"], 2, axis=0) for i in range(2)}
    size = case["num_embeddings"], case["dim"]
    shapes = case["tt_ranks"], case["tt_p_shapes"], case["tt_q_shapes"]
    bags = jde.nnx.TableBatchedTTEmbeddingBag(
        2, *size, *shapes, compute_dtype="float32", rngs=nnx.Rngs(0)
    )
    bags.load_fbtt(cores)
    offsets = np.concatenate([z["offsets"], z["offsets"][1:] + z["offsets"][-1]])
    got = bags(jde.ids(np.tile(z["ids"], 2)), offsets)
    for table in got:
        np.testing.assert_allclose(table, z["output"], rtol=1e-5, atol=2e-6)
    for name, array in bags.to_fbtt().items():
        if name in cores:
            np.testing.assert_array_equal(array, cores[name])


def test_gradients_reach_the_cores_of_their_table():
    bags = make()
    offsets = np.array([0, 1, 1])  # the second table has an empty bag
    grads = nnx.grad(lambda bags: bags(jde.ids([7]), offsets).sum())(bags)
    moved = [
        [bool(jnp.any(g != 0)) for g in jax.tree.leaves(grads["tables"][t]["cores"])]
        for t in range(2)
    ]
    assert moved == [[True] * 3, [False] * 3]


def test_mistakes_say_what_to_write():
    with pytest.raises(ValueError, match="all tables have as many bags"):
        make()(jde.ids(IDS), OFFSETS[:-1])
    with pytest.raises(ValueError, match="num_tables must be 1"):
        make(0)


BAG = {"num_embeddings": 900, "embedding_dim": 6, "tt_ranks": [4, 5]}


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_of_fbtt_does_what_the_list_says(name):
    option = OPTIONS[name]
    arguments = BAG | given(name, option) | {"rngs": nnx.Rngs(0)}
    if "refused" in option:
        with pytest.raises(TypeError, match=re.escape(option["refused"])) as error:
            jde.TTEmbeddingBag(**arguments)
        assert name in str(error.value)
        return
    config = jde.TTEmbeddingBag(**arguments).config
    plain = jde.TTEmbeddingBag(**BAG, rngs=nnx.Rngs(0)).config
    expected = wanted(option) if "gives" in option else {}
    kept = {"ranks", "rows_shape", "dim_shape", "num_embeddings", "dim", "initializer"}
    for field in expected or kept:
        want = expected.get(field, getattr(plain, field))
        assert getattr(config, field) == want, field


@pytest.mark.parametrize(
    "arguments",
    [
        (([4, 5], [9, 10, 11], [1, 3, 2]), {}),
        (([9, 10, 11], [1, 3, 2]), {"tt_ranks": [4, 5]}),  # as FBTT's README
        (([4, 5],), {"tt_p_shapes": [9, 10, 11], "tt_q_shapes": [1, 3, 2]}),
    ],
)
def test_positions_of_fbtt_and_of_its_readme(arguments):
    positional, named = arguments
    config = jde.TTEmbeddingBag(900, 6, *positional, **named, rngs=nnx.Rngs(0)).config
    assert (config.ranks, config.rows_shape) == ((4, 5), (9, 10, 11))
    assert config.dim_shape == (1, 3, 2)


@pytest.mark.parametrize(
    ("positional", "named"),
    [
        (([4], None, None, "SGD"), {}),
        (([4, 5], [9, 10, 11]), {"tt_p_shapes": [9, 10, 11]}),
    ],
)
def test_more_positions_are_refused(positional, named):
    with pytest.raises(TypeError, match="by position, each once"):
        jde.TTEmbeddingBag(900, 6, *positional, **named, rngs=nnx.Rngs(0))
    with pytest.raises(TypeError, match="needs tt_ranks"):
        jde.TTEmbeddingBag(900, 6, rngs=nnx.Rngs(0))
