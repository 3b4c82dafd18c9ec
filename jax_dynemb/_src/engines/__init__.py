# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Engines hold tables and run every operation on them; ``jde.Tables`` is their face.

``hash``: hash tables, on one device or sharded over a mesh. ``shard``: what one device
does with its own arrays. ``tensor_train``: tensor-train tables.
"""

from jax_dynemb._src.engines.catalog import Catalog as Catalog
from jax_dynemb._src.engines.engine import LookupEngine as LookupEngine
from jax_dynemb._src.engines.engine import States as States
from jax_dynemb._src.engines.flags import TOUCHING as TOUCHING
from jax_dynemb._src.engines.flags import TRAINING as TRAINING
from jax_dynemb._src.engines.flags import LookupFlags as LookupFlags
from jax_dynemb._src.engines.routed import Routed as Routed
from jax_dynemb._src.engines.score_inputs import ScoreInputs as ScoreInputs
from jax_dynemb._src.engines.stats_future import StatsFuture as StatsFuture
