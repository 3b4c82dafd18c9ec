# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The strategies: what travels between the devices that hold a table.

A step of several tables runs once for each strategy that they have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jax_dynemb._src.engines.hash.exchange import Input
from jax_dynemb._src.engines.hash.layouts import Layout, Placement
from jax_dynemb._src.engines.hash.strategies import by_host as _by_host
from jax_dynemb._src.engines.hash.strategies import column_wise as _column_wise
from jax_dynemb._src.engines.hash.strategies import local as _local
from jax_dynemb._src.engines.hash.strategies import replicated as _replicated
from jax_dynemb._src.engines.hash.strategies import row_wise
from jax_dynemb._src.engines.hash.strategies.by_host.host_residual import HostResidual
from jax_dynemb._src.engines.hash.strategies.strategy import ByFeature as ByFeature
from jax_dynemb._src.engines.hash.strategies.strategy import FindResult as FindResult
from jax_dynemb._src.engines.hash.strategies.strategy import (
    LookupGradients as LookupGradients,
)
from jax_dynemb._src.engines.hash.strategies.strategy import (
    LookupResult as LookupResult,
)
from jax_dynemb._src.engines.hash.strategies.strategy import Strategy as Strategy
from jax_dynemb._src.engines.hash.strategies.strategy import Update as Update
from jax_dynemb._src.spec import TableSpec

# Row-wise ones come last: on a GPU the host may wait for the number of their rounds.
_STRATEGIES: Mapping[str, Strategy] = {
    "local": _local,
    "replicated": _replicated,
    "column_wise": _column_wise,
    "row_wise": row_wise,
}


def strategy_of(placement: Layout, table: TableSpec) -> Strategy:
    """Returns the strategy of a table, as a shard sees it."""
    name = placement.stack(table.name).sharding
    return _STRATEGIES[name] if name != "row_wise" else _of_split_tables(placement)


def _of_split_tables(placement: Layout) -> Strategy:
    """Returns the strategy of row-wise tables, on one host or several."""
    has_hosts = isinstance(placement, Placement) and placement.has_hosts
    return _by_host if has_hosts else row_wise


def check_kept(placement: Layout, kept: Any) -> None:
    """Refuses a residual of a lookup with another number of devices on each host.

    Raises:
      ValueError: the lookup is of ``Tables`` with another ``devices_per_host``.
    """
    if not isinstance(kept, HostResidual):
        return
    mine = placement.hosts.devices if isinstance(placement, Placement) else 1
    if kept.devices != mine:
        raise ValueError(
            f"The residual is of a lookup with {kept.devices} devices per host, and "
            f"these tables have {mine}. Give both calls the same Tables, or make these "
            f"with devices_per_host={kept.devices}."
        )


def by_strategy(
    placement: Layout, tables: Sequence[TableSpec], inputs: Sequence[Input] = ()
) -> Iterator[tuple[str, Strategy, list[TableSpec], list[Input]]]:
    """Groups the tables of a call and their features.

    Yields the name of a strategy, it, the tables that have it, and their features.
    """
    for name, strategy in _STRATEGIES.items():
        mine = [t for t in tables if placement.stack(t.name).sharding == name]
        names = {table.name for table in mine}
        if mine:
            if name == "row_wise":
                strategy = _of_split_tables(placement)
            yield name, strategy, mine, [x for x in inputs if x[0].table in names]
