# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Optimizers of cores: the fused ones of tables as optax transformations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jax_dynemb._src.optim.interface import Fused


def core_optimizer(
    optimizer: Any, hyper: Mapping[str, Any] | None = None
) -> optax.GradientTransformation:
    """Returns the transformation that updates cores by the optimizer of a config.

    Cores are dense, so every element moves by its own state, as in FBTT: there are no
    lazy rows. The formulas are those of ``jde.optim``.

    Args:
      optimizer: of the config.
      hyper: numbers instead of those in a fused optimizer, by name.
    """
    if optimizer is None:
        return optax.set_to_zero()
    if not isinstance(optimizer, Fused):
        return optimizer
    own = vars(optimizer) | dict(hyper or {})
    if optimizer.kind == "sgd":
        return optax.sgd(own["learning_rate"])
    if optimizer.kind == "adagrad":
        return optax.chain(
            _scale_by_adagrad(own["initial_accumulator_value"], own["eps"]),
            optax.scale_by_learning_rate(own["learning_rate"]),
        )
    return optax.adamw(
        own["learning_rate"],
        own["b1"],
        own["b2"],
        own["eps"],
        weight_decay=own["weight_decay"],
    )


class _SumOfSquares(NamedTuple):
    sum_of_squares: Any


def _scale_by_adagrad(start: float, eps: float) -> optax.GradientTransformation:
    """Adagrad with eps outside of the root; optax has it inside."""

    def init(params: Any) -> _SumOfSquares:
        return _SumOfSquares(jax.tree.map(lambda x: jnp.full_like(x, start), params))

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        del params
        sums = jax.tree.map(lambda s, g: s + g * g, state.sum_of_squares, updates)
        scaled = jax.tree.map(lambda g, s: g / (jnp.sqrt(s) + eps), updates, sums)
        return scaled, _SumOfSquares(sums)

    return optax.GradientTransformation(init, update)
