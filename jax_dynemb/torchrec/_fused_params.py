# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""FBGEMM's fused parameters, as an optimizer and fields of a table."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from jax_dynemb import optim

# EmbOptimType by value, and the function of jde.optim that makes it.
_OPTIMIZERS = {
    "sgd": "sgd",
    "exact_sgd": "sgd",
    "adagrad": "adagrad",
    "exact_adagrad": "adagrad",
    "rowwise_adagrad": "rowwise_adagrad",
    "exact_row_wise_adagrad": "rowwise_adagrad",
    "exact_rowwise_adagrad": "rowwise_adagrad",
    "adam": "adam",
    "lamb": "lamb",
    "lars_sgd": "lars_sgd",
    "partial_row_wise_adam": "partial_rowwise_adam",
    "partial_rowwise_adam": "partial_rowwise_adam",
    "partial_row_wise_lamb": "partial_rowwise_lamb",
    "partial_rowwise_lamb": "partial_rowwise_lamb",
}
_ARGUMENTS = {"beta1": "b1", "beta2": "b2"}
_NUMBERS = (
    "learning_rate",
    "eps",
    "beta1",
    "beta2",
    "momentum",
    "eta",
    "weight_decay",
    "weight_decay_mode",
    "max_norm",
)
_HOST_TIER = (
    "it belongs to the host tier, which decides by itself which rows lie on the device."
)
_REFUSED = {
    "enforce_hbm": _HOST_TIER,
    "prefetch_pipeline": _HOST_TIER,
    "bounds_check_mode": "no id is out of bounds: ids are hash keys of 64 bits.",
}


def from_fused_params(params: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Returns what a ``fused_params`` dict says, in the core's terms.

    Args:
      params: optimizer (an EmbOptimType or its value), learning_rate, eps, beta1,
        beta2, momentum, eta, weight_decay, gradient_clipping, max_gradient, max_norm,
        stochastic_rounding, output_dtype.

    Returns:
      The optimizer, and fields for ``to_table(**fields)``.

    Raises:
      ValueError: a name is refused or unknown, or the optimizer has no such number.

    Example:
      >>> params = {"optimizer": "exact_adagrad", "learning_rate": 0.1}
      >>> jde.torchrec.from_fused_params(params)[0] == jde.optim.adagrad(0.1)
      True
    """
    given = {name: getattr(value, "value", value) for name, value in params.items()}
    fields = _fields(given)
    kind = str(given.pop("optimizer", "exact_sgd")).lower()
    make = getattr(optim, _OPTIMIZERS.get(kind, ""), None)
    if make is None:
        known = [k for k, v in _OPTIMIZERS.items() if hasattr(optim, v)]
        raise ValueError(
            f"fused_params: optimizer '{kind}' is none of {known}: use one, or a "
            "row-local optax transformation."
        )
    given.setdefault("learning_rate", 0.01)
    taken = inspect.signature(make).parameters
    numbers = {}
    for name, value in given.items():
        _check_name(name)
        argument = _ARGUMENTS.get(name, name)
        if argument in taken:
            numbers[argument] = value
        elif value not in (None, 0, 0.0, False, "none", _DEFAULTS.get(name)):
            raise ValueError(
                f"fused_params: {name}={value!r} has no meaning for '{kind}': "
                f"jde.optim.{make.__name__} takes {list(taken)}. Leave it out."
            )
    return make(**numbers), fields


# Numbers that change nothing, since fused_params tend to list them for every optimizer.
_DEFAULTS = {"max_gradient": 1.0, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8}


def _fields(given: dict[str, Any]) -> dict[str, Any]:
    """Takes out what is of the table, not of its optimizer."""
    fields = {}
    if (dtype := given.pop("output_dtype", None)) is not None:
        name = str(dtype).upper()
        short = {"FP32": "float32", "FP16": "float16", "BF16": "bfloat16"}
        fields["dtype"] = short.get(name, name.lower())
    if given.pop("stochastic_rounding", False):
        fields["rounding"] = "stochastic"
    limit = given.pop("max_gradient", _DEFAULTS["max_gradient"])
    if given.pop("gradient_clipping", False):
        fields["max_gradient"] = limit
    return fields


def _check_name(name: str) -> None:
    why = _HOST_TIER if name.startswith(("cache_", "uvm_")) else _REFUSED.get(name)
    if why is not None:
        raise ValueError(f"fused_params: {name} is refused: {why} Leave it out.")
    if name not in _NUMBERS:
        raise ValueError(
            f"fused_params: {name} is unknown; known are optimizer, output_dtype, "
            "stochastic_rounding, gradient_clipping, max_gradient and "
            f"{', '.join(_NUMBERS)}."
        )
