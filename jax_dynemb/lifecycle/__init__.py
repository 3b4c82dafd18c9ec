# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Decides on the host, between two steps, what happens to tables over time."""

from jax_dynemb.engines.shard import Rule as Rule
from jax_dynemb.lifecycle._grower import Grower as Grower
from jax_dynemb.lifecycle._memory import fits_in_memory as fits_in_memory
from jax_dynemb.lifecycle._time_marks import TimeMarks as TimeMarks
from jax_dynemb.lifecycle._to_store import Moved as Moved
from jax_dynemb.lifecycle._to_store import evict_to_store as evict_to_store
from jax_dynemb.lifecycle._to_store import fetch_from_store as fetch_from_store
from jax_dynemb.lifecycle._watch import GrowthWatch as GrowthWatch
from jax_dynemb.table import Growth as Growth
