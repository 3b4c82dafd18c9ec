# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Row-wise tables on several hosts: devices of a host exchange before all devices do.

Each step is that of ``row_wise`` with the ids that this device is the gateway of. So
an id that several devices of a host have crosses to another host once, and its row and
the sum of its gradients do so too. Features whose sums of bags travel take no part.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jax_dynemb._src.engines.hash.exchange import (
    Input,
    exchange_rows,
    finalize_pooling,
    rows_here,
    wire_dtype,
)
from jax_dynemb._src.engines.hash.layouts import Placement
from jax_dynemb._src.engines.hash.strategies import row_wise
from jax_dynemb._src.engines.hash.strategies.by_host.gradients import gathered_gradients
from jax_dynemb._src.engines.hash.strategies.by_host.host_batch import (
    GatheredIds,
    HostBatch,
    make_host_batch,
)
from jax_dynemb._src.engines.hash.strategies.by_host.host_residual import HostResidual
from jax_dynemb._src.engines.hash.strategies.local import for_update as for_update
from jax_dynemb._src.engines.hash.strategies.row_wise.split import with_rows
from jax_dynemb._src.engines.hash.strategies.strategy import (
    FindResult,
    LookupGradients,
    LookupResult,
    States,
    Update,
)
from jax_dynemb._src.ops import FeatureResidual, TableState, joined
from jax_dynemb._src.spec import TableSpec

ByFeature = Mapping[str, jax.Array]
Outputs = dict[str, tuple[jax.Array, jax.Array | None]]  # rows and factors of a mean


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class SentByHost:
    """Holds what ``route`` sent.

    Attributes:
      gathered: within the host; None: only sums of bags travel.
      sent: to owners, what ``row_wise.route`` returned.
    """

    gathered: GatheredIds | None
    sent: Any


@dataclasses.dataclass(frozen=True)
class _Split:
    """Splits a call: a host gathers the ids of some features.

    Attributes:
      host: those features; None: there are none.
      tables: of all features, as ``row_wise`` takes them.
      inputs: the other features.
    """

    host: HostBatch | None
    tables: list[TableSpec]
    inputs: list[Input]

    @classmethod
    def of(
        cls,
        placement: Placement,
        tables: Sequence[TableSpec],
        inputs: Sequence[Input],
        *,
        only_ids: bool = False,
    ) -> _Split:
        rows = list(tables) if only_ids else with_rows(placement, tables, inputs)
        if not rows:
            return cls(None, list(tables), list(inputs))
        names = {table.name for table in rows}
        mine = [one for one in inputs if one[0].table in names]
        below = [_on_the_wire(placement, t) if t in rows else t for t in tables]
        return cls(
            make_host_batch(placement, placement.host_links, rows, mine),
            below,
            [one for one in inputs if one[0].table not in names],
        )

    def gather(self, with_numbers: bool = True) -> GatheredIds | None:
        """Sends ids to their gateways."""
        return None if self.host is None else self.host.gather(with_numbers)

    def inputs_below(self, gathered: GatheredIds | None) -> list[Input]:
        """Returns what ``row_wise`` looks up."""
        if self.host is None or gathered is None:
            return self.inputs
        return [*self.host.inputs(gathered), *self.inputs]


def _on_the_wire(placement: Placement, table: TableSpec) -> TableSpec:
    """Describes a table whose rows go on to another device, one for each id."""
    dtype = wire_dtype(placement, table)
    return dataclasses.replace(table, dtype=dtype, pooling=None)


def route(
    placement: Placement, tables: Sequence[TableSpec], inputs: Sequence[Input]
) -> SentByHost:
    """See ``Strategy``."""
    split = _Split.of(placement, tables, inputs)
    gathered = split.gather()
    below = split.inputs_below(gathered)
    return SentByHost(gathered, row_wise.route(placement, split.tables, below))


def lookup(
    placement: Placement,
    tables: Sequence[TableSpec],
    inputs: Sequence[Input],
    states: States,
    scores: Mapping[str, jax.Array],
    sent: Any = None,
) -> LookupResult:
    """See ``Strategy``; it keeps ``HostResidual``."""
    split = _Split.of(placement, tables, inputs)
    gathered = split.gather() if sent is None else sent.gathered
    result = row_wise.lookup(
        placement,
        split.tables,
        split.inputs_below(gathered),
        states,
        scores,
        None if sent is None else sent.sent,
    )
    if split.host is None or gathered is None:
        return result
    outputs = _outputs(split.host, gathered, result.rows)
    rows, features = dict(result.rows), dict(result.features)
    standing = [features.pop(feature) for _, feature in split.host.standing]
    for layout, feature_input in inputs:
        if layout.feature not in outputs:
            continue
        rows[layout.feature], scale = outputs[layout.feature]
        features[layout.feature] = FeatureResidual(
            feature_input.ids,
            jnp.full(layout.num_ids, -1, jnp.int32),  # slots stay with the owners
            feature_input.offsets,
            feature_input.weights,
            scale,
            layout,
        )
    devices = split.host.exchange.shards
    kept = HostResidual(gathered.route, gathered.fits, standing, result.kept, devices)
    return LookupResult(rows, features, kept, result.states, result.stamps)


def find(
    placement: Placement,
    tables: Sequence[TableSpec],
    inputs: Sequence[Input],
    states: States,
) -> FindResult:
    """See ``Strategy``."""
    split = _Split.of(placement, tables, inputs)
    gathered = split.gather(with_numbers=False)
    below = split.inputs_below(gathered)
    result = row_wise.find(placement, split.tables, below, states)
    if split.host is None or gathered is None:
        return result
    outputs = _outputs(split.host, gathered, result.rows)
    rows = {name: row for name, (row, _) in outputs.items()}
    found = _found(split.host, gathered, result.found)
    return FindResult({**result.rows, **rows}, {**result.found, **found}, result.states)


def touch(
    placement: Placement,
    tables: Sequence[TableSpec],
    inputs: Sequence[Input],
    states: States,
    scores: Mapping[str, jax.Array],
) -> dict[str, TableState]:
    """See ``Strategy``."""
    split = _Split.of(placement, tables, inputs, only_ids=True)
    below = split.inputs_below(split.gather())
    return row_wise.touch(placement, split.tables, below, states, scores)


def apply_gradients(
    placement: Placement,
    tables: Sequence[TableSpec],
    lookups: Sequence[LookupGradients],
    states: States,
    update: Update,
    all_fits: bool,
) -> dict[str, TableState]:
    """See ``Strategy``."""
    links = placement.host_links
    below = [gathered_gradients(placement, links, tables, one) for one in lookups]
    return row_wise.apply_gradients(placement, tables, below, states, update, all_fits)


def _outputs(host: HostBatch, gathered: GatheredIds, rows: ByFeature) -> Outputs:
    """Returns rows and the factors of a mean, by feature.

    Args:
      host: the features.
      gathered: where their ids went.
      rows: of gateways, by feature that stands for its table.
    """
    exchange, wire, fits = host.exchange, host.wire(), gathered.fits[0]
    parts = {
        n: rows[feature].reshape(exchange.shards, exchange.capacities[n], -1)
        for n, (_, feature) in enumerate(host.standing)
    }
    owned = wire.filled({}, parts)
    sent = host.sent_range(gathered.route, fits)
    sums, _ = exchange_rows(host.batch, wire, owned, gathered.route, sent)
    if not exchange.always_fit:
        places = host.own_places(gathered.route, fits)
        own = rows_here(host.batch, wire, owned, places)
        pairs = zip(sums, own, strict=True)
        sums = [jnp.where(fits, there, here) for there, here in pairs]
    results = finalize_pooling(host.batch, sums)
    names = [layout.feature for layout, _ in host.batch.inputs]
    return dict(zip(names, results, strict=True))


def _found(
    host: HostBatch, gathered: GatheredIds, found: ByFeature
) -> dict[str, jax.Array]:
    """Returns by feature, uint8[ids], what gateways say of theirs."""
    exchange, fits = host.exchange, gathered.fits[0]
    flags = joined([found[feature] for _, feature in host.standing])
    own = exchange.of_shards(flags)
    (answers,) = exchange.links.all_to_all([own])
    answers = jnp.where(fits, answers, own)
    places = host.places(gathered.route, fits)
    return host.batch.by_feature(places.answers(answers, exchange.capacities, 0))
