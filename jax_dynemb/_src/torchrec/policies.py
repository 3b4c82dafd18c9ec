# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Eviction policies of TorchRec's virtual tables: what a table must score rows by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jax_dynemb._src.kind_of import kind_of


def scores_for(table: str, policy: Any) -> dict[str, Any]:
    """Returns the fields of a ``jde.TableConfig`` that a policy needs.

    A policy is known by its fields, so TorchRec need not be there; it may be a dict of
    them. TypeError if it is no policy of a virtual table.
    """
    if policy is None:
        return {}
    if type(policy).__name__ == "NoEvictionPolicy":
        return {"score_strategy": "no_eviction"}
    fields = _fields(policy)
    minutes = bool(fields.get("eviction_ttl_mins"))
    if "training_id_keep_count" in fields:
        return {"score_strategy": "timestamp" if minutes else "customized"}
    if "eviction_threshold" in fields:
        # Without a decay it is the threshold of a norm, which needs no scores.
        return {"score_strategy": "lfu"} if "decay_rate" in fields else {}
    if "eviction_ttl_mins" in fields:
        return {"score_strategy": "timestamp"}
    raise TypeError(
        f"table '{table}': virtual_table_eviction_policy is {kind_of(policy)}, which "
        "has neither eviction_threshold, eviction_ttl_mins nor "
        "training_id_keep_count. Leave it out, and say which rows a full bucket evicts "
        "first with to_table(score_strategy='lfu'), 'step' or 'timestamp'."
    )


def _fields(policy: Any) -> Mapping[str, Any]:
    if isinstance(policy, Mapping):
        return policy
    return dict(vars(policy)) if hasattr(policy, "__dict__") else {}
