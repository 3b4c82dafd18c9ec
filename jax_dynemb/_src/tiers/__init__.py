# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tables that are larger than device memory: where rows lie, and what moves them."""

from jax_dynemb._src.host_tier import HostTier as HostTier
from jax_dynemb._src.host_tier import host as host
from jax_dynemb._src.store_tier import StoreTier as StoreTier
from jax_dynemb._src.store_tier import external as external
from jax_dynemb._src.store_tier import ssd as ssd
from jax_dynemb._src.tiers.batches import on_device as on_device
from jax_dynemb._src.tiers.prefetch_rows import prefetch_rows as prefetch_rows
from jax_dynemb._src.tiers.prefetch_rows import (
    prefetch_rows_of_module as prefetch_rows_of_module,
)
from jax_dynemb._src.tiers.row_prefetcher import RowPrefetcher as RowPrefetcher
from jax_dynemb._src.tiers.stores import open_stores as open_stores
from jax_dynemb._src.tiers.stores import tables_with_stores as tables_with_stores
