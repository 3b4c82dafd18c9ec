# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Messages of tensor-train lookups under transformations that kernels do not have."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde

CONFIG = jde.TTConfig("t", 8, 60, 2)
IDS = jde.ids(np.arange(6))


@pytest.fixture(scope="module")
def cores():
    return jde.tt.init(CONFIG, 1).cores


def squares(cores):
    return jnp.sum(jde.tt.find(CONFIG, cores, IDS) ** 2)


@pytest.mark.parametrize(
    "call",
    [
        lambda cores: jax.vmap(lambda ids: jde.tt.find(CONFIG, cores, ids))(
            jnp.stack([IDS, IDS])
        ),
        lambda cores: jax.vmap(squares)(tuple(jnp.stack([x, x]) for x in cores)),
        jax.jacrev(lambda cores: jde.tt.find(CONFIG, cores, IDS)),
    ],
)
def test_vmap(cores, call):
    with pytest.raises(NotImplementedError, match=r"vmap is not.*jnp\.einsum") as error:
        call(cores)
    assert "the same table" not in str(error.value)


@pytest.mark.parametrize(
    "call",
    [
        jax.hessian(squares),
        jax.grad(lambda cores: jax.grad(squares)(cores)[0].sum()),
    ],
)
def test_second_derivatives(cores, call):
    with pytest.raises(ValueError, match=r"once, in reverse.*jnp\.einsum") as error:
        call(cores)
    assert "apply_gradients" not in str(error.value)


def test_the_way_that_the_messages_name(cores):
    """Plain JAX on the cores has the rows of ``find``, and second derivatives."""

    def rows(cores):
        whole = jnp.einsum("aiqr,brst,ctuv->abcqsu", *cores)
        return whole.reshape(-1, 8)[:6]

    np.testing.assert_allclose(
        rows(cores), jde.tt.find(CONFIG, cores, IDS), rtol=1e-5, atol=1e-7
    )
    second = jax.hessian(lambda cores: jnp.sum(rows(cores) ** 2))(cores)
    assert all(bool(jnp.isfinite(x).all()) for x in jax.tree.leaves(second))
