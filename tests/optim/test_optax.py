# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The fused optimizers against optax on a dense table of the same rows."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jax_dynemb as jde
from support import export

NUM_KEYS, DIM, STEPS = 40, 8, 6
PAIRS = {
    "sgd": (jde.optim.sgd(0.1), optax.sgd(0.1)),
    "sgd_schedule": (
        jde.optim.sgd(optax.cosine_decay_schedule(0.5, STEPS)),
        optax.sgd(optax.cosine_decay_schedule(0.5, STEPS)),
    ),
    # optax adds epsilon under the root: at 1e-12 the two are one to seven digits
    "adagrad": (
        jde.optim.adagrad(0.1, eps=1e-12, initial_accumulator_value=0.1),
        optax.adagrad(0.1, eps=1e-12, initial_accumulator_value=0.1),
    ),
    "adam": (jde.optim.adam(0.1), optax.adam(0.1)),
    "adam_options": (
        jde.optim.adam(0.1, b1=0.8, b2=0.95, eps=1e-4),
        optax.adam(0.1, b1=0.8, b2=0.95, eps=1e-4),
    ),
    "adamw": (
        jde.optim.adam(0.1, weight_decay=0.05),
        optax.adamw(0.1, weight_decay=0.05),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_all_rows_touched_in_every_step(platform, name):
    fused, tx = PAIRS[name]
    table = jde.TableConfig(name="t", dim=DIM, capacity=256, optimizer=fused)
    coll = jde.Tables([table])
    keys = np.arange(NUM_KEYS)
    rows, _, state = coll.lookup(coll.init(1), {"t": jde.ids(keys)})
    dense = jnp.asarray(rows["t"])
    opt_state = tx.init(dense)
    lookup, apply = jax.jit(coll.lookup), jax.jit(coll.apply_gradients)
    for step in range(STEPS):
        ids, d_rows = batch(step)
        _, residual, state = lookup(state, {"t": jde.ids(ids)})
        state = apply(state, residual, {"t": d_rows})
        gradient = jnp.zeros_like(dense).at[ids].add(d_rows)
        updates, opt_state = tx.update(gradient, opt_state, dense)
        dense = optax.apply_updates(dense, updates)
    for key, row in export(coll, state, "t").items():
        np.testing.assert_allclose(row.values, dense[key], rtol=1e-4, atol=1e-5)


def batch(step: int) -> tuple[np.ndarray, Any]:
    """Every key once or more, with gradients."""
    rng = np.random.default_rng(step)
    ids = rng.permutation(np.r_[np.arange(NUM_KEYS), rng.integers(0, NUM_KEYS, 24)])
    return ids, jnp.asarray(rng.normal(size=(len(ids), DIM)), jnp.float32)
