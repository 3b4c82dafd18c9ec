# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tables that are larger than device memory: where rows lie, and what moves them."""

from jax_dynemb._src.host_tier import HostTier as HostTier
from jax_dynemb._src.host_tier import host as host
from jax_dynemb._src.store_tier import StoreTier as StoreTier
from jax_dynemb._src.store_tier import external as external
from jax_dynemb._src.store_tier import ssd as ssd
from jax_dynemb._src.tiers.ahead_of_steps import ahead as ahead
from jax_dynemb._src.tiers.ahead_of_steps import ahead_of_module as ahead_of_module
from jax_dynemb._src.tiers.batches import on_device as on_device
from jax_dynemb._src.tiers.feed import Ahead as Ahead
from jax_dynemb._src.tiers.stores import open_stores as open_stores
from jax_dynemb._src.tiers.stores import tables_with_stores as tables_with_stores
