# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""jde.unique, against NumPy's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde

DRAWS = {
    "few": lambda rng, shape: rng.integers(-1, 20, shape),
    "all_distinct": lambda rng, shape: rng.permutation(np.prod(shape)).reshape(shape),
    "wide": lambda rng, shape: rng.choice(rng.integers(-(2**63), 2**63, 50), shape),
    "padding": lambda rng, shape: np.full(shape, -1),
}


def as_int64(pairs):
    return np.ascontiguousarray(np.asarray(pairs)).view(np.int64)[:, 0]


def draw(kind, shape):
    found = np.asarray(DRAWS[kind](np.random.default_rng(1), shape), np.int64)
    return np.where((found <= -2) & (found >= -4), 0, found)


@pytest.mark.parametrize("kind", DRAWS)
@pytest.mark.parametrize("shape", [(1,), (300,), (40, 7), (100_000,), (0,), (3, 0)])
@pytest.mark.parametrize("extra", [None, 0, 5])
def test_as_in_numpy(platform, kind, shape, extra):
    given = draw(kind, shape)
    want = np.unique(given[given != -1])
    size = None if extra is None else len(want) + extra
    found = jax.jit(jde.unique, static_argnames="size")(jde.ids(given), size=size)
    assert found.count == len(want)
    keys = as_int64(found.ids)
    assert len(keys) == (given.size if size is None else size)
    assert sorted(keys[: len(want)]) == want.tolist()
    assert (keys[len(want) :] == -1).all()
    inverse = np.asarray(found.inverse)
    assert inverse.shape == shape and ((inverse == -1) == (given == -1)).all()
    np.testing.assert_array_equal(keys[inverse[given != -1]], given[given != -1])


def test_ids_without_a_place_are_counted(platform):
    given = draw("few", (300,))
    whole = jde.unique(jde.ids(given))
    found = jde.unique(jde.ids(given), size=6)
    assert found.count == whole.count == 20
    np.testing.assert_array_equal(found.ids, whole.ids[:6])
    want = np.where(np.asarray(whole.inverse) < 6, whole.inverse, -1)
    np.testing.assert_array_equal(found.inverse, want)


def test_what_is_refused():
    for wrong in (jnp.arange(4), np.arange(4), [1, 2], jnp.zeros((4, 3), jnp.uint32)):
        with pytest.raises(TypeError, match=r"unique\(jde.ids\(array\)\)"):
            jde.unique(wrong)
    for size, error in ((-1, ValueError), (2.5, TypeError), (True, TypeError)):
        with pytest.raises(error, match="size="):
            jde.unique(jde.ids([1, 2]), size=size)
