# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Lookups and updates of tables on one device."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from jax_dynemb import ops
from jax_dynemb._kept_jit import kept_jit
from jax_dynemb._spec import TableSpec
from jax_dynemb.config import ScoreStrategy, TableConfig
from jax_dynemb.engines import shard
from jax_dynemb.engines._catalog import Catalog
from jax_dynemb.engines._engine import States
from jax_dynemb.engines._flags import TRAINING, LookupFlags
from jax_dynemb.engines._given import Given
from jax_dynemb.engines.shard import RowGradients, check_table, pair_lookups
from jax_dynemb.ops import (
    FeatureGradient,
    FeatureInput,
    FeatureLayout,
    Residual,
    Rows,
    StampsOf,
    check_residual,
    check_stamps,
    copied_batch,
    count_malformed,
    halved_sketches,
    join_gradient,
    join_stamps,
    make_residual,
    prepare,
    with_uses,
)

Input = tuple[FeatureLayout, FeatureInput]


class Placed(Protocol):
    """Tables with their places in the arrays of one device."""

    @property
    def catalog(self) -> Catalog[TableConfig]: ...

    def local_specs(self, names: Collection[str]) -> list[TableSpec]:
        """Returns the configs of some tables as a call takes them."""
        ...


def lookup(
    tables: Placed,
    state: States,
    ids: Mapping[str, Any],
    weights: Mapping[str, Any],
    given: Given,
    flags: LookupFlags = TRAINING,
) -> tuple[dict[str, jax.Array], Residual, States]:
    """See ``Tables.lookup``."""
    inputs = _with_uses(tables, _inputs(tables, ids, weights), given)
    used = [flags.of(table) for table in _used(tables, inputs)]
    inputs = copied_batch(used, state, inputs)
    numbers = jnp.stack([given.tables[t.name] for t in used])
    state = state | halved_sketches(used, state)
    outputs, new, stamps = shard.lookup(used, state, inputs, numbers)
    cut = [
        (layout.table, arrays.malformed)
        for layout, arrays in inputs
        if arrays.malformed is not None
    ]
    new |= count_malformed(used, new, cut)
    rows, residuals = OrderedDict(), OrderedDict()
    for (layout, arrays), output in zip(inputs, outputs, strict=True):
        rows[layout.feature] = _shaped(layout, output["rows"])
        residuals[layout.feature] = make_residual(layout, arrays, output)
    return rows, Residual(residuals, stamps), state | new


def find(
    tables: Placed, state: States, ids: Mapping[str, Any], weights: Mapping[str, Any]
) -> tuple[dict[str, jax.Array], dict[str, jax.Array], States]:
    """See ``Tables.find``."""
    inputs = _inputs(tables, ids, weights)
    outputs, new = ops.find(_used(tables, inputs), state, inputs)
    rows, found = OrderedDict(), OrderedDict()
    for (layout, _), output in zip(inputs, outputs, strict=True):
        rows[layout.feature] = _shaped(layout, output["rows"])
        flags = output["found"].astype(bool)
        found[layout.feature] = layout.shaped_as_given(flags)
    return rows, found, state | new


def touch(
    tables: Placed,
    state: States,
    ids: Mapping[str, Any],
    given: Given,
    flags: LookupFlags,
) -> States:
    """See ``Tables.find``: the rows that are found count as used now."""
    inputs = _with_uses(tables, _inputs(tables, ids, {}), given)
    inputs = [ops.slots_only(*x) for x in inputs]
    used = [flags.of(table) for table in _used(tables, inputs)]
    numbers = jnp.stack([given.tables[t.name] for t in used])
    _, new, _ = ops.lookup(used, state, inputs, numbers)
    return state | shard.touched(new, state)


def prefetch(tables: Placed, state: States, ids: Mapping[str, Any]) -> States:
    """See ``Tables.prefetch``."""
    inputs = _inputs(tables, ids, {})
    used = _used(tables, inputs)
    return state | ops.prefetch(used, state, copied_batch(used, state, inputs))


def apply_gradients(
    tables: Placed,
    state: States,
    residual: Any,
    d_rows: Any,
    hyper: Mapping[str, Mapping[str, Any]],
) -> States:
    """See ``Tables.apply_gradients``."""
    if not any(map(_runs_as_one, tables.catalog.configs)):
        return _update(tables, state, residual, d_rows, hyper)
    pairs = pair_lookups(Residual, residual, d_rows)
    residuals, gradients = [one for one, _ in pairs], [dict(d) for _, d in pairs]
    _checked_stamps(tables, state, residuals, "apply_gradients")
    numbers = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), dict(hyper))
    return _update_at_once(tables, state, residuals, gradients, numbers)


def _runs_as_one(config: TableConfig) -> bool:
    """Tells whether an update is one program outside of jit, too.

    A tier may need a loop over rounds. XLA rounds an optax transformation otherwise
    where its operations run one by one; so it is one program with and without a tier.
    """
    return config.tier is not None or not config.optimizer.kind


def _update(
    tables: Placed, state: States, residual: Any, d_rows: Any, hyper: Any
) -> States:
    features = _gradients(tables, residual, d_rows)
    used = tables.local_specs({f.layout.table for f in features})
    stamps = _checked_stamps(tables, state, residual, "apply_gradients")
    return shard.update_rows(used, state, features, hyper, stamps)


# One program for all calls outside of jit, where a loop over rounds is else compiled
# again. Inside it the operations are the caller's.
_update_at_once = kept_jit(0, inline=True)(_update)


def reduce_gradients(
    tables: Placed, state: States, residual: Any, d_rows: Any
) -> tuple[dict[str, RowGradients], States]:
    """See ``Tables.reduce_gradients``."""
    features = _gradients(tables, residual, d_rows)
    used = tables.local_specs({f.layout.table for f in features})
    stamps = _checked_stamps(tables, state, residual, "reduce_gradients")
    reduced, new = ops.reduce(used, state, features, counts_step=False, stamps=stamps)
    return shard.row_gradients(features, reduced), state | new


def weight_gradients(
    tables: Placed, state: States, residual: Residual, d_rows: Mapping[str, Any]
) -> tuple[dict[str, jax.Array], States]:
    """See ``Tables.weight_gradients``.

    Of ``rows[b] = scale[b] * sum_i weights[i] * row[i]`` the derivative with respect
    to ``weights[i]`` is ``scale[b] * <d_rows[b], row[i]>``.
    """
    weighted = shard.weighted_features(residual.features)
    for name, each in weighted.items():
        check_residual(each)
        check_table(tables.catalog.config_of(name), each)
    used = tables.local_specs({each.layout.table for each in weighted.values()})
    inputs = [shard.one_row_input(each) for each in weighted.values()]
    outputs, new = ops.find([shard.reading(t) for t in used], state, inputs)
    result = OrderedDict(
        (
            name,
            shard.of_feature(
                each, d_rows[name], output["rows"], _max_gradient(tables, name)
            ),
        )
        for (name, each), output in zip(weighted.items(), outputs, strict=True)
    )
    return result, state | new


def _max_gradient(tables: Placed, feature: str) -> float | None:
    return tables.catalog.config_of(feature).max_gradient


def _inputs(
    tables: Placed, ids: Mapping[str, Any], weights: Mapping[str, Any]
) -> list[Input]:
    return [
        prepare(tables.catalog.config_of(feature), feature, each, weights.get(feature))
        for feature, each in ids.items()
    ]


def _with_uses(tables: Placed, inputs: list[Input], given: Given) -> list[Input]:
    """Adds what ids have of their own."""
    if not given.is_per_id:
        return inputs
    result = []
    for layout, arrays in inputs:
        config, name = tables.catalog.config_of(layout.feature), layout.feature
        counts, scores = given.counts.get(name), given.scores.get(name)
        strategy = ScoreStrategy(config.score_strategy)
        own = given.tables[config.name]
        result.append(
            (layout, with_uses(strategy, layout, arrays, counts, scores, own))
        )
    return result


def _used(tables: Placed, inputs: Sequence[Input]) -> list[TableSpec]:
    return tables.local_specs({layout.table for layout, _ in inputs})


def _shaped(layout: FeatureLayout, rows: jax.Array) -> jax.Array:
    return rows.reshape(*layout.rows_shape, rows.shape[-1])


def _gradients(tables: Placed, residual: Any, d_rows: Any) -> list[FeatureGradient]:
    """Pairs residuals with gradients: of one lookup, or of equal lists of lookups."""
    features, pairs = [], pair_lookups(Residual, residual, d_rows)
    for lookup, gradients in pairs:
        for name, one in lookup.features.items():
            config = tables.catalog.config_of(name)
            check_table(config, one)
            given, limit = gradients[name], config.max_gradient
            joined = len(pairs) > 1
            features.append(join_gradient(one, given, config.dim, limit, joined))
    return features


def _checked_stamps(
    tables: Placed, state: States, residual: Any, call: str
) -> StampsOf:
    """Returns the stamps of the lookups; refuses concrete ones that do not fit."""
    many = residual if isinstance(residual, (list, tuple)) else [residual]
    stamps = [one.stamps for one in many]
    names = {name for one in stamps for own in one.names for name in own}
    counters = {
        config.name: Rows(state[config.state_name].counters, (config.first_row,))
        for config in tables.local_specs(names)
    }
    check_stamps(stamps, counters, call)
    return join_stamps(stamps)
