# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Exchanges ids, rows, sums of bags and gradients between the devices of a mesh."""

from jax_dynemb.engines.mesh.exchange._bag_parts import found_parts as found_parts
from jax_dynemb.engines.mesh.exchange._bag_parts import gradient_parts as gradient_parts
from jax_dynemb.engines.mesh.exchange._bag_parts import (
    gradients_of_owner as gradients_of_owner,
)
from jax_dynemb.engines.mesh.exchange._bag_parts import (
    inputs_of_owner as inputs_of_owner,
)
from jax_dynemb.engines.mesh.exchange._bag_parts import (
    local_found_flags as local_found_flags,
)
from jax_dynemb.engines.mesh.exchange._bag_parts import outputs as outputs
from jax_dynemb.engines.mesh.exchange._bag_parts import (
    parts_to_owners as parts_to_owners,
)
from jax_dynemb.engines.mesh.exchange._bag_parts import (
    residuals_of_owner as residuals_of_owner,
)
from jax_dynemb.engines.mesh.exchange._bags import Bags as Bags
from jax_dynemb.engines.mesh.exchange._bags import make_bags as make_bags
from jax_dynemb.engines.mesh.exchange._buffers import BufferField as BufferField
from jax_dynemb.engines.mesh.exchange._buffers import ExchangeBuffers as ExchangeBuffers
from jax_dynemb.engines.mesh.exchange._cost import Cost as Cost
from jax_dynemb.engines.mesh.exchange._cost import cost_of as cost_of
from jax_dynemb.engines.mesh.exchange._cost import itemsize as itemsize
from jax_dynemb.engines.mesh.exchange._device_batch import Batch as Batch
from jax_dynemb.engines.mesh.exchange._device_batch import Input as Input
from jax_dynemb.engines.mesh.exchange._device_batch import add_rows as add_rows
from jax_dynemb.engines.mesh.exchange._device_batch import finished as finished
from jax_dynemb.engines.mesh.exchange._device_batch import in_order as in_order
from jax_dynemb.engines.mesh.exchange._device_batch import make_batch as make_batch
from jax_dynemb.engines.mesh.exchange._device_batch import mean_scale as mean_scale
from jax_dynemb.engines.mesh.exchange._device_batch import zero_sums as zero_sums
from jax_dynemb.engines.mesh.exchange._rounds import fitting as fitting
from jax_dynemb.engines.mesh.exchange._rounds import further_rounds as further_rounds
from jax_dynemb.engines.mesh.exchange._rounds import inputs_of_ids as inputs_of_ids
from jax_dynemb.engines.mesh.exchange._rounds import on_the_wire as on_the_wire
from jax_dynemb.engines.mesh.exchange._rounds import send_first as send_first
from jax_dynemb.engines.mesh.exchange._rounds import whole_window as whole_window
from jax_dynemb.engines.mesh.exchange._route import Route as Route
from jax_dynemb.engines.mesh.exchange._route import route as route
from jax_dynemb.engines.mesh.exchange._send_ids import Window as Window
from jax_dynemb.engines.mesh.exchange._send_ids import capacity_of as capacity_of
from jax_dynemb.engines.mesh.exchange._send_ids import (
    exchange_arrays as exchange_arrays,
)
from jax_dynemb.engines.mesh.exchange._send_ids import places_of as places_of
from jax_dynemb.engines.mesh.exchange._send_ids import send_ids as send_ids
from jax_dynemb.engines.mesh.exchange._send_ids import (
    send_ids_and_uses as send_ids_and_uses,
)
from jax_dynemb.engines.mesh.exchange._send_ids import wire_of as wire_of
