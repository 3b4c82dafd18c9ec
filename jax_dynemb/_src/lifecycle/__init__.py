# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Decides on the host, between two steps, what happens to tables over time."""

from jax_dynemb._src.engines.shard import BucketStats as BucketStats
from jax_dynemb._src.engines.shard import Rule as Rule
from jax_dynemb._src.lifecycle.grower import Grower as Grower
from jax_dynemb._src.lifecycle.memory import fits_in_memory as fits_in_memory
from jax_dynemb._src.lifecycle.time_marks import TimeMarks as TimeMarks
from jax_dynemb._src.lifecycle.to_store import Moved as Moved
from jax_dynemb._src.lifecycle.to_store import evict_to_store as evict_to_store
from jax_dynemb._src.lifecycle.to_store import fetch_from_store as fetch_from_store
from jax_dynemb._src.lifecycle.watch import GrowthWatch as GrowthWatch
from jax_dynemb._src.table import Growth as Growth
