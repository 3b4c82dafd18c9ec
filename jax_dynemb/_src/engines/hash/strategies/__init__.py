# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The strategies: what travels between the devices that hold a table.

A step of several tables runs once for each strategy that they have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from jax_dynemb._src.engines.hash.exchange import Input
from jax_dynemb._src.engines.hash.layouts import Layout
from jax_dynemb._src.engines.hash.strategies import column_wise as _column_wise
from jax_dynemb._src.engines.hash.strategies import local as _local
from jax_dynemb._src.engines.hash.strategies import replicated as _replicated
from jax_dynemb._src.engines.hash.strategies import row_wise
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
    return _STRATEGIES[placement.stack(table.name).sharding]


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
            yield name, strategy, mine, [x for x in inputs if x[0].table in names]
