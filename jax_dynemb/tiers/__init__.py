# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Declares where the rows of a table lie that is larger than device memory."""

from jax_dynemb.tiers._host import HostTier as HostTier
from jax_dynemb.tiers._host import cached_host_mem as cached_host_mem
from jax_dynemb.tiers._host import device_only as device_only
from jax_dynemb.tiers._host import host as host
