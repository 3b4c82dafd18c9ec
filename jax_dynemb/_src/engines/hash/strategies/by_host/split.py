# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Splits the features of a call by what a host does for them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from jax_dynemb._src.engines.hash.exchange import Input, wire_dtype
from jax_dynemb._src.engines.hash.layouts import Placement
from jax_dynemb._src.engines.hash.strategies.by_host.host_bags import HostBags
from jax_dynemb._src.engines.hash.strategies.by_host.host_batch import (
    GatheredIds,
    HostBatch,
    make_host_batch,
)
from jax_dynemb._src.engines.hash.strategies.row_wise.split import with_rows
from jax_dynemb._src.spec import TableSpec


@dataclasses.dataclass(frozen=True)
class Split:
    """Splits a call.

    Attributes:
      host: features whose rows travel, of which the host gathers the ids; or None.
      bags: features whose sums travel, which each host adds up; or None.
      tables: as ``row_wise`` takes them, those of ``host`` and of ``inputs``.
      inputs: features whose sums travel at once, of tables that share arrays.
    """

    host: HostBatch | None
    bags: HostBags | None
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
    ) -> Split:
        """Splits features; ``only_ids``: neither rows nor sums come back."""
        rows = list(tables) if only_ids else with_rows(placement, tables, inputs)
        sums = [t for t in tables if t not in rows]
        by_host = [t for t in sums if placement.stack(t.name).blocks == 1]
        at_once = [t for t in sums if t not in by_host]
        host = bags = None
        if rows:
            links = placement.host_links
            host = make_host_batch(placement, links, rows, _of(rows, inputs))
        if by_host:
            bags = HostBags.of(placement, by_host, _of(by_host, inputs))
        below = [_on_the_wire(placement, t) for t in rows]
        return cls(host, bags, [*below, *at_once], _of(at_once, inputs))

    def gather(self, with_numbers: bool = True) -> GatheredIds | None:
        """Sends ids to their gateways."""
        return None if self.host is None else self.host.gather(with_numbers)

    def inputs_below(self, gathered: GatheredIds | None) -> list[Input]:
        """Returns what ``row_wise`` looks up."""
        if self.host is None or gathered is None:
            return self.inputs
        return [*self.host.inputs(gathered), *self.inputs]


def _of(tables: Sequence[TableSpec], inputs: Sequence[Input]) -> list[Input]:
    names = {table.name for table in tables}
    return [one for one in inputs if one[0].table in names]


def _on_the_wire(placement: Placement, table: TableSpec) -> TableSpec:
    """Describes a table whose rows go on to another device, one for each id."""
    dtype = wire_dtype(placement, table)
    return dataclasses.replace(table, dtype=dtype, pooling=None)
