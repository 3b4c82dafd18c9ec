# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tables that are larger than device memory: where rows lie, and what moves them."""

from jax_dynemb._src.tiers import Ahead as Ahead
from jax_dynemb._src.tiers import HostTier as HostTier
from jax_dynemb._src.tiers import StoreTier as StoreTier
from jax_dynemb._src.tiers import ahead as ahead
from jax_dynemb._src.tiers import external as external
from jax_dynemb._src.tiers import host as host
from jax_dynemb._src.tiers import open_stores as open_stores
from jax_dynemb._src.tiers import ssd as ssd
