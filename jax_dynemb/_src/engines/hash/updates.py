# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Updates of hash tables, and gradients without an update."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from jax_dynemb._src import ops
from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.engines import shard
from jax_dynemb._src.engines.hash.hash_tables import (
    HashTables,
    States,
    restore_untouched,
    select_member,
)
from jax_dynemb._src.engines.hash.layouts import Layout, Stack, states_of
from jax_dynemb._src.engines.hash.lookups import find_here
from jax_dynemb._src.engines.hash.strategies import (
    LookupGradients,
    Update,
    by_strategy,
    check_kept,
    strategy_of,
)
from jax_dynemb._src.engines.shard import (
    RowGradients,
    check_hyper,
    check_table,
    pair_lookups,
    row_gradients,
    step_of,
    update_rows,
)
from jax_dynemb._src.ops import (
    FeatureGradient,
    Residual,
    check_residual,
    check_stamps,
    join_gradient,
    join_stamps,
)
from jax_dynemb._src.optim.interface import NoUpdate

_ALL = PartitionSpec()
Gradients = list[dict[str, Any]]
Joined = tuple[Residual, dict[str, FeatureGradient]]  # of one lookup


class Updates(HashTables):
    """Updates the rows that lookups touched; see ``LookupEngine``."""

    def apply_gradients(
        self,
        state: States,
        residual: Any,
        d_rows: Any,
        hyper: Mapping[str, Mapping[str, Any]],
    ) -> States:
        layout = self.layout.here()
        lookups, gradients, names = self._paired(layout, residual, d_rows)
        _check_stamps(layout, lookups, state, "apply_gradients")
        used = layout.stacks_of(names)
        numbers = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), dict(hyper))

        def body(state, lookups, gradients, numbers):
            features = self._joined(lookups, gradients)
            given = {s.name: _own_hyper(layout, s, state, numbers) for s in used}
            stamps = join_stamps([one.stamps for one in lookups])

            def update(states, features, stamps):
                names = {f.layout.table for f in features}
                mine = [
                    strategy_of(layout, s.local).for_update(
                        layout, s.local, state[s.state_name], given[s.name]
                    )
                    for s in used
                    if s.name in names
                ]
                return dict(states) | update_rows(mine, states, features, given, stamps)

            new = _apply(layout, used, features, state, Update(update, stamps))
            return restore_untouched(layout, used, names, state, new)

        specs = layout.state_specs(used)
        of_hyper = jax.tree.map(lambda _: _ALL, numbers)
        run = layout.mapped(
            body,
            (specs, *_specs_of(layout, lookups, gradients), of_hyper),
            specs,
            at_once=any(map(_runs_at_once, self.catalog.configs)),
        )
        return dict(state) | run(states_of(state, used), lookups, gradients, numbers)

    def reduce_gradients(
        self, state: States, residual: Any, d_rows: Any
    ) -> tuple[dict[str, RowGradients], States]:
        """Sums the gradients of each distinct row; on a mesh with room for any skew."""
        layout = self.layout.here()
        lookups, gradients, names = self._paired(layout, residual, d_rows)
        _check_stamps(layout, lookups, state, "reduce_gradients")
        used = layout.stacks_of(names)

        def body(state, lookups, gradients):
            features = self._joined(lookups, gradients)
            stamps = join_stamps([one.stamps for one in lookups])
            local = [s.local for s in used]
            result = {}

            def reduce(states, features, stamps):
                names = {f.layout.table for f in features}
                mine = [t for t in local if t.name in names]
                sums, new = ops.reduce(
                    mine, states, features, counts_step=False, stamps=stamps
                )
                result.update(row_gradients(features, sums))
                return dict(states) | new

            of_all = layout, used, features, state
            new = _apply(*of_all, Update(reduce, stamps), all_fits=True)
            return result, new

        specs = layout.state_specs(used)
        results = (layout.slot_specs(used), specs)
        run = layout.mapped(
            body, (specs, *_specs_of(layout, lookups, gradients)), results
        )
        reduced, new = run(states_of(state, used), lookups, gradients)
        return reduced, dict(state) | new

    def weight_gradients(
        self, state: States, residual: Any, d_rows: Mapping[str, Any]
    ) -> tuple[dict[str, jax.Array], States]:
        """Returns gradients with respect to the weights of a lookup.

        Of ``rows[b] = scale[b] * sum_i weights[i] * row[i]`` the derivative with
        respect to ``weights[i]`` is ``scale[b] * <d_rows[b], row[i]>``.
        """
        layout = self.layout.here()
        (one,), (gradients,), _ = self._paired(layout, residual, dict(d_rows))
        weighted = shard.weighted_features(one.features)
        used = layout.stacks_of([self.catalog.config_of(f).name for f in weighted])
        inside = layout.is_inside()

        def body(state, features, gradients):
            for each in features.values():
                check_residual(each)
            local = [shard.reading(s.local) for s in used]
            inputs = [shard.one_row_input(each) for each in features.values()]
            rows, _, new = find_here(layout, local, inputs, state)
            result = {}
            for name, each in features.items():
                limit = self.catalog.config_of(name).max_gradient
                per_id = shard.of_feature(each, gradients[name], rows[name], limit)
                if not inside:
                    per_id = layout.whole(each.offsets, per_id)
                result[name] = per_id
            return result, new

        split, specs = layout.split, layout.state_specs(used)
        per_id = {f: layout.per_id_spec(r.offsets) for f, r in weighted.items()}
        run = layout.mapped(
            body, (specs, split, dict.fromkeys(gradients, split)), (per_id, specs)
        )
        result, new = run(states_of(state, used), weighted, gradients)
        for name, each in weighted.items():
            if each.offsets is None:
                rows = jnp.shape(d_rows[name])[0]
                result[name] = layout.cut(result[name], rows)
        return OrderedDict((name, result[name]) for name in weighted), dict(state) | new

    def _paired(
        self, layout: Layout, residual: Any, d_rows: Any
    ) -> tuple[list[Residual], Gradients, set[str]]:
        """Pairs residuals with gradients that fit them, and lists their tables."""
        lookups, gradients, names = [], [], set()
        for one, given in pair_lookups(Residual, residual, d_rows):
            own = {}
            for feature, each in one.features.items():
                config = self.catalog.config_of(feature)
                check_table(config, each, layout.stack_of(config.name).name)
                own[feature] = layout.padded(
                    each.layout, _stacked(each), given[feature]
                )
                names.add(config.name)
            lookups.append(one)
            gradients.append(own)
        return lookups, gradients, names

    def _joined(
        self, lookups: Sequence[Residual], gradients: Gradients
    ) -> list[Joined]:
        """Puts what one device has of residuals and gradients together, by feature."""
        result, several = [], len(lookups) > 1
        for one, given in zip(lookups, gradients, strict=True):
            features = {}
            for name, each in one.features.items():
                config = self.catalog.config_of(name)
                features[name] = join_gradient(
                    each, given[name], config.dim, config.max_gradient, several
                )
            result.append((one, features))
        return result


def _runs_at_once(config: TableConfig) -> bool:
    """Tells whether an update is one program outside of jit on one device, too."""
    return config.tier is not None or not config.optimizer.kind


def _apply(
    layout: Layout,
    used: Sequence[Stack],
    lookups: Sequence[Joined],
    state: States,
    update: Update,
    all_fits: bool = False,
) -> States:
    """Brings gradients to the rows' owners, for each strategy those of its tables."""
    new = dict(state)
    for name, strategy, tables, _ in by_strategy(layout, [s.local for s in used]):
        names, own = {table.name for table in tables}, []
        for one, features in lookups:
            mine = [n for n, f in features.items() if f.layout.table in names]
            if mine:
                kept = one.kept.get(name)
                check_kept(layout, kept)
                pairs = [one.features[n] for n in mine], [features[n] for n in mine]
                own.append(LookupGradients(*pairs, kept))
        new = strategy.apply_gradients(layout, tables, own, new, update, all_fits)
    return new


def _own_hyper(
    layout: Layout,
    stack: Stack,
    states: States,
    given: Mapping[str, Mapping[str, jax.Array]],
) -> dict[str, jax.Array]:
    """Selects the hyper-parameters of the table that this device has, by name."""
    if isinstance(stack.local.optimizer, NoUpdate):
        return {}
    by_table = {t.name: dict(given.get(t.name, {})) for t in stack.tables}
    if len(by_table) == 1:
        return by_table[stack.tables[0].name]
    for table in stack.tables:
        if table.optimizer.kind:
            check_hyper(table, by_table[table.name])
    names = {name for numbers in by_table.values() for name in numbers}
    if names:
        step = step_of(states[stack.state_name])
        for table in stack.tables:  # one has its own where the others are given
            own = table.optimizer.hyper_parameters(step)
            own = {n: jnp.asarray(own[n], jnp.float32) for n in names & own.keys()}
            by_table[table.name] = own | by_table[table.name]
    return {
        name: select_member(layout, stack, {t: x[name] for t, x in by_table.items()})
        for name in sorted(names)
    }


def _check_stamps(
    layout: Layout, lookups: Sequence[Residual], state: States, call: str
) -> None:
    """Refuses concrete residuals of other tables; each device has its own stamp."""
    if layout.is_inside():
        return
    stamps = [one.stamps for one in lookups]
    names = {name for one in stamps for own in one.names for name in own}
    counters = {}
    for name in names:
        stack = layout.stack(name)
        counters[name] = layout.counters_of(stack, state[stack.state_name])
    check_stamps(stamps, counters, call)


def _stacked_axes(residual: Residual) -> int:
    """Counts the leading axes that lax.scan has added."""
    return _stacked(next(iter(residual.features.values())))


def _stacked(residual: Any) -> int:
    return residual.slots.ndim - 1


def _specs_of(
    layout: Layout, lookups: Sequence[Residual], gradients: Gradients
) -> tuple[list[Any], list[Any]]:
    """Returns the specs of residuals and gradients; axes of lax.scan are not split."""
    of_lookups = [layout.split_behind(_stacked_axes(one)) for one in lookups]
    of_gradients = [
        dict.fromkeys(given, spec)
        for given, spec in zip(gradients, of_lookups, strict=True)
    ]
    return of_lookups, of_gradients
