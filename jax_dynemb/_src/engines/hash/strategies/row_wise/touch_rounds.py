# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Uses of rows of split tables: ids travel to their owners, and nothing comes back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import jax

from jax_dynemb._src import ops
from jax_dynemb._src.engines.hash.exchange import (
    DeviceBatch,
    ExchangeLayout,
    RoundRange,
    further_rounds,
    inputs_of_ids,
    kept_if,
    route,
    send_first,
    send_ids_and_uses,
)
from jax_dynemb._src.engines.hash.strategies.row_wise.lookup_rounds import (
    joined_uses,
    scores_of,
)
from jax_dynemb._src.engines.hash.strategies.row_wise.round_counters import same_lookup
from jax_dynemb._src.engines.hash.strategies.row_wise.sent_ids import numbers_of
from jax_dynemb._src.ops import TableState, slots_only
from jax_dynemb._src.spec import TableSpec

States = Mapping[str, TableState]


def touch(
    batch: DeviceBatch, states: States, scores: Mapping[str, jax.Array]
) -> dict[str, TableState]:
    """Gives the rows of a batch the score of a use now.

    Args:
      batch: the ids; those that are not stored are passed over.
      states: of this device.
      scores: by table, what customized scores are.
    """
    exchange, tables = batch.exchange, batch.exchange.tables
    id_route = route(batch.ids, exchange.parts, exchange.segments)
    numbers = numbers_of(batch)
    first = send_first(batch, id_route, numbers)
    ids, uses = kept_if(first.fits, exchange, first.ids, first.uses)
    new = _touched(exchange, tables, ids, uses, states, scores)

    def one(round_range: RoundRange, states: States) -> dict[str, TableState]:
        received, uses, _ = send_ids_and_uses(
            exchange, id_route, batch.ids, round_range, numbers
        )
        again, before = same_lookup(tables, states)
        ids = exchange.of_tables(received)
        return _touched(exchange, again, ids, uses, before, scores)

    return further_rounds(batch, id_route, first.fits, new, one)[1]


def _touched(
    exchange: ExchangeLayout,
    tables: Sequence[TableSpec],
    ids: jax.Array,
    uses: Mapping[int, jax.Array],
    states: States,
    scores: Mapping[str, jax.Array],
) -> dict[str, TableState]:
    own_uses = joined_uses(tables, uses, scores)
    asked = inputs_of_ids(exchange, tables, ids, own_uses)
    keys = [slots_only(*one) for one in asked]
    _, new, _ = ops.lookup(tables, states, keys, scores_of(scores, tables))
    return {**states, **new}
