# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Updates of tables on several hosts, as one device runs them inside shard_map.

A host sums the gradients of each distinct id over its devices, and one sum crosses. If
the lookup exchanged sums of bags, the gradient of a bag crosses once for each host.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jax_dynemb._src.engines.hash.exchange import Route, live_sums
from jax_dynemb._src.engines.hash.layouts import Placement
from jax_dynemb._src.engines.hash.links import Links
from jax_dynemb._src.engines.hash.strategies import row_wise
from jax_dynemb._src.engines.hash.strategies.by_host.host_bags import HostBags
from jax_dynemb._src.engines.hash.strategies.by_host.host_batch import (
    HostBatch,
    make_host_batch,
)
from jax_dynemb._src.engines.hash.strategies.by_host.host_residual import HostResidual
from jax_dynemb._src.engines.hash.strategies.by_host.rank_order import in_rank_order
from jax_dynemb._src.engines.hash.strategies.row_wise.exchange_residual import (
    ExchangeResidual,
)
from jax_dynemb._src.engines.hash.strategies.row_wise.update_rounds import numbered
from jax_dynemb._src.engines.hash.strategies.strategy import (
    LookupGradients,
    States,
    Update,
)
from jax_dynemb._src.ops import (
    FeatureGradient,
    FeatureInput,
    FeatureResidual,
    TableState,
    sum_rows,
)
from jax_dynemb._src.spec import TableSpec


def apply_gradients(
    placement: Placement,
    tables: Sequence[TableSpec],
    lookups: Sequence[LookupGradients],
    states: States,
    update: Update,
    all_fits: bool,
) -> dict[str, TableState]:
    """See ``Strategy``."""
    is_alone = len(lookups) == 1 and not lookups[0].stacked and not all_fits
    new, rest = dict(states), list(tables)
    below = [_gathered(placement, tables, one) for one in lookups]
    if is_alone:
        names = set(_bags_of(below[0]))
        pooled = [table for table in tables if table.name in names]
        rest = [table for table in tables if table.name not in names]
        if pooled:
            new = update(new, _owner_gradients(placement, pooled, below[0]))
    below = [_without_hosts(placement, one, is_alone) for one in below]
    if rest:
        new = row_wise.apply_gradients(placement, rest, below, new, update, all_fits)
    return new


def _bags_of(lookup: LookupGradients) -> dict[str, list[FeatureResidual]]:
    return lookup.kept.bags if isinstance(lookup.kept, HostResidual) else {}


def _owner_gradients(
    placement: Placement, tables: Sequence[TableSpec], lookup: LookupGradients
) -> list[FeatureGradient]:
    """Brings gradients of bags to the owners that have pooled them."""
    inputs = [(r.layout, FeatureInput(r.ids, None, None)) for r in lookup.residuals]
    names = {table.name for table in tables}
    features = [each for each in lookup.features if each.layout.table in names]
    bags = HostBags.of(placement, tables, inputs)
    return bags.owner_gradients(features, _bags_of(lookup))


def _without_hosts(
    placement: Placement, lookup: LookupGradients, is_alone: bool
) -> LookupGradients:
    """Returns what ``row_wise`` takes: without bags, or with them in its order."""
    kept, bags = lookup.kept, _bags_of(lookup)
    if not isinstance(kept, HostResidual):
        return lookup
    if not is_alone and bags:
        hosts, devices, _ = placement.hosts
        ordered = {
            name: [in_rank_order(each, hosts, devices) for each in some]
            for name, some in bags.items()
        }
        below = kept.below or ExchangeResidual(None, None, None, None, {})
        below = dataclasses.replace(below, bags=below.bags | ordered)
        return dataclasses.replace(lookup, kept=below)
    pairs = [
        (residual, feature)
        for residual, feature in zip(lookup.residuals, lookup.features, strict=True)
        if residual.layout.table not in bags
    ]
    residuals, features = [r for r, _ in pairs], [f for _, f in pairs]
    return LookupGradients(residuals, features, kept.below)


def _gathered(
    placement: Placement, tables: Sequence[TableSpec], lookup: LookupGradients
) -> LookupGradients:
    """Replaces gradients of a device's features by those of its gateway's ids.

    Args:
      placement: of the collection.
      tables: those of the update, as a shard sees them.
      lookup: gradients of this device.
    """
    kept = lookup.kept
    if not isinstance(kept, HostResidual) or not kept.features:
        return lookup
    links = placement.host_links
    names = {each.layout.table for each in kept.features}
    pairs = list(zip(lookup.residuals, lookup.features, strict=True))
    mine = [pair for pair in pairs if pair[0].layout.table in names]
    others = [pair for pair in pairs if pair[0].layout.table not in names]
    used = [table for table in tables if table.name in names]
    sums = _sums_of_lookups(placement, links, used, mine, kept, lookup.stacked)
    is_joined = any(feature.joined for feature in lookup.features)
    features = [
        _gradient_of(residual, each, is_joined)
        for residual, each in zip(kept.features, sums, strict=True)
    ]
    return LookupGradients(
        [*kept.features, *(residual for residual, _ in others)],
        [*features, *(feature for _, feature in others)],
        kept,
    )


def _gradient_of(
    residual: FeatureResidual, sums: jax.Array, is_joined: bool
) -> FeatureGradient:
    """Joins flat gradients, of all lookups that ``lax.scan`` has stacked."""
    ids, slots = residual.ids.reshape(-1, 2), residual.slots.reshape(-1)
    shape = (ids.shape[0],)
    layout = dataclasses.replace(
        residual.layout, given_shape=shape, ids_shape=shape, rows_shape=shape
    )
    return FeatureGradient(layout, sums, ids, slots, None, None, None, joined=is_joined)


def _sums_of_lookups(
    placement: Placement,
    links: Links,
    tables: Sequence[TableSpec],
    pairs: Sequence[tuple[FeatureResidual, FeatureGradient]],
    kept: HostResidual,
    stacked: int,
) -> list[jax.Array]:
    """Sums the gradients of one lookup, or of each that ``lax.scan`` has stacked.

    Returns:
      Of each table, float32[places, dim], those of all lookups one after the other.
    """
    residuals = [residual for residual, _ in pairs]

    def body(one: Any) -> list[jax.Array]:
        residuals, gradients, route, fits = one
        features = [
            FeatureGradient(r.layout, g, r.ids, r.slots, r.offsets, r.weights, r.scale)
            for r, g in zip(residuals, gradients, strict=True)
        ]
        inputs = [(r.layout, FeatureInput(r.ids, None, None)) for r in residuals]
        host = make_host_batch(placement, links, tables, inputs)
        return _sums(host, features, route, fits[0])

    if not stacked:
        return body((residuals, [f.gradients for _, f in pairs], kept.route, kept.fits))
    count = math.prod(residuals[0].slots.shape[:stacked])
    apart = [
        # Bags of any length have one more in each lookup (``join_gradient``).
        f.gradients.reshape(count, -1, f.gradients.shape[-1])[:, : r.layout.num_bags]
        for r, f in pairs
    ]
    flat = jax.tree.map(
        lambda x: x.reshape(count, *x.shape[stacked:]),
        (residuals, kept.route, kept.fits),
    )
    sums = jax.lax.map(body, (flat[0], apart, *flat[1:]))
    return [each.reshape(-1, each.shape[-1]) for each in sums]


def _sums(
    host: HostBatch,
    features: Sequence[FeatureGradient],
    id_route: Route,
    fits: jax.Array,
) -> list[jax.Array]:
    """Sums this device's gradients of each id, and returns those of its gateway's."""
    batch, exchange = host.batch, host.exchange
    groups = host.places(id_route, fits).groups(exchange.capacities)
    by_name = {feature.layout.feature: feature for feature in features}
    ordered = [
        dataclasses.replace(by_name[layout.feature], layout=layout)
        for layout, _ in batch.inputs
    ]
    sources = numbered(batch, ordered, groups)
    wire = host.wire_of_gradients()
    own = sum_rows(exchange.tables, exchange.counts, sources, wire.views)
    live = live_sums(host.sent_range(id_route, fits))
    result = []
    for n, each in enumerate(wire.exchange(own, live)):
        sums = wire.part(n, each)
        if not exchange.always_fit:
            sums = jnp.where(fits, sums, wire.part(n, own[n]))
        result.append(sums.reshape(-1, sums.shape[-1]))
    return result
