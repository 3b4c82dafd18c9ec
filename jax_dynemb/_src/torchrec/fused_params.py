# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Arguments of FBGEMM's tables, as an optimizer and fields of a table."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from typing import Any

from jax_dynemb._src import optim
from jax_dynemb._src.host_tier import HostTier, hbm_shares, host
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
# FBGEMM's enums, each name at its number.
_DECAY_MODES = ("none", "l2", "decouple", "counter", "cowclip", "decouple_global")
_INNER_DECAYS = ("none", "l2", "decouple", "adagradw")
_STEPS = {
    "equal": "equal",
    "tail_id_lr_increase": "increase",
    "tail_id_lr_decrease": "decrease",
    "counter_sgd": "sgd",
}
_POOLINGS = ("sum", "mean", "none")
_DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
_WAYS = 32  # rows of a set in FBGEMM's cache on NVIDIA's devices
_COUNTER = {
    "counter_weight_decay_mode": 0,
    "counter_halflife": -1,
    "adjustment_iter": -1,
    "adjustment_ub": 1.0,
    "learning_rate_mode": "equal",
    "grad_sum_decay": "no_decay",
    "tail_id_threshold": None,
    "max_counter_update_freq": 1000,
    "max_counter": None,
}
_COW_CLIP = {
    "counter_weight_decay_mode": 0,
    "counter_halflife": -1,
    "weight_norm_coefficient": 0.0,
    "lower_bound": 0.0,
}
_DUE = {"start_iter": 0, "lower_bound": 0.0}
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
        given |= _definition(name, given.pop(name), _ENABLED)
    check_known(given)
    for name in given.keys() & (NOTED.keys() | REFUSED.keys()):
        pass_over(name, given[name])
    kind, make = _maker(given)
    numbers = _rule(given, kind) if make is optim.rowwise_adagrad else {}
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
        for name in ("weight_decay_mode", *_DEFINITIONS):
            if not is_one_of(plain(given.get(name)), MAPPED[name]):
                note(name, f"it is of row-wise Adagrad, and {kind} does not read it")
    return numbers


_DEFINITIONS = {
    "global_weight_decay": "decouple_global",
    "counter_based_regularization": "counter",
    "cowclip_regularization": "cowclip",
}


def _rule(given: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Returns how row-wise Adagrad decays, as arguments of it."""
    mode = _named("weight_decay_mode", given.get("weight_decay_mode"), _DECAY_MODES)
    for name, needed in _DEFINITIONS.items():
        if given.get(name) is not None and mode != needed:
            raise ValueError(
                f"fused_params: {name} is of weight_decay_mode={needed!r}, not of "
                f"{mode!r}. Set that mode, or leave it out."
            )
        if mode == needed != "decouple_global" and given.get(name) is None:
            raise ValueError(
                f"fused_params: weight_decay_mode={mode!r} has its numbers in {name}: "
                "give it, as an object of FBGEMM's or as a dict of its fields."
            )
    if mode == "none":
        if given.get("weight_decay"):
            note("weight_decay", f"without a weight_decay_mode {kind} does not read it")
        return {"weight_decay": 0.0}
    if mode in ("l2", "decouple"):
        return {"weight_decay_mode": _decay(mode)}
    return _RULES[mode](given)


def _caught_up(given: Mapping[str, Any]) -> dict[str, Any]:
    name = "global_weight_decay"
    said = _definition(name, given.get(name), _DUE)
    return {
        "catch_up": "decay",
        "catch_up_forward": True,
        "catch_up_start": said["start_iter"],
        "catch_up_floor": said["lower_bound"],
    }


def _clipped(given: Mapping[str, Any]) -> dict[str, Any]:
    name = "cowclip_regularization"
    said = _definition(name, given.get(name), _COW_CLIP)
    inner = _named(
        "counter_weight_decay_mode", said["counter_weight_decay_mode"], _INNER_DECAYS
    )
    if inner == "adagradw":
        raise ValueError(f"fused_params: {name} decays by 'l2' or 'decouple', or not.")
    clip = optim.CowClip(
        said["weight_norm_coefficient"],
        said["lower_bound"],
        _half_life(said["counter_halflife"]),
    )
    if inner == "none":
        return {"weight_decay": 0.0, "cow_clip": clip}
    return {"weight_decay_mode": _decay(inner), "cow_clip": clip}


def _counted(given: Mapping[str, Any]) -> dict[str, Any]:
    name = "counter_based_regularization"
    said = _definition(name, given.get(name), _COUNTER)
    inner = _named(
        "counter_weight_decay_mode", said["counter_weight_decay_mode"], _INNER_DECAYS
    )
    half_life = said["counter_halflife"]
    if inner == "adagradw":
        decay = "adagradw_capped" if half_life == -2 else "adagradw_root"
    else:
        decay = _decay(inner)
    mode = plain(said["learning_rate_mode"])
    numbered = dict(zip((-1, 0, 1, 2), _STEPS.values(), strict=True))
    step = ({**_STEPS, **numbered}).get(mode)
    if step is None or plain(said["grad_sum_decay"]) not in (-1, "no_decay"):
        raise ValueError(
            f"fused_params: {name} takes learning_rate_mode {list(_STEPS)}, and "
            "grad_sum_decay 'no_decay' alone."
        )
    threshold, most = _threshold(said["tail_id_threshold"], said["max_counter"], step)
    counter = optim.Counter(
        _half_life(half_life),
        decay,
        step,  # pyright: ignore[reportArgumentType]
        start=max(0, said["adjustment_iter"]),
        bound=said["adjustment_ub"],
        threshold=threshold,
        max_count=most,
    )
    return {"counter": counter}


_RULES = {"decouple_global": _caught_up, "counter": _counted, "cowclip": _clipped}


def _threshold(given: Any, most: float | None, step: str) -> tuple[float, float]:
    """Returns the count that rows of the tail have, and the highest one."""
    said = {"val": 0.0, "is_ratio": False}
    if given is not None:
        said = _definition("tail_id_threshold", given, said)
    if most is None and (said["is_ratio"] or step in ("increase", "decrease")):
        raise ValueError(
            "fused_params: counter_based_regularization needs max_counter, the highest "
            "count of a row, which FBGEMM measures every max_counter_update_freq "
            "updates: add it to the dict, or to Counter(max_count=...)."
        )
    most = 1.0 if most is None else most
    value = said["val"]
    return float(math.floor(value * most) if said["is_ratio"] else value), most


def _half_life(given: float) -> float | None:
    return None if given < 0 else given


def _decay(name: str) -> Any:
    return "decoupled" if name == "decouple" else name


def _named(name: str, given: Any, names: tuple[str, ...]) -> str:
    """Returns the name of an enum that is given by number, by name or not at all."""
    given = plain(given)
    if given is None:
        return names[0]
    if given in range(len(names)):
        return names[given]
    if given not in names:
        raise ValueError(f"fused_params: {name} is none of {list(names)}: {given!r}")
    return given


def _definition(name: str, given: Any, known: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of a definition of FBGEMM's, or of a dict of them."""
    said = {} if given is None else dict(given if _is_map(given) else vars(given))
    if unknown := sorted(said.keys() - known.keys()):
        raise ValueError(
            f"fused_params: {name} has the fields {list(known)}, not {unknown}."
        )
    return {**known, **said}


def _is_map(given: Any) -> bool:
    return isinstance(given, Mapping)


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
    pooling = _named("pooling_mode", given.get("pooling_mode"), _POOLINGS)
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
    if _named("cache_algorithm", given.get("cache_algorithm"), ("lru", "lfu")) == "lfu":
        fields["score_strategy"] = "lfu"
    if given.get("enforce_hbm"):
        return fields  # all rows lie on the device
    if sets := given.get("cache_sets"):
        return fields | {"tier": host(hbm_rows=_WAYS * sets)}
    share = given.get("cache_load_factor")
    if is_one_of(share, MAPPED["cache_load_factor"]):
        return fields  # FBGEMM reads its default for tables in host memory alone
    return fields | tier_of_share(share)


def tier_of_share(share: Any) -> dict[str, HostTier]:
    """Returns the field of a table whose rows are cached on the device.

    Raises:
      ValueError: a share that no tier has.
    """
    least, most = hbm_shares()
    if share >= 1:
        return {}
    if not least <= share <= most:
        raise ValueError(
            f"fused_params: cache_load_factor={share!r} is refused: a host tier has "
            f"{least} to {most} of its rows on the device. Write one of these, or 1 "
            "for all rows on the device."
        )
    return {"tier": host(hbm_fraction=share)}


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
