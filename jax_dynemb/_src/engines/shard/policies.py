# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Rules from the eviction policies of other libraries, by names of fields."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping
from typing import Any

from jax_dynemb._src.is_whole import is_whole
from jax_dynemb._src.kind_of import kind_of

# FBGEMM's numbers of strategies.
_TIMESTAMP, _COUNTER, _MIXED, _NORM, _THRESHOLD, _SCORE = range(6)
_DEEPREC = {"steps_to_live", "l2_weight_threshold"}
_PADDLE = {"delete_threshold", "delete_after_unseen_days"}


def rule_arguments(
    policy: Any, table: int, marks: Any, inference: bool, ranks: int
) -> dict[str, Any] | None:
    """Returns the arguments of ``Rule``, see ``Rule.from_policy``; None: no rule."""
    if not is_whole(ranks) or ranks < 1:
        raise ValueError(f"ranks must be 1 or more processes, not {ranks!r}")
    if marks is not None and not hasattr(marks, "before"):
        raise TypeError(
            f"marks must be the jde.lifecycle.TimeMarks of one table, not "
            f"{kind_of(marks)}: write marks=marks[name], or leave them out for a table "
            "with score_strategy='timestamp'."
        )
    fields = _fields(policy)
    if "eviction_strategy" in fields:
        chosen = _of_fbgemm(fields, table)
    elif _DEEPREC & fields.keys():
        chosen = _of_deeprec(fields)
    elif _PADDLE & fields.keys():
        chosen = _of_paddle(fields)
    else:
        chosen = _of_torchrec(fields, policy, inference)
    if chosen is None:
        return None
    minutes = chosen.pop("minutes", None)
    if minutes is not None and marks is not None:
        chosen["unused_since"] = marks.before(minutes=minutes)
    elif minutes is not None:
        chosen["unused_for"] = datetime.timedelta(minutes=minutes)
    if "keep_at_most" in chosen:
        chosen["keep_at_most"] *= ranks
    return chosen


def _fields(policy: Any) -> dict[str, Any]:
    if isinstance(policy, Mapping):
        return dict(policy)
    if hasattr(policy, "_asdict"):
        return policy._asdict()
    return dict(vars(policy)) if hasattr(policy, "__dict__") else {}


def _of_fbgemm(fields: Mapping[str, Any], table: int) -> dict[str, Any] | None:
    """Translates an ``EvictionPolicy``, whose lists have a number for each table."""

    def number(name: str) -> Any:
        numbers: Any = fields.get(name)
        is_list = hasattr(numbers, "__len__") and not isinstance(numbers, str)
        if not is_list or not 0 <= table < len(numbers):
            raise ValueError(
                f"the policy has no {name} for table {table}, which eviction_strategy="
                f"{strategy} needs: set the list, or choose another table."
            )
        return numbers[table]

    strategy = fields["eviction_strategy"]
    if fields.get("eviction_trigger_mode") == 0:
        return None
    if strategy == _TIMESTAMP:
        return _unless_zero(minutes=number("ttls_in_mins"))
    if strategy == _COUNTER:
        return _unless_zero(count_below=number("counter_thresholds"))
    if strategy == _MIXED:
        return _unless_zero(
            minutes=number("ttls_in_mins"), count_below=number("counter_thresholds")
        )
    if strategy == _NORM:
        return _unless_zero(norm_below=number("l2_weight_thresholds"))
    if strategy == _SCORE:
        enabled = "enable_eviction_for_feature_score_eviction_policy"
        if fields.get(enabled) is not None and not number(enabled):
            return None
        return _unless_zero(keep_at_most=number("training_id_keep_count"))
    raise ValueError(
        f"eviction_strategy={strategy} takes its time when it runs: write "
        "jde.lifecycle.Rule(unused_since=...)."
        if strategy == _THRESHOLD
        else f"eviction_strategy must be from 0 to 5, not {strategy!r}"
    )


def _of_deeprec(fields: Mapping[str, Any]) -> dict[str, Any] | None:
    """Translates a ``GlobalStepEvict`` or ``L2WeightEvict``; a step is a lookup."""
    steps, norm = (fields.get(n) for n in ("steps_to_live", "l2_weight_threshold"))
    if steps:
        return {"unused_for": int(steps)}
    return {"norm_below": norm} if norm is not None and norm > 0 else None  # -1: off


def _of_paddle(fields: Mapping[str, Any]) -> dict[str, Any] | None:
    """Translates the limits of a ``CtrAccessorParam``, of which one suffices."""
    chosen: dict[str, Any] = {}
    if least := fields.get("delete_threshold"):
        chosen["score_below"] = math.ceil(least)  # scores are whole numbers here
    if (days := fields.get("delete_after_unseen_days")) is not None:
        chosen["minutes"] = 24 * 60 * days
    return chosen | {"combine": "any"} if chosen else None


def _of_torchrec(
    fields: Mapping[str, Any], policy: Any, inference: bool
) -> dict[str, Any] | None:
    """Translates a policy of a virtual table; which one follows from its fields."""

    def get(name: str) -> Any:
        value = fields.get(f"inference_{name}") if inference else None
        return fields.get(name) if value is None else value

    if type(policy).__name__ == "NoEvictionPolicy":
        return None
    if "training_id_keep_count" in fields:
        return _of_feature_scores(fields, get, inference)
    counts = "eviction_threshold" in fields and "decay_rate" in fields
    if counts and "eviction_ttl_mins" in fields:
        return _unless_zero(
            minutes=get("eviction_ttl_mins"), count_below=get("eviction_threshold")
        )
    if counts:
        return _unless_zero(count_below=get("eviction_threshold"))
    if "eviction_threshold" in fields:
        return _unless_zero(norm_below=get("eviction_threshold"))
    if "eviction_ttl_mins" in fields:
        return _unless_zero(minutes=get("eviction_ttl_mins"))
    raise TypeError(
        f"{kind_of(policy)} is no eviction policy of FBGEMM, TorchRec, DeepRec or "
        "Paddle: it has neither eviction_strategy nor eviction_threshold, "
        "eviction_ttl_mins, training_id_keep_count, "
        f"{', '.join(sorted(_DEEPREC | _PADDLE))}. Write a jde.lifecycle.Rule."
    )


def _of_feature_scores(
    fields: Mapping[str, Any], get: Any, inference: bool
) -> dict[str, Any] | None:
    """A time to live takes the place of scores where it is not 0."""
    if get("eviction_ttl_mins"):
        return {"minutes": get("eviction_ttl_mins")}
    most = fields["training_id_keep_count"]
    chosen: dict[str, Any] = {}
    if inference:
        most = fields.get("max_inference_id_num_per_rank") or most
        least = fields.get("inference_eviction_feature_score_threshold")
        if least:
            chosen["score_below"] = int(least)
    if most:
        chosen["keep_at_most"] = most
    return chosen or None


def _unless_zero(**numbers: Any) -> dict[str, Any] | None:
    """The fields of a rule; a peer's 0 switches its whole policy off."""
    return dict(numbers) if all(numbers.values()) else None
