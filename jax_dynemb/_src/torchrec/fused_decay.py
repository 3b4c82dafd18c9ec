# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Weight decay of FBGEMM's row-wise Adagrad: its modes, and their definitions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from jax_dynemb._src import optim
from jax_dynemb._src.torchrec.fused_names import note, plain

# FBGEMM's enums, each name at its number.
_DECAY_MODES = ("none", "l2", "decouple", "counter", "cowclip", "decouple_global")
_INNER_DECAYS = ("none", "l2", "decouple", "adagradw")
_STEPS = {
    "equal": "equal",
    "tail_id_lr_increase": "increase",
    "tail_id_lr_decrease": "decrease",
    "counter_sgd": "sgd",
}
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
DEFINITIONS = {
    "global_weight_decay": "decouple_global",
    "counter_based_regularization": "counter",
    "cowclip_regularization": "cowclip",
}


def decay_of(given: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Returns how row-wise Adagrad decays, as arguments of it.

    Args:
      given: arguments of FBGEMM's.
      kind: its name of the optimizer.

    Raises:
      ValueError: a mode and its numbers do not go together.
    """
    mode = named("weight_decay_mode", given.get("weight_decay_mode"), _DECAY_MODES)
    for name, needed in DEFINITIONS.items():
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
    said = definition(name, given.get(name), _DUE)
    return {
        "catch_up": "decay",
        "catch_up_forward": True,
        "catch_up_start": said["start_iter"],
        "catch_up_floor": said["lower_bound"],
    }


def _clipped(given: Mapping[str, Any]) -> dict[str, Any]:
    name = "cowclip_regularization"
    said = definition(name, given.get(name), _COW_CLIP)
    inner = named(
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
    said = definition(name, given.get(name), _COUNTER)
    inner = named(
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
        said = definition("tail_id_threshold", given, said)
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


def named(name: str, given: Any, names: tuple[str, ...]) -> str:
    """Returns the name of an enum that is given by number, by name or not at all."""
    given = plain(given)
    if given is None:
        return names[0]
    if given in range(len(names)):
        return names[given]
    if given not in names:
        raise ValueError(f"fused_params: {name} is none of {list(names)}: {given!r}")
    return given


def definition(name: str, given: Any, known: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of a definition of FBGEMM's, or of a dict of them."""
    fields = given if isinstance(given, Mapping) else getattr(given, "__dict__", None)
    said = dict(fields or {})
    unknown = sorted(said.keys() - known.keys())
    if unknown or (fields is None and given is not None):
        raise ValueError(
            f"fused_params: {name} has the fields {list(known)}, not "
            f"{unknown or given!r}."
        )
    return {**known, **said}
