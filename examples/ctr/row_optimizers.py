# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The table optimizers spelled in optax, for the dense model."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax

_EPS = 1e-8


def row_optimizer(name: str, learning_rate: float) -> optax.GradientTransformation:
    """Returns the optax transform that moves a dense table as `jde.optim.<name>` would.

    Adam differs in one point: optax also moves rows that a batch does not touch, by
    their momentum.
    """
    if name == "rowwise_adagrad":
        return optax.chain(_scale_by_row(), optax.scale_by_learning_rate(learning_rate))
    if name == "adagrad":
        return optax.adagrad(learning_rate, initial_accumulator_value=0.0, eps=_EPS)
    return {"adam": optax.adam, "sgd": optax.sgd}[name](learning_rate)


def _scale_by_row() -> optax.GradientTransformation:
    """Adagrad with one accumulator a row: the running sum of mean squared gradients."""

    def init(params: Any) -> Any:
        return jax.tree.map(lambda p: jnp.zeros(p.shape[:-1]), params)

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        del params
        state = jax.tree.map(lambda s, g: s + jnp.mean(g * g, -1), state, updates)
        scale = jax.tree.map(lambda s: 1.0 / (jnp.sqrt(s)[..., None] + _EPS), state)
        return jax.tree.map(jnp.multiply, updates, scale), state

    return optax.GradientTransformation(init, update)
