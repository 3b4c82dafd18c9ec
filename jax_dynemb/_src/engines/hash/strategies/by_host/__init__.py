# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Row-wise tables on several hosts: devices of a host exchange before all devices do.

Each step is that of ``row_wise`` with the ids that this device is the gateway of. An
id that several devices of a host have crosses to another host once. Its row and the sum
of its gradients do so too. Where sums of bags travel, one of each host does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jax_dynemb._src.engines.hash.exchange import (
    Input,
    Owned,
    exchange_rows,
    finalize_pooling,
    rows_here,
)
from jax_dynemb._src.engines.hash.layouts import Placement
from jax_dynemb._src.engines.hash.strategies import row_wise
from jax_dynemb._src.engines.hash.strategies.by_host.gradients import (
    apply_gradients as apply_gradients,
)
from jax_dynemb._src.engines.hash.strategies.by_host.host_batch import (
    GatheredIds,
    HostBatch,
)
from jax_dynemb._src.engines.hash.strategies.by_host.host_residual import HostResidual
from jax_dynemb._src.engines.hash.strategies.by_host.split import Split
from jax_dynemb._src.engines.hash.strategies.local import for_update as for_update
from jax_dynemb._src.engines.hash.strategies.row_wise.lookup_rounds import scores_of
from jax_dynemb._src.engines.hash.strategies.strategy import (
    FindResult,
    LookupResult,
    States,
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
      sent: to owners, what ``row_wise.route`` returned; or None.
      bags: what ``HostBags.send`` returned.
    """

    gathered: GatheredIds | None
    sent: Any
    bags: list[jax.Array]


def route(
    placement: Placement, tables: Sequence[TableSpec], inputs: Sequence[Input]
) -> SentByHost:
    """See ``Strategy``."""
    split = Split.of(placement, tables, inputs)
    gathered, sent = split.gather(), None
    if split.tables:
        below = split.inputs_below(gathered)
        sent = row_wise.route(placement, split.tables, below)
    bags = [] if split.bags is None else split.bags.send()
    return SentByHost(gathered, sent, bags)


def lookup(
    placement: Placement,
    tables: Sequence[TableSpec],
    inputs: Sequence[Input],
    states: States,
    scores: Mapping[str, jax.Array],
    sent: Any = None,
) -> LookupResult:
    """See ``Strategy``; it keeps ``HostResidual``."""
    split = Split.of(placement, tables, inputs)
    sent = route(placement, tables, inputs) if sent is None else sent
    gathered: GatheredIds | None = sent.gathered
    result = LookupResult({}, {}, None, dict(states))
    if split.tables:
        result = row_wise.lookup(
            placement,
            split.tables,
            split.inputs_below(gathered),
            states,
            scores,
            sent.sent,
        )
    outputs, bags, new = {}, {}, dict(result.states)
    if split.bags is not None:
        numbers = scores_of(scores, split.bags.tables)
        outputs, bags, changed = split.bags.lookup(sent.bags, new, numbers)
        new |= changed
    rows, features, standing = dict(result.rows), dict(result.features), []
    if split.host is not None and gathered is not None:
        standing = [features.pop(feature) for _, feature in split.host.standing]
        outputs |= _outputs(split.host, gathered, result.rows)
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
    kept = HostResidual(
        gathered and gathered.route,
        gathered and gathered.fits,
        standing,
        result.kept,
        bags,
        placement.hosts.devices,
    )
    return LookupResult(rows, features, kept, new)


def find(
    placement: Placement,
    tables: Sequence[TableSpec],
    inputs: Sequence[Input],
    states: States,
) -> FindResult:
    """See ``Strategy``."""
    split = Split.of(placement, tables, inputs)
    rows, found, new = {}, {}, dict(states)
    gathered = split.gather(with_numbers=False)
    if split.tables:
        below = split.inputs_below(gathered)
        result = row_wise.find(placement, split.tables, below, states)
        rows |= result.rows
        found |= result.found
        new |= result.states
    if split.host is not None and gathered is not None:
        outputs = _outputs(split.host, gathered, rows)
        found |= _found(split.host, gathered, found)
        rows |= {name: row for name, (row, _) in outputs.items()}
    if split.bags is not None:
        pooled, flags, changed = split.bags.find(new)
        rows, found, new = rows | pooled, found | flags, new | changed
    return FindResult(rows, found, new)


def touch(
    placement: Placement,
    tables: Sequence[TableSpec],
    inputs: Sequence[Input],
    states: States,
    scores: Mapping[str, jax.Array],
) -> dict[str, TableState]:
    """See ``Strategy``."""
    split = Split.of(placement, tables, inputs, only_ids=True)
    below = split.inputs_below(split.gather())
    return row_wise.touch(placement, split.tables, below, states, scores)


def _outputs(host: HostBatch, gathered: GatheredIds, rows: ByFeature) -> Outputs:
    """Returns rows and the factors of a mean, by feature.

    Args:
      host: the features.
      gathered: where their ids went.
      rows: of gateways, by feature that stands for its table.
    """
    exchange, wire, fits = host.exchange, host.wire(), gathered.fits[0]
    pieces = zip(exchange.capacities, exchange.tables, host.standing, strict=True)
    owned = wire.filled(
        [
            rows[feature].reshape(exchange.shards, room, table.dim)
            for room, table, (_, feature) in pieces
        ]
    )
    sent = host.sent_range(gathered.route, fits)
    there = Owned(owned)
    sums = exchange_rows(host.batch, wire, there, gathered.route, sent).sums
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
