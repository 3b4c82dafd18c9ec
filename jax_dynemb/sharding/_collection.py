# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The operations of ``Tables`` on a mesh: each is one shard_map."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from jax_dynemb.config import TableConfig
from jax_dynemb.ops import _rows, _update
from jax_dynemb.ops._layout import FeatureInput, FeatureLayout, prepare
from jax_dynemb.ops._residual import FeatureResidual, join_gradient
from jax_dynemb.ops._state import TableState, cleared_state, empty_state
from jax_dynemb.sharding import _inputs, _lookup, _replicated
from jax_dynemb.sharding import _update as _sharded_update
from jax_dynemb.sharding._batch import make_batch
from jax_dynemb.sharding._inputs import Share
from jax_dynemb.sharding._keys import as_words, hash_words, owner_of, padding
from jax_dynemb.sharding._placement import Placement
from jax_dynemb.sharding._residual import ShardedResidual
from jax_dynemb.table import _insert, _weights
from jax_dynemb.table._update import RowGradients, update_rows

if TYPE_CHECKING:
    from jax_dynemb.table._tables import Tables

States = dict[str, TableState]
Inputs = list[tuple[FeatureLayout, FeatureInput]]
_ALL = PartitionSpec()


def placement_of(tables: Tables) -> Placement:
    """The placement of a collection on a mesh."""
    assert tables.placement is not None
    return tables.placement


def init(tables: Tables, seed: jax.Array) -> States:
    """Empty tables, each shard made where it will live."""
    return _init(tables)(seed)


@functools.lru_cache(maxsize=32)
def _init(tables: Tables) -> Any:
    placement = placement_of(tables)
    shardings = {n: placement.state_sharding(c) for n, c in tables.tables.items()}

    def make(seed):
        return {n: empty_state(c, seed) for n, c in tables.tables.items()}

    return jax.jit(make, out_shardings=shardings)


def clear(tables: Tables, state: States) -> States:
    """See ``Tables.clear``."""
    placement = placement_of(tables)
    used = list(tables.tables.values())

    def body(state):
        return {t.name: cleared_state(placement.local(t), state[t.name]) for t in used}

    specs = _specs(placement, used)
    return dict(state) | placement.mapped(body, (specs,), specs)(_of(state, used))


def lookup(
    tables: Tables,
    state: States,
    ids: Mapping[str, Any],
    weights: Mapping[str, Any],
    scores: Mapping[str, jax.Array],
) -> tuple[dict[str, jax.Array], ShardedResidual, States]:
    """See ``Tables.lookup``."""
    placement = placement_of(tables)
    batch = _Shared(tables, ids, weights)

    def body(state, ids, weights, scores):
        inputs = batch.local(ids, weights)
        return _local_lookup(placement, batch.used, inputs, state, scores)

    specs = _specs(placement, batch.used)
    split = placement.split
    run = placement.mapped(
        body,
        (specs, batch.ids_specs, batch.weights_specs, dict.fromkeys(scores, _ALL)),
        (dict.fromkeys(ids, split), split, specs),
    )
    rows, residual, new = run(
        _of(state, batch.used), batch.ids, batch.weights, dict(scores)
    )
    return batch.rows(rows), residual, dict(state) | new


def _local_lookup(placement, used, inputs: Inputs, state, scores):
    local = [placement.local(t) for t in used]
    split = [t for t in local if t.sharding == "row_wise"]
    copies = [t for t in local if t.sharding == "replicated"]
    rows, residuals, new = {}, {}, dict(state)
    route, fits, received = None, None, {}
    if split:
        batch = make_batch(placement, split, _inputs_of(inputs, split))
        looked = _lookup.lookup(batch, new, scores)
        new |= looked.states
        route, fits = looked.route, looked.fits[None]
        received = dict(zip((t.name for t in split), looked.received, strict=True))
        for (layout, given), (row, scale) in zip(
            batch.inputs, looked.outputs, strict=True
        ):
            rows[layout.feature] = row
            # The route knows the distinct ids; slots stay with the owners.
            none = jnp.zeros(layout.num_ids, jnp.int32)
            residuals[layout.feature] = FeatureResidual(
                given.ids, none, given.offsets, given.weights, scale, layout
            )
    if copies:
        mine = _inputs_of(inputs, copies)
        outputs, left, states = _replicated.lookup(
            placement.axes, copies, mine, new, scores
        )
        new |= states
        for (layout, _), row, each in zip(mine, outputs, left, strict=True):
            rows[layout.feature], residuals[layout.feature] = row, each
    shaped = {
        layout.feature: rows[layout.feature].reshape(*layout.rows_shape, -1)
        for layout, _ in inputs
    }
    ordered = {layout.feature: residuals[layout.feature] for layout, _ in inputs}
    return shaped, ShardedResidual(ordered, route, fits, received), new


def find(
    tables: Tables, state: States, ids: Mapping[str, Any], weights: Mapping[str, Any]
) -> tuple[dict[str, jax.Array], dict[str, jax.Array], States]:
    """See ``Tables.find``."""
    placement = placement_of(tables)
    batch = _Shared(tables, ids, weights)

    def body(state, ids, weights):
        inputs = batch.local(ids, weights)
        local = [placement.local(t) for t in batch.used]
        rows, found, new = _local_find(placement, local, inputs, state)
        shaped, flags = {}, {}
        for layout, given in inputs:
            name = layout.feature
            shaped[name] = rows[name].reshape(*layout.rows_shape, -1)
            flag = layout.shaped_as_given(found[name])
            flags[name] = batch.whole(given.offsets, flag)
        return shaped, flags, new

    specs = _specs(placement, batch.used)
    run = placement.mapped(
        body,
        (specs, batch.ids_specs, batch.weights_specs),
        (dict.fromkeys(ids, placement.split), batch.per_id_specs, specs),
    )
    rows, found, new = run(_of(state, batch.used), batch.ids, batch.weights)
    found = {name: batch.restored(name, x).astype(bool) for name, x in found.items()}
    return batch.rows(rows), found, dict(state) | new


def _local_find(placement, local, inputs: Inputs, state):
    split = [t for t in local if t.sharding == "row_wise"]
    copies = [t for t in local if t.sharding == "replicated"]
    rows, found, new = {}, {}, dict(state)
    if split:
        batch = make_batch(placement, split, _inputs_of(inputs, split))
        outputs, flags, states = _lookup.find(batch, new)
        new |= states
        for (layout, _), row, flag in zip(batch.inputs, outputs, flags, strict=True):
            rows[layout.feature], found[layout.feature] = row, flag
    if copies:
        mine = _inputs_of(inputs, copies)
        outputs, states = _replicated.find(copies, mine, new)
        new |= states
        for (layout, _), output in zip(mine, outputs, strict=True):
            rows[layout.feature] = output["rows"]
            found[layout.feature] = output["found"]
    return rows, found, new


def apply_gradients(
    tables: Tables,
    state: States,
    residual: Any,
    d_rows: Any,
    hyper: Mapping[str, Mapping[str, Any]],
) -> States:
    """See ``Tables.apply_gradients``."""
    placement = placement_of(tables)
    residuals, gradients, used = _paired(tables, residual, d_rows)
    numbers = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), dict(hyper))

    def body(state, residuals, gradients, numbers):
        features = _joined(tables, residuals, gradients)
        only = residuals[0] if len(residuals) == 1 else None
        if only is not None and _stacked(only):
            only = None

        def update(states, features):
            names = {f.layout.table for f in features}
            mine = [placement.local(t) for t in used if t.name in names]
            return dict(states) | update_rows(mine, states, features, numbers)

        local = [placement.local(t) for t in used]
        return _sharded_update.apply_gradients(
            placement, local, features, only, state, update
        )

    specs = _specs(placement, used)
    residual_specs, gradient_specs = _gradient_specs(placement, residuals, gradients)
    hyper_specs = jax.tree.map(lambda _: _ALL, numbers)
    run = placement.mapped(
        body, (specs, residual_specs, gradient_specs, hyper_specs), specs
    )
    return dict(state) | run(_of(state, used), residuals, gradients, numbers)


def reduce_gradients(
    tables: Tables, state: States, residual: Any, d_rows: Any
) -> tuple[dict[str, RowGradients], States]:
    """See ``Tables.reduce_gradients``; with room for any skew."""
    placement = placement_of(tables)
    residuals, gradients, used = _paired(tables, residual, d_rows)

    def body(state, residuals, gradients):
        features = _joined(tables, residuals, gradients)
        local = [placement.local(t) for t in used]
        result = {}

        def reduce(states, features):
            names = {f.layout.table for f in features}
            mine = [t for t in local if t.name in names]
            sums, new = _update.reduce(mine, states, features, counts_step=False)
            result.update({name: RowGradients(*pair) for name, pair in sums.items()})
            return dict(states) | new

        new = _sharded_update.apply_gradients(
            placement, local, features, None, state, reduce, all_fits=True
        )
        return result, new

    specs = _specs(placement, used)
    residual_specs, gradient_specs = _gradient_specs(placement, residuals, gradients)
    rows = {t.name: placement.split if t.sharding == "row_wise" else _ALL for t in used}
    run = placement.mapped(body, (specs, residual_specs, gradient_specs), (rows, specs))
    reduced, new = run(_of(state, used), residuals, gradients)
    return reduced, dict(state) | new


def gather(
    tables: Tables, state: States, slots: Mapping[str, jax.Array]
) -> tuple[dict[str, dict[str, jax.Array]], States]:
    """See ``Tables.gather``; slots of each shard, as ``reduce_gradients`` gives."""
    placement = placement_of(tables)
    used = [tables.tables[name] for name in slots]

    def body(state, slots):
        rows, new = {}, {}
        for t in used:
            rows[t.name], new[t.name] = _rows.gather(
                placement.local(t), state[t.name], slots[t.name]
            )
        return rows, new

    specs, per_slot = _specs(placement, used), _slot_specs(placement, used)
    run = placement.mapped(body, (specs, per_slot), (per_slot, specs))
    rows, new = run(_of(state, used), dict(slots))
    return rows, dict(state) | new


def scatter(
    tables: Tables,
    state: States,
    slots: Mapping[str, jax.Array],
    rows: Mapping[str, Mapping[str, jax.Array]],
) -> States:
    """See ``Tables.scatter``."""
    placement = placement_of(tables)
    used = [tables.tables[name] for name in slots]

    def body(state, slots, rows):
        return {
            t.name: _rows.scatter(
                placement.local(t), state[t.name], slots[t.name], rows[t.name]
            )
            for t in used
        }

    specs, per_slot = _specs(placement, used), _slot_specs(placement, used)
    by_name = {t.name: dict.fromkeys(rows[t.name], per_slot[t.name]) for t in used}
    run = placement.mapped(body, (specs, per_slot, by_name), specs)
    given = {t.name: dict(rows[t.name]) for t in used}
    return dict(state) | run(_of(state, used), dict(slots), given)


def insert(
    tables: Tables, state: TableState, table: TableConfig, *given: Any
) -> TableState:
    """See ``Tables.insert``; of one table. Every device takes the ids that it owns."""
    placement = placement_of(tables)
    ids, rows, optimizer_state, scores = given
    layout, prepared = prepare(table, table.name, ids)
    written = _insert.checked(table, layout, rows, optimizer_state, scores)

    def body(state, ids, written):
        mine = _owned(placement, table, ids)
        new = _insert.store(placement.local(table), state, mine, written)
        if "scores" in written and table.sharding == "row_wise":
            new = _insert.same_clock(new, placement.axes)
        return new

    spec = placement.state_spec(table)
    run = placement.mapped(body, (spec, _ALL, dict.fromkeys(written, _ALL)), spec)
    return run(state, as_words(prepared.ids), written)


def erase(
    tables: Tables, state: TableState, table: TableConfig, ids: Any
) -> TableState:
    """See ``Tables.erase``; of one table."""
    placement = placement_of(tables)
    _, given = prepare(table, table.name, ids)

    def body(state, ids):
        mine = _owned(placement, table, ids)
        return _rows.erase(placement.local(table), state, mine)

    spec = placement.state_spec(table)
    run = placement.mapped(body, (spec, _ALL), spec)
    return run(state, as_words(given.ids))


def weight_gradients(
    tables: Tables, state: States, residual: Any, d_rows: Mapping[str, Any]
) -> tuple[dict[str, jax.Array], States]:
    """See ``Tables.weight_gradients``."""
    placement = placement_of(tables)
    (one,), (gradients,), _ = _paired(tables, residual, dict(d_rows))
    weighted = _weights.weighted_features(one.features)
    names = {each.layout.table for each in weighted.values()}
    used = [t for t in tables.tables.values() if t.name in names]
    inside = placement.is_inside()

    def body(state, features, gradients):
        local = [_weights.reading(placement.local(t)) for t in used]
        inputs = [_weights.one_row_input(each) for each in features.values()]
        rows, _, new = _local_find(placement, local, inputs, state)
        result = {}
        for name, each in features.items():
            per_id = _weights.of_feature(each, gradients[name], rows[name])
            if not inside:
                per_id = _inputs.global_numbers(placement, each.offsets, per_id)
            result[name] = per_id
        return result, new

    split, specs = placement.split, _specs(placement, used)
    per_id = {n: split if r.offsets is None else _ALL for n, r in weighted.items()}
    run = placement.mapped(
        body, (specs, split, dict.fromkeys(gradients, split)), (per_id, specs)
    )
    result, new = run(_of(state, used), weighted, gradients)
    if not inside:
        for name, each in weighted.items():
            if each.offsets is None:
                result[name] = result[name][: jnp.shape(d_rows[name])[0]]
    return result, dict(state) | new


def local_shards(
    tables: Tables, table: TableConfig, state: TableState
) -> list[tuple[TableConfig, TableState]]:
    """The shards on this process's devices as tables of one device, each once."""
    local = placement_of(tables).local(table)
    pieces: dict[Any, list[Any]] = {}
    leaves, tree = jax.tree.flatten(dataclasses.replace(state, extra=()))
    for leaf in leaves:
        for shard in leaf.addressable_shards:
            if shard.replica_id == 0:
                pieces.setdefault(shard.device, []).append(shard.data)
    return [(local, jax.tree.unflatten(tree, each)) for each in pieces.values()]


def _owned(placement: Placement, table: TableConfig, ids: jax.Array) -> jax.Array:
    """The ids that this device owns; padding for the others."""
    if table.sharding != "row_wise":
        return ids
    owner = owner_of(*hash_words(ids), placement.shards)
    mine = owner == jax.lax.axis_index(placement.axes)
    return jnp.where(mine[:, None], ids, padding((1,)))


class _Shared:
    """The ids and weights of one call, as shard_map takes them."""

    def __init__(
        self, tables: Tables, ids: Mapping[str, Any], weights: Mapping[str, Any]
    ):
        self.placement = placement_of(tables)
        self._configs = {name: tables.config_of(name) for name in ids}
        names = {config.name for config in self._configs.values()}
        self.used = [t for t in tables.tables.values() if t.name in names]
        self._inside = self.placement.is_inside()
        if self._inside:  # everything is this device's already
            self.ids, self.weights = dict(ids), dict(weights)
            self.shares: dict[str, Share] = {}
        else:
            self.shares, self.ids = _inputs.shares_of(
                self.placement, self._configs, ids
            )
            self.weights = {
                name: _inputs.share_numbers(self.placement, self.shares[name], x)
                for name, x in weights.items()
            }

    @property
    def ids_specs(self) -> dict[str, Any]:
        split = self.placement.split
        return {name: share.ids_spec(split) for name, share in self.shares.items()}

    @property
    def per_id_specs(self) -> dict[str, Any]:
        split = self.placement.split
        return {name: share.per_id_spec(split) for name, share in self.shares.items()}

    @property
    def weights_specs(self) -> dict[str, Any]:
        return {k: v for k, v in self.per_id_specs.items() if k in self.weights}

    def local(self, ids: Mapping[str, Any], weights: Mapping[str, Any]) -> Inputs:
        """The features as this device looks them up."""
        inputs = []
        for name, config in self._configs.items():
            mine, factor = ids[name], weights.get(name)
            if not self._inside:
                share = self.shares[name]
                mine = _inputs.local_ids(self.placement, share, ids[name])
                if factor is not None:
                    factor = _inputs.local_numbers(
                        self.placement, share, ids[name], factor
                    )
            inputs.append(prepare(config, name, mine, factor))
        return inputs

    def whole(self, offsets: jax.Array | None, per_id: jax.Array) -> jax.Array:
        """One number an id, as it leaves shard_map."""
        if self._inside:
            return per_id
        return _inputs.global_numbers(self.placement, offsets, per_id)

    def restored(self, name: str, per_id: jax.Array) -> jax.Array:
        """One number an id in the shape of the ids."""
        if self._inside:
            return per_id
        return _inputs.restored(self.shares[name], per_id)

    def rows(self, rows: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """The rows without what was padded."""
        if self._inside:
            return dict(rows)
        result = {}
        for name, each in rows.items():
            share = self.shares[name]
            each = each if each.shape[0] == share.batch else each[: share.batch]
            scalar = share.jagged is None and not share.given_shape
            result[name] = each[0] if scalar else each
        return result


def _paired(
    tables: Tables, residual: Any, d_rows: Any
) -> tuple[list[ShardedResidual], list[dict[str, jax.Array]], list[TableConfig]]:
    """Residuals and gradients that fit them, and the tables they belong to."""
    many = isinstance(residual, (list, tuple))
    if many != isinstance(d_rows, (list, tuple)) or (
        many and len(residual) != len(d_rows)
    ):
        raise ValueError(
            "residual and d_rows must be one of each, or two lists of equal length"
        )
    residuals = list(residual) if many else [residual]
    gradients = list(d_rows) if many else [d_rows]
    names = set()
    placement = placement_of(tables)
    for n, (one, d) in enumerate(zip(residuals, gradients, strict=True)):
        if not isinstance(one, ShardedResidual):
            raise TypeError(
                "residual must be what lookup returned (rows, residual, state = "
                f"coll.lookup(...)), not {type(one).__name__}"
            )
        missing = set(d) ^ set(one.features)
        if missing:
            raise ValueError(
                f"d_rows must have the features of the lookup; {sorted(missing)} are "
                "in one of them only. Pass zeros for a feature without a gradient."
            )
        names |= {r.layout.table for r in one.features.values()}
        if not placement.is_inside():
            gradients[n] = {
                name: _padded_gradient(placement, one.features[name], d[name])
                for name in one.features
            }
    used = [t for name, t in tables.tables.items() if name in names]
    return residuals, gradients, used


def _padded_gradient(
    placement: Placement, residual: FeatureResidual, gradient: Any
) -> jax.Array:
    """A gradient with as many rows as the devices looked up."""
    gradient = jnp.asarray(gradient)
    stacked = residual.slots.ndim - 1
    rows = residual.layout.rows_shape[0] * placement.shards
    if gradient.ndim == stacked + 1:  # of a single id
        gradient = jnp.expand_dims(gradient, stacked)
    missing = rows - gradient.shape[stacked]
    if missing <= 0:
        return gradient  # a wrong shape is refused when it is joined
    widths = [(0, 0)] * gradient.ndim
    widths[stacked] = (0, missing)
    return jnp.pad(gradient, widths)


def _joined(tables: Tables, residuals: Sequence[ShardedResidual], gradients: Any):
    return [
        join_gradient(each, gradients[n][name], tables.config_of(name).dim)
        for n, one in enumerate(residuals)
        for name, each in one.features.items()
    ]


def _stacked(residual: ShardedResidual) -> int:
    """Leading axes that lax.scan has added."""
    return next(iter(residual.features.values())).slots.ndim - 1


def _gradient_specs(placement: Placement, residuals: Any, gradients: Any) -> Any:
    residual_specs, gradient_specs = [], []
    for one, gradient in zip(residuals, gradients, strict=True):
        spec = PartitionSpec(*[None] * _stacked(one), placement.axes)
        residual_specs.append(spec)
        gradient_specs.append(dict.fromkeys(gradient, spec))
    return residual_specs, gradient_specs


def _slot_specs(placement: Placement, used: Sequence[TableConfig]) -> dict[str, Any]:
    return {t.name: placement.split if t.sharding == "row_wise" else _ALL for t in used}


def _specs(placement: Placement, used: Sequence[TableConfig]) -> dict[str, TableState]:
    return {t.name: placement.state_spec(t) for t in used}


def _of(state: Mapping[str, TableState], used: Sequence[TableConfig]) -> States:
    return {t.name: state[t.name] for t in used}


def _inputs_of(inputs: Inputs, tables: Sequence[TableConfig]) -> Inputs:
    names = {t.name for t in tables}
    return [x for x in inputs if x[0].table in names]
