# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Lookups of tensor-train tables in a collection, and the updates of their cores."""

from __future__ import annotations

import dataclasses
import operator
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from jax_dynemb._src import tt
from jax_dynemb._src.engines.catalog import Catalog
from jax_dynemb._src.engines.hash.layouts import Layout
from jax_dynemb._src.engines.shard import pair_lookups
from jax_dynemb._src.shown import Shown

ALL = PartitionSpec()
States = dict[str, Any]
Cores = tuple[jax.Array, ...]
Tables = Catalog[tt.TTConfig]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, repr=False)
class TTResiduals(Shown):
    """Holds what a lookup of several features leaves for its gradients.

    Attributes:
      features: by name.
    """

    features: dict[str, tt.TTResidual]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class CoreGradients:
    """Holds the gradients of a table's cores: what is updated in place of rows.

    Attributes:
      cores: float32[p_t, R_t, q_t, R_{t+1}] each, summed over the batch.
    """

    cores: Cores

    def sum_of_squares(self) -> jax.Array:
        """Sums the squares of the gradients of all cores, float32[]."""
        return sum((jnp.sum(x * x) for x in self.cores), jnp.float32(0))


class Sums(NamedTuple):
    """Holds what lookups of a table left, summed over lookups and devices.

    Attributes:
      cores: gradients.
      skipped: uint32[], rows of gradients that are not finite.
      rows: uint32[], how many rows have gradients.
      fits: bool[], whether the state is one that the lookups led to.
    """

    cores: Cores
    skipped: jax.Array
    rows: jax.Array
    fits: jax.Array


def lookup(
    tables: Tables,
    layout: Layout,
    state: States,
    ids: Mapping[str, Any],
    weights: Mapping[str, Any],
) -> tuple[dict[str, jax.Array], TTResiduals, States]:
    """See ``Tables.lookup``."""
    batch = layout.batch(configs_by_feature(tables, ids), ids, weights)
    static = batch.layout

    def body(states: States, ids: Any, weights: Any) -> Any:
        rows, residuals, new = {}, {}, dict(states)
        digests: dict[str, jax.Array] = {}
        for each, feature_input in static.local(ids, weights):
            feature, config = each.feature, tables.table(each.table)
            one, numbers = tt.residual_of(config, each, feature_input)
            cores = states[config.name].cores
            rows[feature] = tt.rows_by_residual(config, cores, one, one.weights)
            residuals[feature] = one
            sums = jnp.stack(tt.sums_of(one, numbers))
            digest, outside = layout.total(sums)
            digests[config.name] = 31 * digests.get(config.name, 0) + digest
            new[config.name] = new[config.name].add_counts(
                out_of_range=outside,
                malformed_lengths=feature_input.malformed,  # of all devices already
            )
        for name, digest in digests.items():
            stamp, new[name] = new[name].looked_up(digest)
            for feature, one in residuals.items():
                if tables.config_of(feature).name == name:
                    residuals[feature] = dataclasses.replace(one, stamp=stamp)
        return rows, TTResiduals(residuals), new

    split = layout.split
    own = states_of(tables, state, ids)
    run = layout.mapped(
        body, (ALL, batch.ids_specs, batch.weights_specs), (split, split, ALL)
    )
    rows, residual, new = run(own, batch.ids, batch.weights)
    ordered = OrderedDict((f, residual.features[f]) for f in ids)
    return batch.rows(rows), TTResiduals(ordered), state | new


def apply_gradients(
    tables: Tables,
    layout: Layout,
    state: States,
    residual: Any,
    d_rows: Any,
    hyper: Mapping[str, Mapping[str, Any]],
) -> States:
    """See ``Tables.apply_gradients``."""
    numbers = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), dict(hyper))

    def update(states: States, sums: dict[str, Sums], hyper: Any) -> Any:
        new = {}
        for name, each in sums.items():
            old, own = states[name], hyper.get(name, {})
            counted = old.add_counts(nonfinite=each.skipped)
            after = tt.update_cores(tables.table(name), counted, each.cores, own)
            new[name] = tt.only_if(each.fits, after, old, each.rows)
        return new

    call = "apply_gradients"
    return state | _on_sums(
        tables, layout, state, residual, d_rows, update, numbers, call
    )


def reduce_gradients(
    tables: Tables, layout: Layout, state: States, residual: Any, d_rows: Any
) -> tuple[dict[str, CoreGradients], States]:
    """See ``Tables.reduce_gradients``."""

    def keep(states: States, sums: dict[str, Sums], hyper: Any) -> Any:
        del hyper
        cores, new = {}, {}
        for name, each in sums.items():
            old = states[name]
            zeroed = (jnp.where(each.fits, core, 0) for core in each.cores)
            cores[name] = CoreGradients(tuple(zeroed))
            new[name] = tt.only_if(each.fits, old, old, each.rows)
        return cores, new

    call = "reduce_gradients"
    sums, new = _on_sums(tables, layout, state, residual, d_rows, keep, {}, call)
    return sums, state | new


def _on_sums(
    tables: Tables,
    layout: Layout,
    state: States,
    residual: Any,
    d_rows: Any,
    use: Any,
    hyper: Any,
    call: str,
) -> Any:
    """Calls ``use`` with the gradients of cores, summed over lookups and devices."""
    pairs = pair_lookups(TTResiduals, residual, d_rows)
    residuals = [one for one, _ in pairs]
    for name, several in _by_table(tables, residuals).items():
        tt.check_moments(tables.table(name), state[name], several, call)
    gradients = [
        {f: layout.padded(r.layout, _stacked(r), d[f]) for f, r in one.features.items()}
        for one, d in pairs
    ]
    features = {f for one in residuals for f in one.features}

    def body(states: States, residuals: Any, gradients: Any, hyper: Any) -> Any:
        sums: dict[str, Any] = {}
        for one, by_feature in zip(residuals, gradients, strict=True):
            for feature, each in one.features.items():
                config = tables.config_of(feature)
                name = config.name
                got, skipped = _gradients(
                    config, states[name], each, by_feature[feature]
                )
                rows = jnp.sum(each.distinct.count, dtype=jnp.uint32)
                more = got, skipped, rows
                if name in sums:
                    more = jax.tree.map(operator.add, sums[name], more)
                sums[name] = more
        new = {}
        for name, several in _by_table(tables, residuals).items():
            cores, skipped, rows = jax.tree.map(layout.total, sums[name])
            new[name] = Sums(cores, skipped, rows, tt.fitting(states[name], several))
        return use(states, new, hyper)

    specs = [layout.split_behind(_stacked_axes(one)) for one in residuals]
    own = states_of(tables, state, features)
    run = layout.mapped(body, (ALL, specs, specs, ALL), ALL)
    return run(own, residuals, gradients, hyper)


def _gradients(
    config: tt.TTConfig, state: tt.TTState, residual: tt.TTResidual, d_rows: jax.Array
) -> tuple[Cores, jax.Array]:
    """Gradients of cores, summed over the lookups that ``lax.scan`` has stacked."""
    stacked = _stacked(residual)
    lead = d_rows.shape[:stacked]
    tt.check_gradient(config, (*lead, *residual.layout.rows_shape), d_rows)
    finite, skipped = tt.only_finite(jnp.asarray(d_rows, jnp.float32))
    if not stacked:
        return tt.core_gradients(config, state, residual, finite), skipped

    def add(sums: Cores, one: Any) -> tuple[Cores, None]:
        return _added(sums, tt.core_gradients(config, state, *one)), None

    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[stacked:]), (residual, finite))
    zeros = jax.tree.map(jnp.zeros_like, state.cores)
    return jax.lax.scan(add, zeros, flat)[0], skipped


def _by_table(
    tables: Tables, residuals: Sequence[TTResiduals]
) -> dict[str, list[tt.TTResidual]]:
    """Returns the residuals of features by the table that they look up."""
    result: dict[str, list[tt.TTResidual]] = {}
    for one in residuals:
        for feature, each in one.features.items():
            result.setdefault(tables.config_of(feature).name, []).append(each)
    return result


def configs_by_feature(
    tables: Tables, ids: Mapping[str, Any]
) -> dict[str, tt.TTConfig]:
    """Returns the table of each feature of a call."""
    return {feature: tables.config_of(feature) for feature in ids}


def states_of(tables: Tables, state: States, features: Any) -> States:
    """Returns the states of the tables that some features look up."""
    names = {tables.config_of(feature).name for feature in features}
    return {name: state[name] for name in sorted(names)}


def _added(a: Cores, b: Cores) -> Cores:
    return tuple(x + y for x, y in zip(a, b, strict=True))


def _stacked(residual: tt.TTResidual) -> int:
    return residual.distinct.count.ndim - 1


def _stacked_axes(residuals: TTResiduals) -> int:
    return _stacked(next(iter(residuals.features.values())))


def weight_gradients(
    tables: Tables,
    layout: Layout,
    state: States,
    residual: TTResiduals,
    d_rows: Mapping[str, Any],
) -> tuple[dict[str, jax.Array], States]:
    """See ``Tables.weight_gradients``."""
    features = {f: r for f, r in residual.features.items() if r.layout.weighted}
    own = states_of(tables, state, features)
    gradients = {f: layout.padded(r.layout, 0, d_rows[f]) for f, r in features.items()}
    inside = layout.is_inside()

    def body(states: States, features: Any, gradients: Any) -> Any:
        result = {}
        for feature, each in features.items():
            config = tables.config_of(feature)
            per_id = _of_weights(config, states[config.name], each, gradients[feature])
            if not inside:
                per_id = layout.whole(each.offsets, per_id)
            result[feature] = per_id
        return result

    split = layout.split
    specs = {f: layout.per_id_spec(r.offsets) for f, r in features.items()}
    result = layout.mapped(body, (ALL, split, split), specs)(own, features, gradients)
    for feature, each in features.items():
        if each.offsets is None:
            rows = jnp.shape(d_rows[feature])[0]
            result[feature] = layout.cut(result[feature], rows)
    return OrderedDict((f, result[f]) for f in features), state


def _of_weights(
    config: tt.TTConfig, state: tt.TTState, residual: tt.TTResidual, d_rows: jax.Array
) -> jax.Array:
    """Gradients of one feature's weights, in the shape of its ids."""
    tt.check_gradient(config, residual.layout.rows_shape, d_rows)

    def rows(weights: jax.Array) -> jax.Array:
        return tt.rows_by_residual(config, state.cores, residual, weights)

    assert residual.weights is not None
    _, backward = jax.vjp(rows, residual.weights)
    (flat,) = backward(jnp.asarray(d_rows, jnp.float32))
    return residual.layout.shaped_as_given(flat)
