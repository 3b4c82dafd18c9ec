# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Hash tables on a mesh: which device owns a row, and how ids and rows travel."""

from jax_dynemb.engines.mesh._batch import MeshBatch as MeshBatch
from jax_dynemb.engines.mesh._batch import padded_gradient as padded_gradient
from jax_dynemb.engines.mesh._columns import join_columns as join_columns
from jax_dynemb.engines.mesh._engine import MeshEngine as MeshEngine
from jax_dynemb.engines.mesh._inputs import global_numbers as global_numbers
from jax_dynemb.engines.mesh._placement import Placement as Placement
from jax_dynemb.engines.mesh._placement import make_placement as make_placement
from jax_dynemb.engines.mesh._plan import Plan as Plan
from jax_dynemb.engines.mesh._plan import TablePlan as TablePlan
from jax_dynemb.engines.mesh._plan import bytes_of as bytes_of
from jax_dynemb.engines.mesh._plan import exchange_of as exchange_of
from jax_dynemb.engines.mesh._plan import make_plan as make_plan
from jax_dynemb.engines.mesh._residual import ShardedResidual as ShardedResidual
from jax_dynemb.engines.mesh._stacks import Stack as Stack
from jax_dynemb.engines.mesh._stacks import by_shape as by_shape
from jax_dynemb.engines.mesh._stacks import cut_into_blocks as cut_into_blocks
