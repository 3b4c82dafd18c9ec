# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""vmap of find is find of each example."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import jax_dynemb as jde
from meshes import mesh_of

ROWS = jde.initializers.uniform(-1, 1)
RNG = np.random.default_rng(0)


def filled(pooling, mesh=None):
    config = jde.TableConfig("t", 4, 256, pooling=pooling, initializer=ROWS)
    coll = jde.Tables([config], mesh=mesh and mesh_of(mesh))
    state = coll.lookup(coll.init(0), {"t": jde.ids(np.arange(40))})[2]
    return coll, state


def jagged(n):
    """One with unused places behind its bags, and bags of 0 ids."""
    lengths = RNG.integers(0, 4, (n, 3)).astype(np.int32)
    values = RNG.integers(0, 60, (n, 10))
    return jde.Jagged(jde.ids(values), jnp.asarray(lengths))


IDS = {
    "scalars": lambda: jde.ids(RNG.integers(-1, 60, 6)),
    "vectors": lambda: jde.ids(RNG.integers(-1, 60, (6, 5))),
    "bags": lambda: jde.ids(RNG.integers(-1, 60, (6, 5, 3))),
    "jagged": lambda: jagged(6),
}


@pytest.mark.parametrize("mesh", [None, 2])
@pytest.mark.parametrize("pooling", [None, "sum", "mean"])
@pytest.mark.parametrize("kind", IDS)
def test_each_example_is_as_alone(mesh, pooling, kind):
    coll, state = filled(pooling, mesh)
    ids = IDS[kind]()

    def one(ids):
        rows, found, after = coll.find(state, {"t": ids})
        return rows["t"], found["t"], after

    rows, found, after = jax.jit(jax.vmap(one, out_axes=(0, 0, None)))(ids)
    assert jax.tree.map(jnp.shape, after) == jax.tree.map(jnp.shape, state)
    for i in range(6):
        alone = one(jax.tree.map(lambda x, i=i: x[i], ids))
        used = ...
        if kind == "jagged":  # what stands behind the bags is of no meaning
            used = slice(int(ids.lengths[i].sum()))
        at = ... if pooling else used
        np.testing.assert_allclose(rows[i][at], alone[0][at], rtol=1e-6)
        np.testing.assert_array_equal(found[i][used], alone[1][used])


def test_weights_may_be_mapped_alone_and_maps_may_nest():
    coll, state = filled("sum")
    ids, weights = IDS["bags"](), RNG.normal(size=(2, 6, 5, 3)).astype(np.float32)

    def one(weights):
        return coll.find(state, {"t": ids[0]}, {"t": weights})[0]["t"]

    rows = jax.vmap(jax.vmap(one))(weights)
    each = [[one(w) for w in row] for row in weights]
    np.testing.assert_allclose(rows, each, rtol=1e-5, atol=1e-6)


def test_a_module_in_evaluation():
    embed = jde.nnx.DynamicEmbed(features=4, capacity=256, rngs=nnx.Rngs(0))
    embed(jde.ids(np.arange(40)))
    embed.eval()
    ids = IDS["vectors"]()
    np.testing.assert_array_equal(jax.vmap(embed)(ids), embed(ids))


def test_a_map_over_tables_is_refused():
    coll, state = filled(None)
    states = jax.tree.map(lambda x: jnp.stack([x, x]), state)
    ids = IDS["vectors"]()[:2]
    with pytest.raises(NotImplementedError, match="give the state in_axes=None"):
        jax.vmap(lambda state, ids: coll.find(state, {"t": ids})[0])(states, ids)
