# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Trained tables, and dumps of them in DynamicEmb's format."""

import jax.numpy as jnp
import numpy as np

import jax_dynemb as jde
from support import compiled, gradients

NOW = 2 * 10**18
OPTIMIZERS = {
    "sgd": jde.optim.sgd(0.5),
    "adam": jde.optim.adam(0.25, b1=0.5, b2=0.75, eps=1e-6, weight_decay=0.125),
    "exact_adagrad": jde.optim.adagrad(0.5, initial_accumulator_value=0.5),
    "exact_row_wise_adagrad": jde.optim.rowwise_adagrad(0.5, eps=1e-3),
    "ftrl": jde.optim.ftrl(0.5, l1=0.125, l2=0.25, beta=1.0),
}
STRATEGIES = {
    "step": "EvictStrategy.KCustomized",
    "timestamp": "EvictStrategy.KLru",
    "lfu": "EvictStrategy.KLfu",
    "customized": "EvictStrategy.KCustomized",
    "no_eviction": "EvictStrategy.KCustomized",
}


def tables(optimizer="adam", strategy="step", **options) -> jde.Tables:
    options = {"dim": 3, "capacity": 2048} | options
    config = jde.TableConfig(
        "cat",
        optimizer=OPTIMIZERS.get(optimizer, optimizer),
        score_strategy=strategy,
        **options,
    )
    return jde.Tables([config])


def trained(coll: jde.Tables, steps: int = 3, positive: bool = False):
    rng, jit = np.random.default_rng(0), compiled(coll)
    customized = coll.tables["cat"].score_strategy is jde.ScoreStrategy.CUSTOMIZED
    state = coll.init(0)
    for step in range(steps):
        keys = rng.integers(0 if positive else -(2**62), 2**62, 200)
        scores = {"cat": jnp.uint32(step)} if customized else None
        ids = {"cat": jde.ids(keys)}
        rows, residual, state = jit.lookup(state, ids, None, scores)
        d_rows = {"cat": jnp.asarray(gradients(rows["cat"].shape, step))}
        state = jit.apply_gradients(state, residual, d_rows, None)
    return state


def written(path, coll, state, **options):
    options = {"quiet": True, "now": NOW} | options
    return jde.export.dynamicemb(path, coll, state, **options)["cat"]


def states_of(row) -> np.ndarray:
    """M and v, linear and accumulator, or that alone, as DynamicEmb stores them."""
    parts = [
        np.atleast_1d(row.state[n])
        for n in ("mu", "nu", "z", "n", "sum_of_squares")
        if n in row.state
    ]
    return np.concatenate(parts) if parts else np.empty(0, np.float32)
