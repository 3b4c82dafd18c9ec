# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The batch of a call together with the arrays of hash tables that it looks up."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jax_dynemb._spec import TableSpec
from jax_dynemb.engines._given import Given
from jax_dynemb.engines.mesh._batch import BatchLayout, Inputs, MeshBatch
from jax_dynemb.engines.mesh._mesh_tables import MeshTables
from jax_dynemb.ops import TableState, add_to_counter


def inputs_of(inputs: Inputs, tables: Sequence[TableSpec]) -> Inputs:
    """Selects the features of some tables."""
    names = {t.name for t in tables}
    return [x for x in inputs if x[0].table in names]


class StackBatch(MeshBatch):
    """Holds the batch of one call on hash tables.

    Attributes:
      names: of the tables that are looked up.
      used: their arrays.
    """

    def __init__(
        self,
        tables: MeshTables,
        ids: Mapping[str, Any],
        weights: Mapping[str, Any],
        given: Given | None = None,
    ):
        configs = {name: tables.config_of(name) for name in ids}
        super().__init__(tables.here(), configs, ids, weights, given)
        self.names = {config.name for config in self.configs.values()}
        self.used = self.placement.stacks_of(self.names)


def local_inputs(
    layout: BatchLayout,
    ids: Mapping[str, Any],
    weights: Mapping[str, Any],
    own: Given | None = None,
) -> Inputs:
    """Prepares the features that this device looks up, by the names of arrays."""
    stack_of = layout.placement.stack_of
    return [
        (dataclasses.replace(feature, table=stack_of(feature.table).name), given)
        for feature, given in layout.local(ids, weights, own)
    ]


def count_malformed(
    layout: BatchLayout, inputs: Inputs, states: Mapping[str, TableState]
) -> dict[str, TableState]:
    """Counts the bags that a training lookup had to cut.

    The number is that of all devices. One shard of the table counts it, or each
    that holds a copy of the table's keys.
    """
    new, configs, placement = dict(states), dict(layout.configs), layout.placement
    for feature, given in inputs:
        if given.malformed is None:
            continue
        config = configs[feature.feature]
        stack = placement.stack_of(config.name)
        count = given.malformed[0]
        if stack.sharding == "row_wise":
            first = stack.owners(config.name)[0]
            here = jax.lax.axis_index(placement.axes) == first
            count = jnp.where(here, count, jnp.uint32(0))
        new[stack.name] = add_to_counter(new[stack.name], 0, "malformed_lengths", count)
    return new
