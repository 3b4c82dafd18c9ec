# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Shapes, and what a TTConfig refuses."""

import math

import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jax_dynemb as jde


@given(st.integers(1, 2**31), st.integers(1, 1024), st.integers(2, 5))
def test_suggested_shapes_fit(rows, dim, cores):
    p, q = jde.tt.suggested_shapes(rows, dim, cores)
    assert len(p) == len(q) == cores
    assert math.prod(q) == dim
    # Rounding up costs less than a layer of each factor.
    assert rows <= math.prod(p) <= rows * math.prod(1 + 1 / f for f in p)


@pytest.mark.parametrize("dim", [96, 128, 192, 768, 1024])
@pytest.mark.parametrize("cores", [2, 3, 4, 5])
def test_dims_that_fbtt_asserts_on(dim, cores):
    config = jde.TTConfig("t", dim, 10_000, (4,) * (cores - 1))
    assert config.num_cores == cores and math.prod(config.dim_factors) == dim


def test_sizes():
    config = jde.TTConfig(
        "t", 64, 11_000_000, 32, rows_shape=(200, 220, 250), dim_shape=(4, 4, 4)
    )
    shapes = [(200, 1, 4, 32), (220, 32, 4, 32), (250, 32, 4, 1)]
    assert list(config.core_shapes) == shapes
    assert config.num_parameters == sum(math.prod(s) for s in shapes)
    assert config.num_rows == 11_000_000 and config.feature_names == ("t",)
    assert hash(config) == hash(
        jde.TTConfig(
            **{
                "name": "t",
                "dim": 64,
                "num_embeddings": 11_000_000,
                "ranks": (32, 32),
                "rows_shape": (200, 220, 250),
                "dim_shape": (4, 4, 4),
            }
        )
    )


@pytest.mark.parametrize(
    ("options", "fix"),
    [
        ({"name": ""}, "needs one character or more"),
        ({"name": "a/b"}, "must not contain '/'"),
        ({"dim": 0}, "dim must be an int of 1 or more"),
        ({"num_embeddings": 1.5}, "num_embeddings must be an int"),
        ({"hash_seed": "a"}, "hash_seed must be an int"),
        ({"hash_seed": 1.5}, "hash_seed must be an int"),
        ({"optimizer": jde.optim.none()}, "or None"),
        ({"optimizer": jde.optim.sgd(0.1, clip_row_norm=1.0)}, "without clipping"),
        ({"ranks": ()}, "give 1 to 4 ranks"),
        ({"ranks": (1,) * 5}, "give 1 to 4 ranks"),
        ({"ranks": (4, 0)}, "ranks must be an int of 1 or more"),
        ({"ranks": "4"}, "must be a tuple of ints"),
        ({"rows_shape": (10, 10)}, "would do"),
        ({"rows_shape": (4, 4, 4)}, "fewer than num_embeddings 1000"),
        ({"dim_shape": (2, 2, 2)}, "not dim 16"),
        ({"num_embeddings": 2**33}, "2\\*\\*32 - 1 are the most"),
        ({"ids": "mod"}, "ids must be one of"),
        ({"pooling": "max"}, "pooling must be one of"),
        ({"compute_dtype": "float16"}, "compute_dtype must be one of"),
        ({"initializer": jde.initializers.normal()}, "make rows, not cores"),
        ({"initializer": jde.tt.normal(-1.0)}, "stddev must be above 0"),
        (
            {"initializer": jde.tt.from_dense(np.zeros((3, 3)))},
            r"of shape \(1000, 16\)",
        ),
        (
            {"initializer": jde.tt.from_dense(np.full((1000, 16), np.nan))},
            "not finite",
        ),
        (
            {"initializer": jde.tt.from_dense(np.zeros((1000, 16))), "ids": "hash"},
            "ids='index'",
        ),
        ({"initializer": jde.tt.orthogonal(), "ranks": (99, 4)}, "use a lower rank"),
        ({"optimizer": jde.optim.rowwise_adagrad(0.1)}, "has a state for each row"),
        ({"optimizer": "adam"}, "an optax transformation"),
        ({"feature_names": "x"}, "write \\('x',\\)"),
        ({"feature_names": ("x", "x")}, "give each once"),
        ({"hash_seed": -1}, "hash_seed must be 0"),
    ],
)
def test_mistakes_are_refused(options, fix):
    settings = {"name": "t", "dim": 16, "num_embeddings": 1000, "ranks": (4, 4)}
    with pytest.raises(ValueError, match=fix):
        jde.TTConfig(**(settings | options))


@pytest.mark.parametrize(
    ("arguments", "fix"),
    [
        ((10, 4, 1), "num_cores must be 2 to 5"),
        ((10, 4, 6), "num_cores must be 2 to 5"),
        ((0, 4), "1 or more"),
        ((10, 4, 3, "elrec"), "compat must be None or 'fbtt'"),
    ],
)
def test_shapes_out_of_range_are_refused(arguments, fix):
    with pytest.raises(ValueError, match=fix):
        jde.tt.suggested_shapes(*arguments)


@pytest.mark.slow
def test_gradients_of_other_rows_are_refused():
    config = jde.TTConfig("t", 16, 100, 2, pooling="sum")
    state = jde.tt.init(config, 0)
    rows, residual, state = jde.tt.lookup(config, state, jde.ids([[1, 2], [3, -1]]))
    with pytest.raises(ValueError, match="Pass the gradients of these rows"):
        jde.tt.core_gradients(config, state, residual, rows[:1])
    with pytest.raises(ValueError, match="has no optimizer"):
        jde.tt.apply_gradients(config, state, residual, rows)


def test_an_optax_transformation_moves_the_cores():
    config = jde.TTConfig("t", 16, 100, 2, optimizer=optax.adam(0.01))
    state = jde.tt.init(config, 0)
    rows, residual, state = jde.tt.lookup(config, state, jde.ids([1, 2]))
    after = jde.tt.apply_gradients(config, state, residual, rows)
    # Adam's first step is the learning rate, whatever the gradient.
    change = np.abs(np.asarray(after.cores[2] - state.cores[2]))
    assert np.isclose(change[change > 0], 0.01, rtol=1e-3).all() and change.any()


def test_a_dense_table_is_not_printed():
    law = jde.tt.from_dense(np.zeros((100, 8)))
    assert "0." not in repr(jde.TTConfig("t", 8, 100, 2, initializer=law))


def test_a_rank_in_numpy():
    assert jde.TTConfig("t", 8, 100, np.int64(4)) == jde.TTConfig("t", 8, 100, 4)
