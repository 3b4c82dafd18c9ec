# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Arguments of FBGEMM's tables, as an optimizer and fields of a table."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from jax_dynemb._src import optim
from jax_dynemb._src.host_tier import HostTier, host, nearest_share
from jax_dynemb._src.torchrec.fused_decay import (
    DEFINITIONS,
    decay_of,
    definition,
    named,
)
from jax_dynemb._src.torchrec.fused_names import (
    ABSENT,
    MAPPED,
    NOTED,
    NUMBERS,
    REFUSED,
    check_known,
    is_one_of,
    note,
    pass_over,
    plain,
)
from jax_dynemb._src.torchrec.state_dict import state_named

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
_POOLINGS = ("sum", "mean", "none")
_DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
WAYS = 32  # rows of a set in FBGEMM's cache on NVIDIA's devices
_ENABLED = {"use_rowwise_bias_correction": False, "use_writeback_bwd_prehook": False}


def from_fused_params(params: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Returns what a ``fused_params`` dict says, in the core's terms.

    Every argument of FBGEMM's ``SplitTableBatchedEmbeddingBagsCodegen`` is known. One
    that changes no number is passed over, with a note in the log unless it has its
    default.

    Args:
      params: optimizer (an EmbOptimType or its value) and its numbers, by FBGEMM's
        names. Enums are given as they are, by value or by name, and definitions such
        as ``global_weight_decay`` as objects or as dicts of their fields. The
        ``counter_based_regularization`` takes ``max_counter`` too, which FBGEMM
        measures.

    Returns:
      The optimizer, and fields for ``to_table(**fields)``.

    Raises:
      ValueError: a name is unknown, or a value is refused.

    Example:
      >>> params = {"optimizer": "exact_adagrad", "learning_rate": 0.1}
      >>> jde.torchrec.from_fused_params(params)[0] == jde.optim.adagrad(0.1)
      True
    """
    given = {name: getattr(value, "value", value) for name, value in params.items()}
    if given.get("extra_optimizer_config") is not None:
        name = "extra_optimizer_config"
        given |= definition(name, given.pop(name), _ENABLED)
    check_known(given)
    for name in given.keys() & (NOTED.keys() | REFUSED.keys()):
        pass_over(name, given[name])
    kind, make = _maker(given)
    numbers = decay_of(given, kind) if make is optim.rowwise_adagrad else {}
    if given.get("use_rowwise_bias_correction"):
        if make is not optim.adam:
            raise ValueError(
                "fused_params: use_rowwise_bias_correction is of 'adam'. Leave it out."
            )
        numbers["bias_correction"] = "row"
    optimizer = make(**_numbers(given, kind, make) | numbers)
    return optimizer, _fields(given, optimizer)


def _maker(given: Mapping[str, Any]) -> tuple[str, Any]:
    """Returns FBGEMM's name of the optimizer, and the function that makes ours."""
    kind = str(given.get("optimizer", "exact_sgd")).lower()
    if kind in ABSENT:
        try:
            getattr(optim, ABSENT[kind])
        except AttributeError as error:
            raise ValueError(
                f"fused_params: optimizer '{kind}' is refused: {error}"
            ) from error
    make = getattr(optim, _OPTIMIZERS.get(kind, ""), None)
    if make is None:
        raise ValueError(
            f"fused_params: optimizer '{kind}' is none of {list(_OPTIMIZERS)}: use "
            "one, or a row-local optax transformation."
        )
    return kind, make


def _numbers(given: Mapping[str, Any], kind: str, make: Any) -> dict[str, Any]:
    """Returns the numbers that an optimizer reads; FBGEMM passes over the others."""
    taken = inspect.signature(make).parameters
    numbers = {}
    for name, default in NUMBERS.items():
        value, argument = given.get(name), _ARGUMENTS.get(name, name)
        if argument in taken:
            # FBGEMM's default of these two; that of jde.optim may be another.
            if value is not None or name in ("learning_rate", "eps"):
                numbers[argument] = default if value is None else value
        elif value not in (None, 0, default):
            note(name, f"FBGEMM's {kind} does not read it")
    if make is not optim.rowwise_adagrad:
        for name in ("weight_decay_mode", *DEFINITIONS):
            if not is_one_of(plain(given.get(name)), MAPPED[name]):
                note(name, f"it is of row-wise Adagrad, and {kind} does not read it")
    return numbers


def _fields(given: Mapping[str, Any], optimizer: Any) -> dict[str, Any]:
    """Returns what is of the table, not of its optimizer."""
    fields: dict[str, Any] = {}
    if (dtype := plain(given.get("output_dtype"))) is not None:
        fields["dtype"] = _DTYPES.get(dtype, dtype)
    if (precision := plain(given.get("weights_precision"))) is not None:
        if precision not in _DTYPES:
            raise ValueError(
                f"fused_params: weights_precision={precision!r} cannot be trained: "
                f"write one of {list(_DTYPES)}. Files for serving have integers, see "
                "jde.export."
            )
        fields["param_dtype"] = _DTYPES[precision]
    cached = plain(given.get("cache_precision"))
    if cached not in (None, precision or "fp32"):
        raise ValueError(
            f"fused_params: cache_precision={cached!r} is refused: a row has one "
            f"precision wherever it lies. Set weights_precision={cached!r}, or leave "
            "cache_precision out."
        )
    # FBGEMM's default is True; rows of float32 are not rounded.
    rounds = given.get("stochastic_rounding", precision is not None)
    if rounds and fields.get("param_dtype") != "float32":
        fields["rounding"] = "stochastic"
    if given.get("gradient_clipping"):
        fields["max_gradient"] = given.get("max_gradient", 1.0)
    index = str(given.get("embedding_table_index_type")).removeprefix("torch.")
    if index == "int32":
        fields["key_dtype"] = index
    fields |= _pooling(given) | _name(given) | _tier(given)
    return fields | _state_dtypes(given, optimizer)


def _pooling(given: Mapping[str, Any]) -> dict[str, Any]:
    pooling = named("pooling_mode", given.get("pooling_mode"), _POOLINGS)
    return {} if pooling == "sum" else {"pooling": {"mean": "mean"}.get(pooling)}


def _name(given: Mapping[str, Any]) -> dict[str, Any]:
    names = given.get("table_names")
    if names is not None and len(names) > 1:
        many = REFUSED["embedding_specs"][1]
        raise ValueError(f"fused_params: table_names={names!r} is refused: {many}.")
    return {"name": names[0]} if names else {}


def _tier(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the host tier that a cache of FBGEMM's is, and what it keeps."""
    fields: dict[str, Any] = {}
    if named("cache_algorithm", given.get("cache_algorithm"), ("lru", "lfu")) == "lfu":
        fields["score_strategy"] = "lfu"
    if given.get("enforce_hbm"):
        return fields  # all rows lie on the device
    if sets := given.get("cache_sets"):
        return fields | {"tier": host(hbm_rows=WAYS * sets)}
    share = given.get("cache_load_factor")
    if is_one_of(share, MAPPED["cache_load_factor"]):
        return fields  # FBGEMM reads its default for tables in host memory alone
    return fields | tier_of_share(share)


def tier_of_share(share: Any) -> dict[str, HostTier]:
    """Returns the field of a table whose rows are cached on the device.

    A share that no tier has becomes the nearest one, with a note; of 1 all rows lie on
    the device.

    Raises:
      ValueError: the share is not above 0.
    """
    if not share > 0:
        raise ValueError(
            f"fused_params: cache_load_factor must be above 0, not {share!r}: it is "
            "the share of rows on the device. Write 1 for all of them."
        )
    if share >= 1:
        return {}
    nearest = nearest_share(share)
    if nearest != share:
        note(f"cache_load_factor={share!r}", f"the nearest of a host tier is {nearest}")
    return {"tier": host(hbm_fraction=nearest)}


def _state_dtypes(given: Mapping[str, Any], optimizer: Any) -> dict[str, Any]:
    """Returns which states have 16 bits; those of one number a row stay float32."""
    names = given.get("optimizer_state_dtypes") or {}
    dtypes = {}
    for theirs, dtype in names.items():
        known, dtype = optimizer.states(1), plain(dtype)
        name = state_named(theirs, known)
        if name is None or dtype not in _DTYPES:
            raise ValueError(
                f"fused_params: optimizer_state_dtypes={names!r}: the optimizer has "
                f"the states {list(known)} (momentum1, momentum2), and {list(_DTYPES)} "
                "are their dtypes."
            )
        if dtype == "fp32":
            continue
        what = f"optimizer_state_dtypes of {theirs}"
        if not known[name].shape:
            note(what, "a state of one number a row is float32")
            continue
        if dtype == "fp16":
            note(f"FP16 in {what}", "it is bfloat16, which has the range of float32")
        dtypes[name] = "bfloat16"
    return {"state_dtype": dtypes} if dtypes else {}
