# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Checks what a caller passes, and sorts features in the order of the configs.

JAX sorts the keys of a plain dict wherever the dict crosses a jit, grad or scan. So the
order of the caller's dict means nothing here, and what is returned by feature is an
OrderedDict, whose order JAX keeps.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jax_dynemb._src.config import ScoreStrategy, TableConfig
from jax_dynemb._src.engines import Catalog, LookupEngine, Routed
from jax_dynemb._src.engines.shard import Rule, check_rule
from jax_dynemb._src.ids import check_depth
from jax_dynemb._src.jagged import Jagged, split_weights
from jax_dynemb._src.kind_of import kind_of
from jax_dynemb._src.ops import TableState
from jax_dynemb._src.optim.interface import TableOptimizer, check_number
from jax_dynemb._src.table.bags import sqrtn_weights, without_padding_id
from jax_dynemb._src.table.by_kind import hash_of
from jax_dynemb._src.tt import TTConfig


def check_flags(call: str, **flags: Any) -> None:
    """Refuses a flag that is no bool; a traced one would need both programs."""
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise TypeError(
                f"{call}: {name} must be True or False, not {kind_of(flag)}: it is "
                "static. Choose between two jitted functions on the host."
            )


def by_feature(tables: Catalog[Any], ids: Any) -> dict[str, Any]:
    """Sorts the ids of a lookup into the order of the configs.

    They are by feature, or what says them with ``jagged_by_feature()``.
    """
    if hasattr(ids, "jagged_by_feature"):
        ids = ids.jagged_by_feature()
    check_mapping(ids, "ids", "feature", tables.features)
    for feature, each in ids.items():
        if isinstance(each, TableState):
            raise _state_as_ids(feature)
        tables.config_of(feature)
    if not ids:
        raise ValueError("ids must have one feature or more")
    ordered = OrderedDict((f, ids[f]) for f in tables.features if f in ids)
    for feature, each in ordered.items():
        config = tables.config_of(feature)
        check_ids(config, feature, each)
        if getattr(config, "padding_id", None) is not None:
            ordered[feature] = without_padding_id(config, each)
    return ordered


def batch_of(
    tables: Catalog[Any], ids: Any, weights: Mapping[str, Any] | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns ids and weights of a lookup in the order of the configs, checked."""
    ids, weights = split_weights(ids, weights)
    ids = by_feature(tables, ids)
    return ids, weights_of(tables, ids, weights)


def by_table(tables: Catalog[Any], ids: Any, call: str) -> dict[str, Any]:
    """Checks the ids of an insert or erase: a dict by table."""
    check_mapping(ids, f"{call}: ids", "table", tables.tables)
    for name, each in ids.items():
        if name in tables.tables:
            check_ids(tables.dynamic_table(name, call), name, each)
    known = tables.dynamic
    return {name: without_padding_id(known.get(name), x) for name, x in ids.items()}


def check_rows(
    tables: Catalog[Any], ids: Mapping[str, Any], rows: Any, states: Any, scores: Any
) -> None:
    """Refuses rows of an insert without ids, and ids without rows."""
    given = {"rows": rows, "optimizer_state": states or {}, "scores": scores or {}}
    for what, each in given.items():
        check_mapping(each, f"insert: {what}", "table", tables.tables)
        if unknown := sorted(set(each) - set(ids)):
            raise ValueError(
                f"insert: {what} of {unknown}, but no ids for them. Tables with ids: "
                f"{sorted(ids)}."
            )
        for name, given_here in each.items():
            arrays = given_here if isinstance(given_here, Mapping) else {"": given_here}
            for array in arrays.values():
                check_depth(f"insert: {what} of '{name}'", array)
    if missing := sorted(set(ids) - set(rows)):
        raise ValueError(
            f"insert: rows of {missing} are missing: give a row for each of their ids."
        )


def rules_by_table(tables: Catalog[Any], rules: Any) -> dict[str, Rule]:
    """Checks the rules of ``erase_where`` and that tables keep what they compare."""
    check_mapping(rules, "erase_where: rules", "table", tables.tables)
    for name, rule in rules.items():
        config = tables.dynamic_table(name, "erase_where")
        if not isinstance(rule, Rule):
            raise TypeError(
                f"erase_where: the rule of table '{name}' is {kind_of(rule)}: write "
                f"{{'{name}': jde.lifecycle.Rule(unused_for=...)}}."
            )
        check_rule(config, rule)
        if rule.keeps and config.num_slots >= 2**32:  # only a mesh has room for them
            raise ValueError(
                f"erase_where: table '{name}' has {config.num_slots} slots, but "
                "keep_at_least and keep_at_most count rows in 32 bits. Leave them out, "
                "or divide the table."
            )
    return dict(rules)


def factors_by_table(tables: Catalog[Any], factors: Any) -> dict[str, jax.Array]:
    """Checks the factors of ``decay``, float32[] each, of tables that count."""
    check_mapping(factors, "decay: factors", "table", tables.tables)
    result = {}
    for name, factor in factors.items():
        config = tables.dynamic_table(name, "decay")
        if ScoreStrategy(config.score_strategy) is not ScoreStrategy.LFU:
            raise ValueError(
                f"decay: table '{name}' has score_strategy='{config.score_strategy}', "
                "which counts no uses. Leave it out, or give it score_strategy='lfu'."
            )
        if config.lfu_halflife is not None:
            raise ValueError(
                f"decay: the counts of table '{name}' decay by themselves, by half in "
                f"{config.lfu_halflife} lookups. Leave it out, or drop lfu_halflife."
            )
        array = factor if isinstance(factor, jax.Array) else np.asarray(factor)
        if array.shape != () or array.dtype.kind not in "iuf":
            raise TypeError(
                f"decay: the factor of table '{name}' must be one number from 0 to 1, "
                f"not {kind_of(factor)}."
            )
        if not isinstance(factor, Tracer) and not 0 <= float(array) <= 1:
            raise ValueError(
                f"decay: the factor of table '{name}' is {float(array)}, which is not "
                "from 0 to 1."
            )
        result[name] = jnp.asarray(array).astype(jnp.float32)
    return result


def check_ids(config: TableConfig | TTConfig, feature: str, ids: Any) -> None:
    """Refuses what is no array of ids, and pairs of words for 32-bit keys.

    Nothing tells uint32[n, 2] with two 32-bit ids a row from n ids of ``jde.ids``.
    """
    if isinstance(ids, TableState):
        raise _state_as_ids(feature)
    if isinstance(ids, Mapping):
        raise TypeError(
            f"ids of '{feature}' are a dict, but must be an array of ids or a Jagged: "
            "give the value for this feature alone."
        )
    values = ids.values if isinstance(ids, Jagged) else ids
    shape = getattr(values, "shape", ())
    is_pairs = getattr(values, "dtype", None) == "uint32" and shape[-1:] == (2,)
    if config.key_dtype == "int32" and is_pairs:
        raise TypeError(
            f"Feature '{feature}': uint32{list(shape)} reads as ids of jde.ids, which "
            f"are pairs of words, but table '{config.name}' has key_dtype='int32'. "
            "Drop key_dtype to use jde.ids; pass genuine 32-bit ids in rows of two as "
            "int32 (uint32 ids from 2**31 on: padded to three a row)."
        )


def _state_as_ids(feature: str) -> TypeError:
    return TypeError(
        f"'{feature}' of ids is a TableState: the state comes first, "
        "coll.lookup(state, ids)."
    )


def check_states(engine: LookupEngine, state: Any, call: str) -> None:
    """Refuses what is no dict of tables, and donated arrays."""
    if isinstance(state, tuple):
        raise TypeError(
            f"{call}: state is a tuple of {len(state)}. The new state is the last "
            "value that a call returns: rows, residual, state = coll.lookup(...); "
            "rows, found, state = coll.find(...)."
        )
    if isinstance(state, TableState):
        name = next(iter(engine.catalog.tables))
        raise TypeError(
            f"{call}: state is the TableState of one table; pass the dict of all that "
            f"init returns, e.g. {{'{name}': state}}."
        )
    if not isinstance(state, Mapping):
        raise TypeError(
            f"{call}: state must be the dict of TableState that coll.init() returns, "
            f"not {kind_of(state)}."
        )
    arrays = {engine.state_name(name) for name in engine.catalog.tables}
    if not arrays & set(state):
        raise TypeError(
            f"{call}: state has {sorted(map(str, state))}, but the arrays of these "
            f"tables are {sorted(arrays)}. The state comes before the ids: "
            "coll.lookup(state, ids)."
        )
    for name in sorted(arrays & set(state)):
        if (own := getattr(state[name], "name", "")) not in ("", name):
            raise _of_another(name, own, call)
    check_not_donated(state, call)


def _of_another(name: str, own: str, call: str) -> ValueError:
    """Refuses the arrays of another table, which may have equal shapes."""
    return ValueError(
        f"{call}: state['{name}'] holds the arrays of '{own}'. Pass the dict as init "
        f"returned it. If '{own}' was renamed to '{name}', say so in its arrays: "
        f"dataclasses.replace(state['{name}'], name='{name}')."
    )


def check_arrays(
    engine: LookupEngine, state: Any, tables: Iterable[str], call: str
) -> None:
    """Refuses a state without the arrays of a table that a call uses."""
    missing = {engine.state_name(name): name for name in tables}
    missing = {arrays: name for arrays, name in missing.items() if arrays not in state}
    if missing:
        name = next(iter(missing.values()))
        raise ValueError(
            f"{call}: state has {sorted(map(str, state))}, but not "
            f"{sorted(missing)}. Tables of one shape may share arrays, under the name "
            f"coll.state_name('{name}'). Pass the state that coll.init returns; "
            "share_arrays=False keeps the arrays of each table apart."
        )


def check_sizes(
    engine: LookupEngine, state: Any, tables: Iterable[str], call: str
) -> None:
    """Refuses arrays that are missing, or that hold more or fewer buckets.

    A state of larger tables has the names of these. Read with these sizes, it would
    look like a table that lost half of its rows.
    """
    names = [name for name in tables if name in engine.catalog.dynamic]
    check_arrays(engine, state, names, call)
    for name in names:
        found = state[engine.state_name(name)].index
        expected = hash_of(engine).buckets(name)
        if expected is not None and found.shape[0] != expected:
            raise ValueError(
                f"{call}: the arrays of table '{name}' have {found.shape[0]} buckets, "
                f"but those of these Tables {expected}. Tables that grew are others: "
                "take the ones that grow returned, or coll of the Grower."
            )


def check_not_donated(state: Any, call: str) -> None:
    """Refuses donated arrays with RuntimeError, JAX's type for a deleted array."""
    arrays = [x for x in jax.tree.leaves(state) if isinstance(x, jax.Array)]
    if any(x.is_deleted() for x in arrays if not isinstance(x, Tracer)):
        raise RuntimeError(
            f"{call}: this state was donated to an earlier call, which deleted its "
            "arrays. Pass the state that the call returned: state = step(state, ids)."
        )


def check_values(state: Any, call: str) -> None:
    """Refuses tracers where a call reads numbers on the host."""
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(state)):
        raise TypeError(
            f"{call} reads the tables on the host, so it cannot stand inside jax.jit, "
            f"scan or grad. Return the state from the step and call {call} on it "
            "afterwards, once in a while."
        )


def check_mapping(given: Any, what: str, key: str, known: Iterable[str]) -> None:
    """Refuses what is no dict by ``key``: "table" or "feature".

    ``what`` begins with the name of the call, such as "erase_where: rules".
    """
    if isinstance(given, Mapping):
        return
    names = list(known)
    value = what.rsplit(" ", 1)[-1]
    raise TypeError(
        f"{what} must be a dict by {key}, not {kind_of(given)}: write "
        f"{{'{names[0]}': {value}}}. The {key}s here are {names}."
    )


def weights_of(
    tables: Catalog[Any], ids: Mapping[str, Any], weights: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Returns the weights of a lookup; each needs ids and a table that pools."""
    weights = {} if weights is None else weights
    check_mapping(weights, "weights", "feature", tables.features)
    weights = {k: w for k, w in weights.items() if w is not None}
    if unknown := sorted(set(weights) - set(ids)):
        raise ValueError(
            f"weights for {unknown}, but no ids for them. Features with ids: "
            f"{sorted(ids)}."
        )
    for feature in weights:
        config = tables.config_of(feature)
        if config.pooling is None:
            raise ValueError(
                f"Feature '{feature}' has weights, but table '{config.name}' does "
                "not pool. Set pooling='sum' or 'mean', or multiply the rows."
            )
    scaled = [f for f in ids if tables.config_of(f).pooling == "sqrtn"]
    for feature in scaled:
        own = tables.config_of(feature), ids[feature], weights.get(feature)
        weights[feature] = sqrtn_weights(*own)
    return weights


def check_routed(engine: LookupEngine, routed: Routed, weights: Any) -> None:
    """Refuses a batch that other tables have routed, and weights a second time."""
    if routed.engine != engine:
        raise ValueError(
            "lookup: this batch was routed by other tables, perhaps before they grew. "
            "Route it again: coll.lookup(state, coll.route(ids))."
        )
    if weights is not None:
        raise ValueError(
            "lookup: a routed batch has its weights inside; give them to "
            "coll.route(ids, weights)."
        )


def hyper_of(
    tables: Catalog[Any],
    learning_rate: Any,
    hyper: Mapping[str, Mapping[str, Any]] | None,
) -> dict[str, dict[str, Any]]:
    """Merges the hyper-parameters of one update, by table and name, checked."""
    check_mapping(hyper or {}, "apply_gradients: hyper", "table", tables.tables)
    for name, numbers in (hyper or {}).items():
        if not isinstance(numbers, Mapping):
            raise TypeError(
                f"apply_gradients: hyper of table '{name}' must be a dict by "
                f"hyper-parameter, not {kind_of(numbers)}: write {{'{name}': "
                "{'learning_rate': 0.1}}."
            )
    merged = {name: dict(numbers) for name, numbers in (hyper or {}).items()}
    if callable(learning_rate):
        raise TypeError(
            "learning_rate=... of apply_gradients takes a number, not a schedule: "
            "write learning_rate=schedule(step), or give the schedule to the "
            "table's optimizer."
        )
    if learning_rate is not None:
        by_table = (
            learning_rate
            if isinstance(learning_rate, Mapping)
            else dict.fromkeys(tables.tables, learning_rate)
        )
        for name, rate in by_table.items():
            merged.setdefault(name, {})["learning_rate"] = rate
    for name in merged:
        optimizer = tables.table(name).optimizer
        fused = isinstance(optimizer, TableOptimizer) and optimizer.kind
        if optimizer is not None and not fused:
            raise ValueError(
                f"Table '{name}' has an optax optimizer: its hyper-parameters are "
                "part of the transformation. Give it a schedule instead."
            )
        for field, number in merged[name].items():
            check_number(f"Table '{name}'", field, number)
    return merged
