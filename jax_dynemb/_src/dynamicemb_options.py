# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Translates the options of NVIDIA DynamicEmb's tables."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Callable, Mapping
from typing import Any

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src import initializers
from jax_dynemb._src.admission import (
    MOST_ROOM,
    Admission,
    Exact,
    Frequency,
    Probability,
)
from jax_dynemb._src.host_tier import HostTier, nearest_share
from jax_dynemb._src.store_tier import external, row_bytes

_log = logging.getLogger("jax_dynemb.dynamicemb")
_NEAREST = (
    "Table '%s': DynamicEmbTableOptions grant %d bytes of device memory to rows of %d "
    "bytes; the nearest tier has %g of its rows on the device."
)
# Options that change nothing here, with the values that are accepted, or all.
_WITHOUT_MEANING = {
    "evict_strategy": None,  # DynamicEmb overwrites it by the score strategy
    "device_id": (None,),
    "bucket_capacity": (128,),
    "training": (True,),
    "dist_type": ("roundrobin",),
}
_INSTEAD = {
    "device_id": "place tables with jax.default_device or a mesh of jde.Tables.",
    "bucket_capacity": "buckets have 128 slots, which files and kernels rely on.",
    "training": "export the trained tables with jde.export for serving.",
    "dist_type": "the hash of an id chooses its device; jde.import_ reads all dumps.",
}
# What the check of insertions means, by name and number, for a table that refuses ids
# and for one that evicts, which warns of what finds no place even so.
_ON_FULL: dict[str, tuple[str | None, str | None]] = {
    **dict.fromkeys(("error", "0"), ("error", "evict_or_error")),
    **dict.fromkeys(("warning", "1"), ("warn", None)),
    **dict.fromkeys(("ignore", "2"), (None, None)),
}
# What options are there that are left out; those of ``_NOTHING`` are nothing then.
_DEFAULTS = {
    "embedding_dtype": "float32",
    "index_type": "int64",
    "max_load_factor": 0.5,
    "score_strategy": "timestamp",
    "initializer_args": {"mode": "uniform"},
    "eval_initializer_args": {"mode": "constant", "value": 0.0},
    "safe_check_mode": "ignore",
}
_NOTHING = {
    "dim",
    "max_capacity",
    "init_capacity",
    "admit_strategy",
    "admission_counter",
    "external_storage",
    "caching",
    "local_hbm_for_values",
    "global_hbm_for_values",
}
_MAPPED = _DEFAULTS.keys() | _NOTHING


def table_fields(options: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Translates options, or their fields, to arguments of ``TableConfig``.

    ``given`` replaces or completes them. ValueError if one has no counterpart, or there
    is no size.
    """
    fields = {**_translated(options, given), **given}
    if missing := sorted({"dim", "capacity"} - fields.keys()):
        raise ValueError(
            f"the options say no {' and no '.join(missing)}; set dim, and max_capacity "
            "or init_capacity, in DynamicEmbTableOptions."
        )
    return fields


def within_budget(config: Any, options: Any, given: Mapping[str, Any]) -> Any:
    """Returns a table whose rows take as much device memory as the options grant.

    A budget of one rank is compared with the rows of one rank, one of all ranks with
    the rows of the table. Rows that do not fit lie in host memory. A tier in ``given``
    is left as it is.

    A budget that no tier has becomes the nearest one, with a line in the log.

    Raises:
      ValueError: rows should be cached without device memory.
    """
    said = _as_dict(options)
    local, whole = (said.get(f"{of}_hbm_for_values") or 0 for of in ("local", "global"))
    budget, rows = local or whole, config.max_capacity or config.capacity
    if "tier" in given or not budget:
        if said.get("caching") and config.tier is None:
            raise ValueError(
                "DynamicEmbTableOptions caching=True is refused without a budget of "
                "device memory: set global_hbm_for_values, or pass tier=jde.tiers.host("
                "...). Or leave caching out and shard them over a mesh."
            )
        return config
    if local:
        rows = said.get("max_capacity") or said.get("init_capacity") or rows
    needed = rows * row_bytes(config)
    if budget >= needed and config.tier is None:
        return config
    slots = _ffi.constants()["bucket_capacity"]
    granted = slots * budget // needed / slots
    share = nearest_share(granted)
    if share != granted:
        _log.warning(_NEAREST, config.name, budget, needed, share)
    tier = dataclasses.replace(config.tier or HostTier(), hbm_fraction=share)
    return dataclasses.replace(config, tier=tier)


def _translated(options: Any, chosen: Mapping[str, Any]) -> dict[str, Any]:
    given = _as_dict(options)
    known = _MAPPED | _WITHOUT_MEANING.keys()
    if unknown := sorted(given.keys() - known):
        raise ValueError(
            f"{unknown} are no DynamicEmbTableOptions; known: {sorted(known)}"
        )
    below = given.get("external_storage") is not None
    for name, accepted in _WITHOUT_MEANING.items():
        if name in given and accepted is not None and given[name] not in accepted:
            raise ValueError(
                f"DynamicEmbTableOptions {name}={given[name]!r} is refused: "
                f"{_INSTEAD[name]} Leave it at {accepted[0]!r}."
            )
    said = {k: v for k, v in given.items() if k in _MAPPED and v is not None}
    present, ids = _DEFAULTS | said, _ids(said, chosen)
    fields = _sizes(present) | {"score_strategy": _strategy(present["score_strategy"])}
    if "dim" in present:
        fields["dim"] = present["dim"]
    fields["param_dtype"] = _dtype(present["embedding_dtype"])
    _check_index_type(_dtype(present["index_type"]))
    for name in {"initializer", "eval_initializer"} - chosen.keys():
        fields[name] = _initializer(present[f"{name}_args"], ids)
    if "admit_strategy" in present and "admission" not in chosen:
        strategy, counter = present["admit_strategy"], present.get("admission_counter")
        _check_first_rows(strategy, present["initializer_args"], ids)
        fields["admission"] = _admission(strategy, counter, fields)
    if "on_full" not in chosen:
        fields |= _on_full(present["safe_check_mode"], fields, chosen)
    if below:
        fields["tier"] = _tier(present["external_storage"])
        fields.pop("max_capacity", None)  # the store bounds the rows
    return fields


def _as_dict(options: Any) -> dict[str, Any]:
    if isinstance(options, Mapping):
        return dict(options)
    if not hasattr(options, "__dict__"):
        raise ValueError(
            f"{options!r} are no DynamicEmbTableOptions: pass the object, or a dict of "
            "its fields such as {'dim': 16, 'max_capacity': 1_000_000}."
        )
    return dict(vars(options))


def _tier(storage: Any) -> Any:
    """A tier over DynamicEmb's external storage, which must be a store here."""
    try:
        return external(storage)
    except TypeError as error:
        raise ValueError(
            f"external_storage={storage!r} is refused: it must be a jde.stores.Store, "
            "or a function from a TableConfig to one, as jde.tiers.external takes."
        ) from error


def _admission(strategy: Any, counter: Any, fields: Mapping[str, Any]) -> Admission:
    """Returns a rule with the threshold or the chance of DynamicEmb's.

    Its counter adds 1 for each batch that has a key, and with LFU each occurrence.
    """
    for name in ("p", "probability", "prob"):
        if (chance := getattr(strategy, name, None)) is not None:
            return Probability(float(chance))
    threshold, room = getattr(strategy, "threshold", None), _room(counter)
    if threshold is None or room is None:
        raise ValueError(
            f"admit_strategy={strategy!r} is refused: a FrequencyAdmissionStrategy "
            "with a KVCounter, or a probability, has a counterpart. Pass "
            "admission=... of jde.admission instead."
        )
    # The counter grows with the table, so a small one may begin with less room.
    most = MOST_ROOM * fields.get("capacity", room)
    counts = "occurrences" if fields["score_strategy"] == "lfu" else "lookups"
    return Frequency(int(threshold), Exact(min(room, most)), counts=counts)


def _room(counter: Any) -> int | None:
    room = getattr(counter, "capacity", None)
    return None if room is None else int(room)


def _check_first_rows(strategy: Any, of_table: Any, ids: int) -> None:
    """Refuses other rows for ids that wait than those of the table.

    Raises:
      ValueError: they are others.
    """
    args = getattr(strategy, "initializer_args", None)
    if args is None:
        return
    if _initializer(args, ids) != _initializer(of_table, ids):
        raise ValueError(
            f"initializer_args={args!r} of the admit_strategy are refused: an id that "
            "waits for admission reads the first row of its table. Leave them out, or "
            "give the table the same initializer_args."
        )


def _on_full(
    mode: Any, fields: Mapping[str, Any], chosen: Mapping[str, Any]
) -> dict[str, str]:
    """Returns what a table does with ids that find no place; ValueError if unknown."""
    if (name := _name(mode)) not in _ON_FULL:
        raise ValueError(
            f"safe_check_mode={mode!r} is refused: it is ERROR, WARNING or IGNORE."
        )
    evicts = {**fields, **chosen}["score_strategy"] != "no_eviction"
    on_full = _ON_FULL[name][evicts]
    return {} if on_full is None else {"on_full": on_full}


def _sizes(given: Mapping[str, Any]) -> dict[str, Any]:
    most, first = given.get("max_capacity"), given.get("init_capacity")
    fields: dict[str, Any] = {}
    if first is not None or most is not None:
        fields["capacity"] = most if first is None else first
    never_evicts = _name(given["score_strategy"]) == "no_eviction"
    if most is not None and not never_evicts:  # there it is no bound
        fields["max_capacity"] = most
    share = given["max_load_factor"]
    if share <= 0:  # no growth
        fields["max_capacity"] = fields.get("capacity")
    else:
        fields["grow_at"] = share
    return fields


def _ids(given: Mapping[str, Any], chosen: Mapping[str, Any]) -> int:
    """The ``num_embeddings`` that a planner of DynamicEmb has made the sizes from.

    Bounds of first rows follow from it there. Sizes of all devices replace those of one
    rank; a small ``init_capacity`` counts only where nothing says how large it gets.
    """
    most = chosen.get("max_capacity") or chosen.get("capacity") or 0
    most = max(most, given.get("max_capacity") or 0)
    return most or given.get("init_capacity") or 1


def _strategy(given: Any) -> str:
    if isinstance(given, tuple | list):
        if sorted(map(_name, given)) == ["lfu", "timestamp"]:
            return "lfu"  # its scores hold the last use as well
        raise ValueError(
            f"score_strategy={given!r} is refused: only TIMESTAMP and LFU combine; "
            "choose one of jde.ScoreStrategy."
        )
    return _name(given)


def _name(given: Any) -> str:
    return str(getattr(given, "name", given)).lower()


def _dtype(given: Any) -> str:
    return str(getattr(given, "name", given)).removeprefix("torch.")


def _check_index_type(name: str) -> None:
    if name not in ("int64", "uint64"):
        raise ValueError(
            f"index_type={name} is refused: DynamicEmb has int64 and uint64, which "
            "jde.ids both takes; write TableConfig(key_dtype='int32') for 32-bit ids."
        )


def _initializer(args: Any, ids: int) -> Any:
    """Translates ``DynamicEmbInitializerArgs``.

    Args:
      args: the object, or a dict of its fields.
      ids: of the table, for the bounds of a uniform one that are left out.
    """
    given = dict(args) if isinstance(args, Mapping) else dict(vars(args))
    mode = _name(given.get("mode") or "uniform")
    low, high = given.get("lower"), given.get("upper")
    mean, std = given.get("mean", 0.0), given.get("std_dev", 1.0)
    bound = 1.0 / math.sqrt(ids)
    makers: dict[str, Callable[[], Any]] = {
        "uniform": lambda: initializers.uniform(*_bounds(low, high, -bound, bound)),
        "normal": lambda: initializers.normal(std, mean),
        "truncated_normal": lambda: initializers.truncated_normal(
            std, mean, *_bounds(low, high, 0.0, 1.0)
        ),
        "constant": lambda: initializers.constant(given.get("value", 0.0)),
        "debug": initializers.debug,
    }
    if mode not in makers:
        raise ValueError(
            f"initializer mode {mode!r} is unknown; use one of {list(makers)}"
        )
    return makers[mode]()


def _bounds(low: Any, high: Any, least: float, most: float) -> tuple[float, float]:
    return (least if low is None else low, most if high is None else high)
