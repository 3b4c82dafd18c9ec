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
    "lars_sgd": "lars",
    "none": "none",
    "rowwise_rmsprop_ar": "rowwise_rmsprop",
    "row_wise_rmsprop_ar": "rowwise_rmsprop",
    "partial_row_wise_adam": "partial_rowwise_adam",
    "partial_rowwise_adam": "partial_rowwise_adam",
    "partial_row_wise_lamb": "partial_rowwise_lamb",
    "partial_rowwise_lamb": "partial_rowwise_lamb",
}
_ARGUMENTS = {"beta1": "b1", "beta2": "b2", "ema_beta": "decay"}
# WeightDecayMode by value and by name, as arguments of rowwise_adagrad.
_DECAY_MODES: dict[Any, dict[str, Any] | None] = {
    "none": {"weight_decay": 0.0},
    "l2": {"weight_decay_mode": "l2"},
    "decouple": {},
    "counter": None,
    "cowclip": None,
    "decouple_global": {"catch_up": "decay"},
}
_NUMBERS = (
    "learning_rate",
    "eps",
    "beta1",
    "beta2",
    "momentum",
    "eta",
    "weight_decay",
    "max_norm",
    "ar_alpha",
    "ema_beta",
    "min_shrinkage",
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
      params: optimizer (an EmbOptimType or its value) and its numbers, by FBGEMM's
        names. weight_decay_mode is a WeightDecayMode, its value or its name. Also
        gradient_clipping, max_gradient, stochastic_rounding and output_dtype.

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
    taken = inspect.signature(make).parameters
    for name, value in (("learning_rate", 0.01), ("eps", _DEFAULTS["eps"])):
        if name in taken:  # FBGEMM's default; that of jde.optim may be another
            given.setdefault(name, value)
    numbers = _options(given, make.__name__)
    for name, value in given.items():
        _check_name(name)
        argument = _ARGUMENTS.get(name, name)
        if argument in taken:
            numbers.setdefault(argument, value)
        elif value not in (None, 0, 0.0, False, "none", _DEFAULTS.get(name)):
            raise ValueError(
                f"fused_params: {name}={value!r} has no meaning for '{kind}': "
                f"jde.optim.{make.__name__} takes {list(taken)}. Leave it out."
            )
    return make(**numbers), fields


def _options(given: dict[str, Any], kind: str) -> dict[str, Any]:
    """Takes out what chooses a rule, and returns it as arguments of ``kind``."""
    mode = given.pop("weight_decay_mode", "none")
    by_row = given.pop("use_rowwise_bias_correction", False)
    if by_row and kind != "adam":
        raise ValueError(
            "fused_params: use_rowwise_bias_correction is of 'adam'. Leave it out."
        )
    if by_row:
        return {"bias_correction": "row"}
    if kind != "rowwise_adagrad":
        return {}  # FBGEMM reads the mode for row-wise Adagrad only
    names = list(_DECAY_MODES)
    name = names[mode] if mode in range(len(names)) else str(mode).lower()
    if name not in names:
        raise ValueError(f"fused_params: weight_decay_mode is none of {names}: {mode}")
    options = _DECAY_MODES[name]
    if options is None:
        raise ValueError(
            f"fused_params: weight_decay_mode {name!r} has numbers of its own: give "
            "the table optimizer=jde.optim.rowwise_adagrad(..., counter=jde.optim."
            "Counter(...)) or cow_clip=jde.optim.CowClip(...) instead."
        )
    if name == "none" and given.get("weight_decay"):
        raise ValueError(
            "fused_params: FBGEMM's row-wise Adagrad ignores weight_decay without a "
            "weight_decay_mode. Set it to 'l2' or 'decouple', or leave both out."
        )
    return dict(options)


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
            "stochastic_rounding, gradient_clipping, max_gradient, weight_decay_mode, "
            f"use_rowwise_bias_correction and {', '.join(_NUMBERS)}."
        )
