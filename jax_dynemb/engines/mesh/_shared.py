# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The ids and weights of a call on their way into shard_map, and the rows back."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from jax_dynemb._spec import TableSpec
from jax_dynemb.engines.mesh import _inputs
from jax_dynemb.engines.mesh._inputs import LocalIds, Share
from jax_dynemb.engines.mesh._mesh_tables import MeshTables
from jax_dynemb.ops import (
    FeatureInput,
    FeatureLayout,
    TableState,
    add_to_counter,
    prepare,
)

Inputs = list[tuple[FeatureLayout, FeatureInput]]
T = TypeVar("T")


def inputs_of(inputs: Inputs, tables: Sequence[TableSpec]) -> Inputs:
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
        self, tables: MeshTables, ids: Mapping[str, Any], weights: Mapping[str, Any]
    ):
        self.placement = tables.here()
        _inputs.check_static(ids)
        # The order of the features: shard_map sorts the dicts that it hands on.
        self._configs = {name: tables.config_of(name) for name in ids}
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
            mine, factor = LocalIds(ids[name]), weights.get(name)
            if not self._inside:
                mine = _inputs.local_ids(self.placement, self.shares[name], ids[name])
            if factor is not None:
                factor = mine.numbers(factor)
            layout, given = prepare(config, name, mine.ids, factor)
            malformed = mine.malformed
            if self._inside and given.malformed is not None:
                malformed = jax.lax.psum(given.malformed, self.placement.axes)
            given = dataclasses.replace(given, malformed=malformed)
            stack = self.placement.stack_of(config.name)
            inputs.append((dataclasses.replace(layout, table=stack.name), given))
        return inputs

    def count_malformed(
        self, inputs: Inputs, states: Mapping[str, TableState]
    ) -> dict[str, TableState]:
        """The states after a training lookup, with the bags that were cut counted.

        The number is that of all devices. One shard of the table counts it, or each
        that holds a copy of the table's keys.
        """
        new = dict(states)
        for layout, given in inputs:
            if given.malformed is None:
                continue
            config = self._configs[layout.feature]
            stack = self.placement.stack_of(config.name)
            count = given.malformed[0]
            if stack.sharding == "row_wise":
                first = stack.owners(config.name)[0]
                here = jax.lax.axis_index(self.placement.axes) == first
                count = jnp.where(here, count, jnp.uint32(0))
            new[stack.name] = add_to_counter(
                new[stack.name], 0, "malformed_lengths", count
            )
        return new

    def whole(self, offsets: jax.Array | None, per_id: jax.Array) -> jax.Array:
        """One number an id, as it leaves shard_map."""
        if self._inside:
            return per_id
        return _inputs.global_numbers(self.placement, offsets, per_id)

    def restored(self, name: str, per_id: jax.Array) -> jax.Array:
        """One number an id in the shape of the ids."""
        if self._inside:
            return per_id
        return _inputs.restored(self.placement, self.shares[name], per_id)

    def in_order(self, values: Mapping[str, T]) -> OrderedDict[str, T]:
        """What is given by feature, in the order of the features."""
        return OrderedDict((name, values[name]) for name in self._configs)

    def rows(self, rows: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """The rows without what was padded."""
        if self._inside:
            return self.in_order(rows)
        result = OrderedDict()
        for name, share in self.shares.items():
            each = rows[name]
            if each.shape[0] != share.batch:
                each = self.placement.gathered(each)[: share.batch]
            scalar = share.jagged is None and not share.given_shape
            result[name] = each[0] if scalar else each
        return result
