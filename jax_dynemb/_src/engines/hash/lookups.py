# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Lookups of hash tables: what one device does with its ids, and a layout runs."""

from __future__ import annotations

import dataclasses
import functools
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from jax_dynemb._src import ops
from jax_dynemb._src.engines import shard
from jax_dynemb._src.engines.flags import TOUCHING, TRAINING, LookupFlags
from jax_dynemb._src.engines.hash.hash_tables import (
    HashTables,
    States,
    restore_untouched,
    select_member,
)
from jax_dynemb._src.engines.hash.layouts import (
    Inputs,
    Layout,
    OneDevice,
    Stack,
    states_of,
)
from jax_dynemb._src.engines.hash.packed_ids import PackedIds, pack
from jax_dynemb._src.engines.hash.strategies import by_strategy
from jax_dynemb._src.engines.score_inputs import ScoreInputs
from jax_dynemb._src.ops import (
    FeatureInput,
    Residual,
    Stamps,
    halved_sketches,
    one_row_each,
    prepare,
    stamps_of,
)
from jax_dynemb._src.spec import TableSpec

_ALL = PartitionSpec()


class Lookups(HashTables):
    """Looks rows up, for training and for serving; see ``LookupEngine``."""

    def route(self, ids: Mapping[str, Any], weights: Mapping[str, Any]) -> Any:
        """Returns by strategy what it has sent."""
        layout = self.layout.here()
        if isinstance(layout, OneDevice):
            return None
        batch = layout.batch(self.catalog.by_feature, ids, weights)
        static, used = batch.layout, layout.stacks_of(batch.names)

        def body(ids, weights):
            inputs = _named_by_stack(layout, static.local(ids, weights))
            return {
                name: strategy.route(layout, mine, own)
                for name, strategy, mine, own in by_strategy(
                    layout, _local(used), inputs
                )
            }

        specs = batch.ids_specs, batch.weights_specs
        return layout.mapped(body, specs, layout.split)(batch.ids, batch.weights)

    def pack(self, ids: Mapping[str, Any]) -> tuple[dict[str, Any], PackedIds | None]:
        layout = self.layout.here()
        if isinstance(layout, OneDevice):
            return OrderedDict(ids), None
        return pack(self.catalog, layout, ids)

    def lookup(
        self,
        state: States,
        ids: Mapping[str, Any],
        weights: Mapping[str, Any],
        score_inputs: ScoreInputs,
        sent: Any = None,
        flags: LookupFlags = TRAINING,
    ) -> tuple[dict[str, jax.Array], Residual, States]:
        layout = self.layout.here()
        batch = layout.batch(self.catalog.by_feature, ids, weights, score_inputs)
        static, names = batch.layout, batch.names
        used = layout.stacks_of(names)

        def body(state, ids, weights, score_inputs, sent):
            inputs = _named_by_stack(layout, static.local(ids, weights, score_inputs))
            scores = {
                s.name: select_member(layout, s, score_inputs.tables) for s in used
            }
            tables, rows, features, kept = [flags.of(s.local) for s in used], {}, {}, {}
            new, stamps = dict(state), None
            if any([table.admission is not None for table in tables]):
                new |= halved_sketches(tables, state)
            for name, strategy, mine, own in by_strategy(layout, tables, inputs):
                one = strategy.lookup(layout, mine, own, new, scores, sent.get(name))
                rows |= one.rows
                features |= one.features
                new, stamps = new | one.states, one.stamps
                if one.kept is not None:
                    kept[name] = one.kept
            if any(
                [feature_input.malformed is not None for _, feature_input in inputs]
            ):
                new = _with_malformed(layout, used, inputs, new)
            new = restore_untouched(layout, used, names, state, new)
            shaped, features = _in_order(inputs, rows, features)
            return shaped, Residual(features, stamps or _stamps(used, new), kept), new

        specs, split = layout.state_specs(used), layout.split
        run = layout.mapped(
            body,
            (
                specs,
                batch.ids_specs,
                batch.weights_specs,
                batch.score_specs,
                split,
            ),
            (dict.fromkeys(ids, split), split, specs),
        )
        rows, residual, new = run(
            states_of(state, used),
            batch.ids,
            batch.weights,
            batch.score_inputs,
            sent or {},
        )
        return batch.rows(rows), residual, dict(state) | new

    def find(
        self, state: States, ids: Mapping[str, Any], weights: Mapping[str, Any]
    ) -> tuple[dict[str, jax.Array], dict[str, jax.Array], States]:
        layout = self.layout.here()
        batch = layout.batch(self.catalog.by_feature, ids, weights)
        static, used = batch.layout, layout.stacks_of(batch.names)

        def body(state, ids, weights):
            inputs = _named_by_stack(layout, static.local(ids, weights))
            rows, found, new = find_here(layout, _local(used), inputs, state)
            shaped, flags = {}, {}
            for each, feature_input in inputs:
                name, own = each.feature, rows[each.feature]
                shaped[name] = own.reshape(*each.rows_shape, own.shape[-1])
                flag = each.shaped_as_given(found[name])
                flags[name] = static.whole(feature_input.offsets, flag)
            return shaped, flags, new

        specs = layout.state_specs(used)
        run = layout.mapped(
            body,
            (specs, batch.ids_specs, batch.weights_specs),
            (dict.fromkeys(ids, layout.split), batch.per_id_specs, specs),
        )
        rows, found, new = run(states_of(state, used), batch.ids, batch.weights)
        flags = batch.in_order(found).items()
        found = OrderedDict((n, batch.restored(n, x).astype(bool)) for n, x in flags)
        return batch.rows(rows), found, dict(state) | new

    def touch(
        self,
        state: States,
        ids: Mapping[str, Any],
        score_inputs: ScoreInputs,
        flags: LookupFlags = TOUCHING,
    ) -> States:
        layout = self.layout.here()
        batch = layout.batch(self.catalog.by_feature, ids, {}, score_inputs)
        static, names = batch.layout, batch.names
        used = layout.stacks_of(names)

        def body(state, ids, score_inputs):
            inputs = _named_by_stack(layout, static.local(ids, {}, score_inputs))
            numbers = {
                s.name: select_member(layout, s, score_inputs.tables) for s in used
            }
            local, new = [flags.of(s.local) for s in used], dict(state)
            for _, strategy, mine, own in by_strategy(layout, local, inputs):
                new |= strategy.touch(layout, mine, own, new, numbers)
            new = shard.touched(new, state)
            return restore_untouched(layout, used, names, state, new)

        specs = layout.state_specs(used)
        in_specs = (specs, batch.ids_specs, batch.score_specs)
        run = layout.mapped(body, in_specs, specs)
        return dict(state) | run(states_of(state, used), batch.ids, batch.score_inputs)

    def prefetch(self, state: States, ids: Mapping[str, Any]) -> States:
        """Brings rows of coming ids into frames. Every device takes its own ids."""
        coming, flat = self._coming(ids)
        if not flat:
            return dict(state)
        layout, used = coming.layout, coming.used

        def body(state, flat):
            inputs = coming.inputs(state, flat)
            return state | ops.prefetch(_local(used), state, inputs)

        specs = layout.state_specs(used)
        run = layout.mapped(body, (specs, dict.fromkeys(flat, _ALL)), specs)
        return dict(state) | run(states_of(state, used), flat)

    def begin_prefetch(
        self, state: States, ids: Mapping[str, Any], passed: Sequence[jax.Array]
    ) -> tuple[States, dict[str, ops.Moves], list[jax.Array]]:
        """Begins a prefetch beside what reads ``passed``; see ``end_prefetch``.

        Args:
          state: of tables, which nothing may read before the end.
          ids: of coming batches, by feature.
          passed: arrays; what reads those that are returned comes after the begin.

        Returns:
          The state, what ``end_prefetch`` takes, and the passed arrays.
        """
        coming, flat = self._coming(ids)
        if not flat:
            return dict(state), {}, list(passed)
        layout, used = coming.layout, coming.used

        def body(state, flat, passed):
            inputs = coming.inputs(state, flat)
            new, moves, arrays = ops.begin_prefetch(_local(used), state, inputs, passed)
            return state | new, moves, arrays

        specs, split = layout.state_specs(used), layout.split
        arrays = _specs_of(layout, passed)
        in_specs = (specs, dict.fromkeys(flat, _ALL), arrays)
        out_specs = (specs, {stack.name: split for stack in used}, arrays)
        run = layout.mapped(body, in_specs, out_specs)
        new, moves, results = run(states_of(state, used), flat, list(passed))
        return dict(state) | new, moves, results

    def end_prefetch(
        self,
        state: States,
        moves: Mapping[str, ops.Moves],
        passed: Sequence[jax.Array],
    ) -> tuple[States, list[jax.Array]]:
        """Waits for a prefetch, behind what makes ``passed``."""
        if not moves:
            return dict(state), list(passed)
        layout = self.layout.here()
        used = [stack for stack in layout.stacks if stack.name in moves]

        def body(state, moves, passed):
            new, arrays = ops.end_promotion(_local(used), state, moves, passed)
            return state | new, arrays

        specs, arrays = layout.state_specs(used), _specs_of(layout, passed)
        in_specs = (specs, {stack.name: layout.split for stack in used}, arrays)
        run = layout.mapped(body, in_specs, (specs, arrays))
        new, results = run(states_of(state, used), dict(moves), list(passed))
        return dict(state) | new, results

    def _coming(self, ids: Mapping[str, Any]) -> tuple[_Coming, dict[str, jax.Array]]:
        """Returns what is static of coming ids, and the ids, by feature."""
        configs = self.catalog.by_feature
        far = {f: configs[f] for f in ids if configs[f].tier is not None}
        flat = {f: prepare(config, f, ids[f])[1].ids for f, config in far.items()}
        return _Coming(self.layout.here(), tuple(far.items())), flat

    def flush(self, state: States) -> States:
        layout = self.layout.here()
        used = [s for s in layout.stacks if s.local.tier is not None]
        if not used:
            return dict(state)

        def body(state):
            return ops.flush(_local(used), state)

        specs = layout.state_specs(used)
        run = layout.mapped(body, (specs,), specs)
        return dict(state) | run(states_of(state, used))


@dataclasses.dataclass(frozen=True)
class _Coming:
    """Describes the features of a coming batch that look up tables with tiers.

    It holds no array, since a program is kept by what its function has captured.
    """

    layout: Layout
    far: tuple[tuple[str, Any], ...]  # features and their tables

    @functools.cached_property
    def used(self) -> list[Stack]:
        """Lists the arrays that have a part in it."""
        return self.layout.stacks_of({config.name for _, config in self.far})

    def inputs(self, state: States, flat: Mapping[str, jax.Array]) -> Inputs:
        """Prepares what this device owns of the ids."""
        inputs, tables = [], dict(self.far)
        for feature, each in flat.items():
            stack = self.layout.stack_of(tables[feature].name)
            mine = self.layout.my_ids(stack, tables[feature], each)
            where = one_row_each(feature, stack.name, each.shape[0], "no_rows")
            inputs.append((where, FeatureInput(mine, None, None)))
        return self.layout.copied(_local(self.used), state, inputs)


def _specs_of(layout: Layout, arrays: Sequence[jax.Array]) -> list[Any]:
    """Splits arrays as rows and their gradients are, where the devices can."""
    shards = layout.shards
    return [
        layout.split if x.ndim and x.shape[0] % shards == 0 else _ALL for x in arrays
    ]


def find_here(
    layout: Layout, tables: Sequence[TableSpec], inputs: Inputs, state: States
) -> tuple[dict[str, jax.Array], dict[str, jax.Array], States]:
    """Looks up without insertion, by each table's strategy."""
    rows, found, new = {}, {}, dict(state)
    for _, strategy, mine, own in by_strategy(layout, tables, inputs):
        result = strategy.find(layout, mine, own, new)
        rows |= result.rows
        found |= result.found
        new |= result.states
    return rows, found, new


def _local(used: Sequence[Stack]) -> list[TableSpec]:
    return [stack.local for stack in used]


def _named_by_stack(layout: Layout, inputs: Inputs) -> Inputs:
    """Names the tables of features as kernels know them."""
    named = []
    for feature, feature_input in inputs:
        name = layout.stack_of(feature.table).name
        if name != feature.table:
            feature = dataclasses.replace(feature, table=name)
        named.append((feature, feature_input))
    return named


def _in_order(
    inputs: Inputs, rows: Mapping[str, jax.Array], features: Mapping[str, Any]
) -> tuple[dict[str, jax.Array], dict[str, Any]]:
    """Returns rows in the shapes of a call and residuals, in the order of features."""
    shaped, ordered = {}, OrderedDict()
    for layout, _ in inputs:
        name, own = layout.feature, rows[layout.feature]
        # There may be no rows, so the shape has no -1.
        shaped[name] = own.reshape(*layout.rows_shape, own.shape[-1])
        ordered[name] = features[name]
    return shaped, ordered


def _with_malformed(
    layout: Layout, used: Sequence[Stack], inputs: Inputs, states: States
) -> States:
    """Counts the bags that a training lookup had to cut.

    The number is that of all devices. One shard of the table counts it, or each that
    holds a copy of the table's keys.
    """
    cut = []
    for feature, feature_input in inputs:
        if feature_input.malformed is None:
            continue
        stack, count = layout.stack(feature.table), feature_input.malformed
        if stack.sharding == "row_wise":
            first = stack.block_of_feature(feature.feature) * stack.width
            here = jax.lax.axis_index(layout.axes) == first
            count = jnp.where(here, count, jnp.uint32(0))
        cut.append((stack.name, count))
    return states | ops.count_malformed(_local(used), states, cut)


def _stamps(used: Sequence[Stack], states: States) -> Stamps:
    """Reads from the states the stamps that kernels have left there."""
    by_name: dict[str, list[Stack]] = {}
    for stack in used:
        by_name.setdefault(stack.state_name, []).append(stack)
    rows = tuple(
        stamps_of(states[name].counters, [s.local.first_row for s in stacks])
        for name, stacks in by_name.items()
    )
    names = (tuple(s.name for s in stacks) for stacks in by_name.values())
    return Stamps(rows, tuple(names))
