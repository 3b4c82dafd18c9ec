# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Residuals and gradients on their way into shard_map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
from jax.sharding import PartitionSpec

from jax_dynemb._spec import TableSpec
from jax_dynemb.engines.mesh._batch import padded_gradient
from jax_dynemb.engines.mesh._mesh_tables import MeshTables
from jax_dynemb.engines.mesh._placement import Placement
from jax_dynemb.engines.mesh._residual import ShardedResidual
from jax_dynemb.engines.mesh.strategies import LookupGradients
from jax_dynemb.engines.shard import pair_lookups
from jax_dynemb.ops import FeatureGradient, FeatureResidual, join_gradient


def zip_lookups(
    tables: MeshTables, residual: Any, d_rows: Any
) -> tuple[list[ShardedResidual], list[dict[str, jax.Array]], set[str]]:
    """Pairs residuals with gradients that fit them, and lists their tables."""
    pairs = pair_lookups(ShardedResidual, residual, d_rows)
    residuals, gradients = [one for one, _ in pairs], [dict(d) for _, d in pairs]
    names = set()
    placement = tables.here()
    for n, (one, d) in enumerate(pairs):
        names |= {tables.config_of(feature).name for feature in one.features}
        if not placement.is_inside():
            gradients[n] = {
                name: padded_gradient(placement, each.layout, stacked(each), d[name])
                for name, each in one.features.items()
            }
    return residuals, gradients, names


def flat_gradients(
    tables: MeshTables, residuals: Sequence[ShardedResidual], gradients: Any
) -> list[dict[str, FeatureGradient]]:
    """Returns what one device has of them, by lookup and by feature."""
    joined = len(residuals) > 1
    lookups = []
    for one, given in zip(residuals, gradients, strict=True):
        features = {}
        for name, each in one.features.items():
            config = tables.config_of(name)
            features[name] = join_gradient(
                each, given[name], config.dim, config.max_gradient, joined
            )
        lookups.append(features)
    return lookups


def of_strategy(
    name: str,
    tables: Sequence[TableSpec],
    residuals: Sequence[ShardedResidual],
    gradients: Sequence[Mapping[str, FeatureGradient]],
) -> list[LookupGradients]:
    """Selects the gradients of the tables that are sharded in one way.

    Args:
      name: of the strategy.
      tables: those of the update that have it.
      residuals: of all lookups.
      gradients: of them, see ``flat_gradients``.
    """
    names, result = {table.name for table in tables}, []
    for one, features in zip(residuals, gradients, strict=True):
        mine = [n for n, f in features.items() if f.layout.table in names]
        if mine:
            kept = [one.features[n] for n in mine], [features[n] for n in mine]
            result.append(LookupGradients(*kept, one.kept.get(name)))
    return result


def stacked_axes(residual: ShardedResidual) -> int:
    """Counts the leading axes that lax.scan has added."""
    return stacked(next(iter(residual.features.values())))


def stacked(residual: FeatureResidual) -> int:
    """Counts the leading axes that lax.scan has added to one feature."""
    return residual.slots.ndim - 1


def specs_of(
    placement: Placement, residuals: Sequence[ShardedResidual], gradients: Any
) -> tuple[list[PartitionSpec], list[dict[str, PartitionSpec]]]:
    """Returns the specs of residuals and gradients; axes of lax.scan are not split."""
    residual_specs, gradient_specs = [], []
    for one, gradient in zip(residuals, gradients, strict=True):
        spec = PartitionSpec(*[None] * stacked_axes(one), placement.axes)
        residual_specs.append(spec)
        gradient_specs.append(dict.fromkeys(gradient, spec))
    return residual_specs, gradient_specs
