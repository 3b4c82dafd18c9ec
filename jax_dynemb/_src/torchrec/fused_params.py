# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""FBGEMM's fused parameters, as an optimizer and fields of a table."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from jax_dynemb._src import optim
from jax_dynemb._src.torchrec.fused_names import ABSENT, NUMBERS, changes_nothing

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
    "decouple_global": {"catch_up": "decay", "catch_up_forward": True},
}
_DTYPES = {"FP32": "float32", "FP16": "float16", "BF16": "bfloat16"}


def from_fused_params(params: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Returns what a ``fused_params`` dict says, in the core's terms.

    Args:
      params: optimizer (an EmbOptimType or its value) and its numbers, by FBGEMM's
        names. weight_decay_mode is a WeightDecayMode, its value or its name, and
        global_weight_decay an object or a dict of its numbers. Also gradient_clipping,
        max_gradient, stochastic_rounding, weights_precision and output_dtype. FBGEMM's
        other arguments are accepted with their defaults.

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
    if kind in ABSENT:
        _refuse(kind)
    if make is None:
        known = [k for k, v in _OPTIMIZERS.items() if hasattr(optim, v)]
        raise ValueError(
            f"fused_params: optimizer '{kind}' is none of {known}: use one, or a "
            "row-local optax transformation."
        )
    taken = inspect.signature(make).parameters
    for name in ("learning_rate", "eps"):
        if name in taken:  # FBGEMM's default; that of jde.optim may be another
            given.setdefault(name, NUMBERS[name])
    numbers = _options(given, make.__name__)
    for name, value in given.items():
        argument = _ARGUMENTS.get(name, name)
        if name not in NUMBERS:
            changes_nothing(name, value)
        elif argument in taken:
            numbers.setdefault(argument, value)
        elif value not in (None, 0, NUMBERS[name]):
            raise ValueError(
                f"fused_params: {name}={value!r} has no meaning for '{kind}': "
                f"jde.optim.{make.__name__} takes {list(taken)}. Leave it out."
            )
    return make(**numbers), fields


def _refuse(kind: str) -> None:
    """Refuses an optimizer of FBGEMM's, with the words of ``jde.optim``."""
    try:
        getattr(optim, ABSENT[kind])
    except AttributeError as error:
        raise ValueError(
            f"fused_params: optimizer '{kind}' is refused: {error}"
        ) from error


def _options(given: dict[str, Any], kind: str) -> dict[str, Any]:
    """Takes out what chooses a rule, and returns it as arguments of ``kind``."""
    mode = given.pop("weight_decay_mode", "none")
    due = given.pop("global_weight_decay", None)
    by_row = given.pop("use_rowwise_bias_correction", False)
    if by_row and kind != "adam":
        raise ValueError(
            "fused_params: use_rowwise_bias_correction is of 'adam'. Leave it out."
        )
    if by_row:
        return {"bias_correction": "row"}
    if kind != "rowwise_adagrad":
        return _without_modes(kind, mode, due)
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
    if name == "decouple_global":
        return options | _global_decay(due)
    if due is not None:
        raise ValueError(
            "fused_params: global_weight_decay is of weight_decay_mode="
            f"'decouple_global', not of {name!r}. Set that mode, or leave it out."
        )
    return dict(options)


def _without_modes(kind: str, mode: Any, due: Any) -> dict[str, Any]:
    """Refuses decays of row-wise Adagrad, since FBGEMM passes over them elsewhere."""
    plain = mode.lower() if isinstance(mode, str) else mode
    if due is not None or plain not in (None, 0, "none"):
        what = "global_weight_decay" if due is not None else "weight_decay_mode"
        raise ValueError(
            f"fused_params: {what} is of row-wise Adagrad, and FBGEMM passes over it "
            f"with {kind}: leave it out."
        )
    return {}


def _global_decay(due: Any) -> dict[str, Any]:
    """Returns what a GlobalWeightDecayDefinition says, or a dict of its fields."""
    said = {} if due is None else dict(due) if isinstance(due, Mapping) else vars(due)
    if unknown := sorted(set(said) - {"start_iter", "lower_bound"}):
        raise ValueError(
            f"fused_params: global_weight_decay has start_iter and lower_bound, not "
            f"{unknown}."
        )
    return {
        "catch_up_start": said.get("start_iter", 0),
        "catch_up_floor": said.get("lower_bound", 0.0),
    }


def _fields(given: dict[str, Any]) -> dict[str, Any]:
    """Takes out what is of the table, not of its optimizer."""
    fields = {}
    if (dtype := given.pop("output_dtype", None)) is not None:
        fields["dtype"] = _DTYPES.get(str(dtype).upper(), str(dtype).lower())
    precision = given.pop("weights_precision", None)
    if precision is not None:
        name = str(precision).upper()
        if name not in _DTYPES:
            raise ValueError(
                f"fused_params: weights_precision={precision!r} cannot be trained: "
                f"write one of {list(_DTYPES)}. Files for serving have integers, see "
                "jde.export."
            )
        fields["param_dtype"] = _DTYPES[name]
    # FBGEMM's default is True; rows of float32 are not rounded.
    rounds = given.pop("stochastic_rounding", precision is not None)
    if rounds and fields.get("param_dtype") != "float32":
        fields["rounding"] = "stochastic"
    limit = given.pop("max_gradient", 1.0)
    if given.pop("gradient_clipping", False):
        fields["max_gradient"] = limit
    return fields
