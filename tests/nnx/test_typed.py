# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""What people type: attend, a padding id of their own, "sqrtn", names of others."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import jax_dynemb as jde
from meshes import mesh_of

IDS = np.array([[5, 0, 2**40, 7], [0, 0, 0, 0], [5, 5, 0, -1]])
ROWS = jde.initializers.uniform(-1, 1)


def test_attend_scores_candidates():
    embed = jde.nnx.DynamicEmbed(
        features=8, capacity=256, initializer=ROWS, rngs=nnx.Rngs(0)
    )
    candidates = jde.ids([1, 2**50, 3])
    rows = np.asarray(embed(candidates))
    query = np.random.default_rng(0).normal(size=(2, 5, 8)).astype(np.float32)
    np.testing.assert_allclose(embed.attend(query, candidates), query @ rows.T, 1e-5)
    own = jde.ids([[1, 3], [2**50, 9]])
    embed.eval()
    each = np.asarray(embed(own))
    got = embed.attend(query[:, 0], own)
    np.testing.assert_allclose(got, np.einsum("bd,bnd->bn", query[:, 0], each), 1e-5)
    np.testing.assert_array_equal(got[1, 1], 0)  # 9 has no row, and gets none
    with pytest.raises(TypeError, match="needs the ids to score"):
        embed.attend(query)


@pytest.mark.parametrize("mesh", [None, 2])
@pytest.mark.parametrize("kind", ["padded", "jagged", "host"])
@pytest.mark.parametrize("pooling", [None, "sum", "mean", "sqrtn"])
def test_a_padding_id_is_as_minus_one(mesh, kind, pooling):
    def run(ids, **options):
        config = jde.TableConfig(
            "t", 4, 256, pooling=pooling, initializer=ROWS, **options
        )
        coll = jde.Tables([config], mesh=mesh and mesh_of(mesh))
        if kind == "jagged":
            ids = jde.Jagged(jde.ids(ids.reshape(-1)), np.array([4, 4, 4]))
        elif kind == "padded":
            ids = jde.ids(ids)
        rows, residual, state = coll.lookup(coll.init(1), {"t": ids})
        state = coll.apply_gradients(state, residual, rows)
        return rows["t"], coll.find(state, {"t": ids})[0]["t"], coll.stats(state)

    plain = run(np.where(IDS == 0, -1, IDS))
    own = run(IDS, padding_id=0)
    for a, b in zip(plain[:2], own[:2], strict=True):
        np.testing.assert_array_equal(a, b)
    assert own[2]["t/rows"] == plain[2]["t/rows"] == 3


def test_padding_ids_of_32_bits_and_of_erase():
    config = jde.TableConfig(
        "t", 4, 256, key_dtype="int32", padding_id=7, initializer=ROWS
    )
    coll = jde.Tables([config])
    rows, _, state = coll.lookup(coll.init(0), {"t": jnp.array([7, 1, -1])})
    assert np.any(np.asarray(rows["t"]), axis=1).tolist() == [False, True, False]
    state = coll.erase(state, {"t": jnp.array([7, 1])})
    assert coll.stats(state)["t/rows"] == 0
    with pytest.raises(ValueError, match="padding_id must be one id, an int of int32"):
        jde.TableConfig("t", 4, 256, key_dtype="int32", padding_id=2**40)


def weighted(layout, weights):
    ids = jde.ids(IDS)
    if layout == "jagged":
        keep = IDS != -1
        lengths = keep.sum(axis=1)
        return jde.Jagged(jde.ids(IDS[keep]), lengths), weights[keep]
    return ids, weights


@pytest.mark.parametrize("layout", ["padded", "jagged"])
@pytest.mark.parametrize("given", [False, True])
def test_sqrtn_divides_by_the_root_of_the_squares(layout, given):
    config = jde.TableConfig("t", 4, 256, pooling="sqrtn", initializer=ROWS)
    weights = np.random.default_rng(1).uniform(0.5, 2, IDS.shape).astype(np.float32)
    numbers = np.where(IDS == -1, 0, weights if given else 1.0)
    each = np.asarray(
        jde.Tables([jde.TableConfig("t", 4, 256, initializer=ROWS)]).lookup(
            jde.Tables([jde.TableConfig("t", 4, 256, initializer=ROWS)]).init(3),
            {"t": jde.ids(IDS)},
        )[0]["t"]
    )
    root = np.sqrt((numbers**2).sum(axis=1))[:, None]
    expected = (each * numbers[..., None]).sum(axis=1) / root
    coll = jde.Tables([config])
    ids, w = weighted(layout, weights)
    state = coll.init(3)
    rows, residual, state = coll.lookup(
        state, {"t": ids}, {"t": jnp.asarray(w)} if given else None
    )
    np.testing.assert_allclose(rows["t"], expected, rtol=2e-6)
    # SGD moves a row by the rate times the sum of its weights times the gradient.
    d_rows = np.random.default_rng(2).normal(size=expected.shape).astype(np.float32)
    state = coll.apply_gradients(
        state, residual, {"t": jnp.asarray(d_rows)}, learning_rate=1.0
    )
    share = (numbers / root * (IDS == 5)).sum(axis=1)
    after = coll.find(state, {"t": jde.ids([[5]])})[0]["t"][0]
    np.testing.assert_allclose(after, each[0, 0] - share @ d_rows, rtol=1e-5, atol=1e-6)


def test_sqrtn_in_a_module_has_gradients_of_its_weights():
    config = jde.TableConfig("t", 4, 256, pooling="sqrtn", initializer=ROWS)
    bags = jde.nnx.EmbeddingBagCollection([config], rngs=nnx.Rngs(0))
    ids = {"t": jde.ids(IDS)}
    bags(ids)
    bags.eval()
    one_each = np.asarray(
        bags.coll.find(bags.get_state(), {"t": jde.ids(IDS.reshape(-1, 1))})[0]["t"]
    ).reshape(*IDS.shape, 4)

    def plain(w):
        w = jnp.where(IDS == -1, 0, w)
        root = jnp.sqrt((w**2).sum(axis=1, keepdims=True))
        return ((w / root)[..., None] * one_each).sum(axis=1)

    w = jnp.asarray(np.random.default_rng(0).uniform(0.5, 2, IDS.shape), jnp.float32)
    np.testing.assert_allclose(bags(ids, {"t": w})["t"], plain(w), rtol=2e-6)
    got = jax.grad(lambda w: (bags(ids, {"t": w})["t"] ** 2).sum())(w)
    expected = jax.grad(lambda w: (plain(w) ** 2).sum())(w)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)


def test_names_of_others_are_answered():
    with pytest.raises(ValueError, match="that is score_strategy='step'"):
        jde.TableConfig("t", 4, 256, score_strategy="lru")  # pyright: ignore
