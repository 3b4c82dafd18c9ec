# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Optimizers of the shared loop against optax on a dense table, over fifty steps."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jax_dynemb as jde
from support import export

NUM_KEYS, STEPS = 12, 50
PAIRS = {
    "lion": (
        jde.optim.lion(0.01, weight_decay=0.1),
        optax.lion(0.01, weight_decay=0.1),
    ),
    "rmsprop": (
        jde.optim.rmsprop(0.01, decay=0.9, eps=1e-6, eps_in_sqrt=True),
        optax.rmsprop(0.01, decay=0.9, eps=1e-6),
    ),
    "rmsprop_outside": (
        jde.optim.rmsprop(0.01, decay=0.9, eps=1e-6),
        optax.rmsprop(0.01, decay=0.9, eps=1e-6, eps_in_sqrt=False),
    ),
    "momentum": (jde.optim.momentum(0.01), optax.sgd(0.01, momentum=0.9)),
    "nesterov": (
        jde.optim.momentum(0.01, 0.8, nesterov=True),
        optax.sgd(0.01, momentum=0.8, nesterov=True),
    ),
    # All rows are touched in every step, so both ways of counting are the same.
    "adamw": (
        jde.optim.adam(0.01, weight_decay=0.05, bias_correction="row"),
        optax.adamw(0.01, weight_decay=0.05),
    ),
    "lamb": (
        jde.optim.lamb(0.01, weight_decay=0.05),
        optax.lamb(0.01, weight_decay=0.05),
    ),
}


@pytest.mark.parametrize("dim", [1, 3, 16, 130, 1_024])
@pytest.mark.parametrize("name", PAIRS)
def test_fifty_steps_with_duplicates(platform, name, dim):
    fused, tx = PAIRS[name]
    table = jde.TableConfig(
        "t", dim, 256, optimizer=fused, initializer=jde.initializers.normal(0.5)
    )
    coll = jde.Tables([table])
    rows, _, state = coll.lookup(coll.init(1), {"t": jde.ids(np.arange(NUM_KEYS))})
    # A layer of LAMB is a row here, so each row is a parameter of its own.
    dense = {str(key): jnp.asarray(rows["t"][key]) for key in range(NUM_KEYS)}
    opt_state = tx.init(dense)

    @jax.jit
    def step(state, dense, opt_state, ids, words, d_rows):
        _, residual, state = coll.lookup(state, {"t": words})
        state = coll.apply_gradients(state, residual, {"t": d_rows})
        summed = jnp.zeros((NUM_KEYS, dim)).at[ids].add(d_rows)
        gradient = {str(key): summed[key] for key in range(NUM_KEYS)}
        updates, opt_state = tx.update(gradient, opt_state, dense)
        return state, optax.apply_updates(dense, updates), opt_state

    rng = np.random.default_rng(0)
    for _ in range(STEPS):
        extra = rng.integers(0, NUM_KEYS, 8)
        ids = rng.permutation(np.r_[np.arange(NUM_KEYS), extra])
        # Multiples of 1/16: sums have the same bits, and so have Lion's signs.
        d_rows = rng.integers(-32, 32, (len(ids), dim)) / 16
        state, dense, opt_state = step(
            state, dense, opt_state, ids, jde.ids(ids), jnp.asarray(d_rows, jnp.float32)
        )
    for key, row in export(coll, state, "t").items():
        np.testing.assert_allclose(row.values, dense[str(key)], rtol=2e-3, atol=2e-4)
