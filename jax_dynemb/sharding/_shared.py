# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The ids and weights of a call on their way into shard_map, and the rows back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax

from jax_dynemb.config import TableConfig
from jax_dynemb.ops._layout import FeatureInput, FeatureLayout, prepare
from jax_dynemb.sharding import _inputs
from jax_dynemb.sharding._inputs import Share
from jax_dynemb.sharding._placement import placement_of

if TYPE_CHECKING:
    from jax_dynemb.table._declared import Declared as Tables

Inputs = list[tuple[FeatureLayout, FeatureInput]]


def inputs_of(inputs: Inputs, tables: Sequence[TableConfig]) -> Inputs:
    """The features of some tables."""
    names = {t.name for t in tables}
    return [x for x in inputs if x[0].table in names]


class Shared:
    """The ids and weights of one call, as shard_map takes them.

    Attributes:
      placement: of the collection.
      names: of the tables that are looked up.
      used: their arrays.
    """

    def __init__(
        self, tables: Tables, ids: Mapping[str, Any], weights: Mapping[str, Any]
    ):
        self.placement = placement_of(tables)
        # In the order that a residual has when it comes back: it is a pytree.
        self._configs = {name: tables.config_of(name) for name in sorted(ids)}
        self.names = {config.name for config in self._configs.values()}
        self.used = self.placement.stacks_of(self.names)
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
            layout, given = prepare(config, name, mine, factor)
            stack = self.placement.stack_of(config.name)
            inputs.append((dataclasses.replace(layout, table=stack.name), given))
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
