# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Exchanges ids, rows, sums of bags and gradients between the devices of a mesh."""

from jax_dynemb._src.engines.hash.exchange.arrived_rows import Owned as Owned
from jax_dynemb._src.engines.hash.exchange.arrived_rows import (
    exchange_rows as exchange_rows,
)
from jax_dynemb._src.engines.hash.exchange.arrived_rows import (
    pooling_of_rows as pooling_of_rows,
)
from jax_dynemb._src.engines.hash.exchange.arrived_rows import rows_here as rows_here
from jax_dynemb._src.engines.hash.exchange.buffers import BufferField as BufferField
from jax_dynemb._src.engines.hash.exchange.buffers import (
    ExchangeBuffers as ExchangeBuffers,
)
from jax_dynemb._src.engines.hash.exchange.cost import Cost as Cost
from jax_dynemb._src.engines.hash.exchange.cost import cost_of as cost_of
from jax_dynemb._src.engines.hash.exchange.cost import itemsize as itemsize
from jax_dynemb._src.engines.hash.exchange.device_batch import (
    DeviceBatch as DeviceBatch,
)
from jax_dynemb._src.engines.hash.exchange.device_batch import Input as Input
from jax_dynemb._src.engines.hash.exchange.device_batch import (
    finalize_pooling as finalize_pooling,
)
from jax_dynemb._src.engines.hash.exchange.device_batch import in_order as in_order
from jax_dynemb._src.engines.hash.exchange.device_batch import make_batch as make_batch
from jax_dynemb._src.engines.hash.exchange.device_batch import mean_scale as mean_scale
from jax_dynemb._src.engines.hash.exchange.device_batch import wire_dtype as wire_dtype
from jax_dynemb._src.engines.hash.exchange.exchange_layout import (
    ExchangeLayout as ExchangeLayout,
)
from jax_dynemb._src.engines.hash.exchange.exchange_layout import (
    capacity_of as capacity_of,
)
from jax_dynemb._src.engines.hash.exchange.exchange_layout import wire_of as wire_of
from jax_dynemb._src.engines.hash.exchange.id_places import places_of as places_of
from jax_dynemb._src.engines.hash.exchange.id_places import tables_of as tables_of
from jax_dynemb._src.engines.hash.exchange.places import Places as Places
from jax_dynemb._src.engines.hash.exchange.places import RoundRange as RoundRange
from jax_dynemb._src.engines.hash.exchange.places import live_sums as live_sums
from jax_dynemb._src.engines.hash.exchange.pooled_batch import (
    PooledBatch as PooledBatch,
)
from jax_dynemb._src.engines.hash.exchange.pooled_batch import (
    PooledFeature as PooledFeature,
)
from jax_dynemb._src.engines.hash.exchange.pooled_batch import (
    links_of_sums as links_of_sums,
)
from jax_dynemb._src.engines.hash.exchange.pooled_batch import (
    make_pooled_batch as make_pooled_batch,
)
from jax_dynemb._src.engines.hash.exchange.pooled_exchange import (
    bags_to_owners as bags_to_owners,
)
from jax_dynemb._src.engines.hash.exchange.pooled_exchange import (
    end_to_end as end_to_end,
)
from jax_dynemb._src.engines.hash.exchange.pooled_exchange import (
    exchange_gradients as exchange_gradients,
)
from jax_dynemb._src.engines.hash.exchange.pooled_exchange import (
    find_sums as find_sums,
)
from jax_dynemb._src.engines.hash.exchange.pooled_exchange import (
    found_parts as found_parts,
)
from jax_dynemb._src.engines.hash.exchange.pooled_exchange import (
    local_found_flags as local_found_flags,
)
from jax_dynemb._src.engines.hash.exchange.pooled_exchange import (
    lookup_sums as lookup_sums,
)
from jax_dynemb._src.engines.hash.exchange.pooled_exchange import (
    owner_gradients as owner_gradients,
)
from jax_dynemb._src.engines.hash.exchange.pooled_exchange import (
    owner_inputs as owner_inputs,
)
from jax_dynemb._src.engines.hash.exchange.pooled_exchange import (
    owner_residuals as owner_residuals,
)
from jax_dynemb._src.engines.hash.exchange.pooled_exchange import (
    parts_to_owners as parts_to_owners,
)
from jax_dynemb._src.engines.hash.exchange.pooled_exchange import (
    pooled_outputs as pooled_outputs,
)
from jax_dynemb._src.engines.hash.exchange.rounds import FirstRound as FirstRound
from jax_dynemb._src.engines.hash.exchange.rounds import first_begin as first_begin
from jax_dynemb._src.engines.hash.exchange.rounds import fitting as fitting
from jax_dynemb._src.engines.hash.exchange.rounds import (
    further_rounds as further_rounds,
)
from jax_dynemb._src.engines.hash.exchange.rounds import inputs_of_ids as inputs_of_ids
from jax_dynemb._src.engines.hash.exchange.rounds import kept_if as kept_if
from jax_dynemb._src.engines.hash.exchange.rounds import on_the_wire as on_the_wire
from jax_dynemb._src.engines.hash.exchange.rounds import route_of as route_of
from jax_dynemb._src.engines.hash.exchange.rounds import send_first as send_first
from jax_dynemb._src.engines.hash.exchange.rounds import whole_range as whole_range
from jax_dynemb._src.engines.hash.exchange.route import Route as Route
from jax_dynemb._src.engines.hash.exchange.route import route as route
from jax_dynemb._src.engines.hash.exchange.send_ids import IdNumbers as IdNumbers
from jax_dynemb._src.engines.hash.exchange.send_ids import (
    ids_and_uses_here as ids_and_uses_here,
)
from jax_dynemb._src.engines.hash.exchange.send_ids import (
    saturating_sums as saturating_sums,
)
from jax_dynemb._src.engines.hash.exchange.send_ids import send_ids as send_ids
from jax_dynemb._src.engines.hash.exchange.send_ids import (
    send_ids_and_slots as send_ids_and_slots,
)
from jax_dynemb._src.engines.hash.exchange.send_ids import (
    send_ids_and_uses as send_ids_and_uses,
)
