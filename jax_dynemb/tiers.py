# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tables that are larger than device memory: where rows lie, and what moves them."""

from jax_dynemb._src.former_names import refuse as _refuse
from jax_dynemb._src.tiers import HostTier as HostTier
from jax_dynemb._src.tiers import RowPrefetcher as RowPrefetcher
from jax_dynemb._src.tiers import StoreTier as StoreTier
from jax_dynemb._src.tiers import external as external
from jax_dynemb._src.tiers import host as host
from jax_dynemb._src.tiers import open_stores as open_stores
from jax_dynemb._src.tiers import prefetch_rows as prefetch_rows
from jax_dynemb._src.tiers import ssd as ssd

__getattr__ = _refuse("jde.tiers", {"ahead": "prefetch_rows", "Ahead": "RowPrefetcher"})
