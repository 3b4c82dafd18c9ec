# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Decides on the host, between two steps, what happens to tables over time."""

from jax_dynemb._src.lifecycle import BucketStats as BucketStats
from jax_dynemb._src.lifecycle import Grower as Grower
from jax_dynemb._src.lifecycle import Growth as Growth
from jax_dynemb._src.lifecycle import GrowthWatch as GrowthWatch
from jax_dynemb._src.lifecycle import Moved as Moved
from jax_dynemb._src.lifecycle import Rule as Rule
from jax_dynemb._src.lifecycle import TimeMarks as TimeMarks
from jax_dynemb._src.lifecycle import evict_to_store as evict_to_store
from jax_dynemb._src.lifecycle import fetch_from_store as fetch_from_store
from jax_dynemb._src.lifecycle import fits_in_memory as fits_in_memory
