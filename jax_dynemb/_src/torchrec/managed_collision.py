# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Arguments of TorchRec's managed collision, as fields of a table and a rule."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

from jax_dynemb._src.admission import Probability
from jax_dynemb._src.lifecycle import Rule

# Keys are classes of eviction policies, or values of HashZchEvictionPolicyName.
_STRATEGIES = {
    "LFU_EvictionPolicy": "lfu",
    "DistanceLFU_EvictionPolicy": "lfu",
    "LRU_EvictionPolicy": "step",
    "LRU_EVICTION": "step",
    "SINGLE_TTL_EVICTION": "timestamp",
    "PER_FEATURE_TTL_EVICTION": "timestamp",
}
_NO_MEANING = (
    "buckets",
    "device",
    "name",
    "input_hash_size",
    "input_history_buffer_size",
    "is_inference",
    "max_probe",
    "output_global_offset",
    "output_segments",
    "percent_reserved_slots",
    "start_bucket",
    "end_bucket",
    "inference_dispatch_div_train_world_size",
    "tb_logging_frequency",
    "total_num_buckets",
)
_HALFLIFE = 1000
_HASHED = "ids are looked up as they are; hash them before, as with jde.hash_ids"
_REFUSED = {
    "input_hash_func": _HASHED,
    "mch_size": "an id without a row reads its own initial row, not a shared one",
    "mch_hash_func": "an id without a row reads its own initial row, not a shared one",
}


def from_managed_collision(
    params: Mapping[str, Any], *, lfu_halflife: int | None = None
) -> tuple[dict[str, Any], Rule | None]:
    """Returns what the arguments of a managed-collision module say of a table.

    Nothing is remapped: ids are the keys of the table. Arguments about buckets, probes
    and intervals have no meaning here and are passed over.

    Args:
      params: of ``MCHManagedCollisionModule`` or ``HashZchManagedCollisionModule``:
        zch_size, eviction_policy or eviction_policy_name, eviction_config, opt_in_prob
        (in percent), and those that are passed over.
      lfu_halflife: lookups after which a use counts half; for
        ``DistanceLFU_EvictionPolicy``, whose counts fade with their distance. If None
        1000, or its ``eviction_interval`` where that is more.

    Returns:
      Fields for ``to_table(**fields)``; and a rule for ``erase_where`` where rows
      expire, else None. Call ``erase_where`` as often as rows shall expire.

    Raises:
      ValueError: an argument is unknown or refused, a policy needs another one, or
        features have different times to live.

    Example:
      >>> params = {"zch_size": 1000, "eviction_policy": "LFU_EvictionPolicy"}
      >>> jde.torchrec.from_managed_collision(params)
      ({'capacity': 1000, 'score_strategy': 'lfu'}, None)
    """
    given = {name: getattr(value, "value", value) for name, value in params.items()}
    given = {n: value for n, value in given.items() if n not in _NO_MEANING}
    fields: dict[str, Any] = {}
    if (size := given.pop("zch_size", None)) is not None:
        fields["capacity"] = size
    policies = [given.pop(n, None) for n in ("eviction_policy", "eviction_policy_name")]
    policy = policies[0] or policies[1]
    config = given.pop("eviction_config", None)
    fields["score_strategy"] = _strategy(policy)
    interval = given.pop("eviction_interval", None) or 0
    if _name(policy) == "DistanceLFU_EvictionPolicy":
        fields["lfu_halflife"] = lfu_halflife or max(_HALFLIFE, interval)
    percent = given.pop("opt_in_prob", None)
    if percent is not None and percent >= 0:  # TorchRec's default is -1
        fields["admission"] = Probability(percent / 100)
    for name, value in given.items():
        if name not in _REFUSED:
            _fail(f"{name} is unknown. Leave it out.")
        if value is not None:
            _fail(f"{name} is refused: {_REFUSED[name]}. Leave it out.")
    expires = fields["score_strategy"] == "timestamp"
    return fields, _rule(config) if expires else None


def _name(policy: Any) -> str:
    return policy if isinstance(policy, str) else type(policy).__name__


def _strategy(policy: Any) -> str:
    if policy is None:
        return "no_eviction"
    if _name(policy) not in _STRATEGIES:
        _fail(f"eviction policy {_name(policy)} is unknown: use {list(_STRATEGIES)}.")
    if getattr(policy, "_threshold_filtering_func", None) is not None:
        _fail(
            "threshold_filtering_func decides which ids get a row: leave it out, and "
            "write to_table(admission=jde.admission.Frequency(...)) or Probability."
        )
    return _STRATEGIES[_name(policy)]


def _rule(config: Any) -> Rule:
    """Returns the rule that removes rows after their time to live, in hours."""
    known = config if isinstance(config, Mapping) else getattr(config, "__dict__", {})
    each: list[Any] = known.get("per_feature_ttl") or [known.get("single_ttl")]
    if len(set(each)) > 1:
        _fail(
            f"features have the times to live {list(each)}, but a rule is of a table: "
            "make a table for each, or give one single_ttl."
        )
    if not each[0]:
        _fail("the policy needs eviction_config with single_ttl, in hours.")
    return Rule(unused_for=datetime.timedelta(hours=each[0]))


def _fail(what: str) -> Any:
    raise ValueError(f"from_managed_collision: {what}")
