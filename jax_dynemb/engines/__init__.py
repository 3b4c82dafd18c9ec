# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Engines hold tables and run every operation on them; ``jde.Tables`` is their face.

``local``: hash tables on one device. ``mesh``: the same, sharded over the devices of a
mesh. ``shard``: what one device does with its own arrays, which both build on.
``tensor_train``: tensor-train tables. ``mixed``: both kinds in one collection.
"""

from jax_dynemb.engines._catalog import Catalog as Catalog
from jax_dynemb.engines._engine import Engine as Engine
from jax_dynemb.engines._engine import States as States
from jax_dynemb.engines._flags import TRAINING as TRAINING
from jax_dynemb.engines._flags import LookupFlags as LookupFlags
from jax_dynemb.engines._given import Given as Given
from jax_dynemb.engines._routed import Routed as Routed
from jax_dynemb.engines._stats_future import StatsFuture as StatsFuture
