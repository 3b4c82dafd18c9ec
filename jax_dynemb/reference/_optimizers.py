# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""One update of one table's touched rows, in float64 on float32 storage.

The formulas are FBGEMM's: epsilon stands outside the square root, and Adam's
weight decay is decoupled and multiplied by the learning rate.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

State = dict[str, np.ndarray]


def initial_state(optimizer: Any, dim: int) -> State:
    """The optimizer state of a row that was just inserted.

    Returns:
        Per name float32[dim], or float32[] where a row has one number.
    """
    fresh = getattr(optimizer, "initial_accumulator_value", 0.0)
    match optimizer.kind:
        case "sgd":
            return {}
        case "adagrad":
            return {"sum_of_squares": np.full(dim, fresh, np.float32)}
        case "rowwise_adagrad":
            return {"sum_of_squares": np.full((), fresh, np.float32)}
        case "adam":
            return {"mu": np.zeros(dim, np.float32), "nu": np.zeros(dim, np.float32)}
    raise ValueError(f"no reference for the optimizer {optimizer.kind!r}")


def updated_row(
    kind: str, hyper: Mapping[str, float], step: int, row: Any, g: np.ndarray
) -> tuple[np.ndarray, State]:
    """Applies the sum of a row's gradients once.

    Args:
        kind: name of the optimizer.
        hyper: its hyper-parameters, the learning rate of this step included.
        step: how many updates the table has had, this one included.
        row: has `values` [dim] and `state`.
        g: float64[dim], the summed gradient.

    Returns:
        float64 values and state.
    """
    # the kernels take float, so 1 - beta is 1 - float32(beta)
    h = {name: float(np.float32(value)) for name, value in hyper.items()}
    w = row.values.astype(np.float64)
    state = {name: x.astype(np.float64) for name, x in row.state.items()}
    lr = h["learning_rate"]
    match kind:
        case "sgd":
            return w - lr * g, {}
        case "adagrad":
            total = state["sum_of_squares"] + g * g
            direction = _ratio(g, np.sqrt(total) + h["eps"])
            return w - lr * direction, {"sum_of_squares": total}
        case "rowwise_adagrad":
            total = state["sum_of_squares"] + np.mean(g * g)
            direction = _ratio(g, np.sqrt(total) + h["eps"])
            return w - lr * direction, {"sum_of_squares": total}
        case "adam":
            return _adam(h, step, w, state, g)
    raise ValueError(f"no reference for the optimizer {kind!r}")


def _adam(
    h: dict[str, float], step: int, w: np.ndarray, state: State, g: np.ndarray
) -> tuple[np.ndarray, State]:
    mu = h["b1"] * state["mu"] + (1 - h["b1"]) * g
    nu = h["b2"] * state["nu"] + (1 - h["b2"]) * g * g
    mu_hat = mu / (1 - h["b1"] ** step)
    nu_hat = nu / (1 - h["b2"] ** step)
    direction = _ratio(mu_hat, np.sqrt(nu_hat) + h["eps"]) + h["weight_decay"] * w
    return w - h["learning_rate"] * direction, {"mu": mu, "nu": nu}


def _ratio(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A / b, and 0 / 0 is 0: with eps=0 a zero gradient moves nothing."""
    return np.divide(a, b, out=np.zeros_like(a), where=(a != 0) | (b != 0))
