# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Where the tables of a collection should lie on a mesh, predicted before it exists."""

from jax_dynemb._src.planner.checks import PlannerError as PlannerError
from jax_dynemb._src.planner.checks import PlannerErrorType as PlannerErrorType
from jax_dynemb._src.planner.constraints import (
    ParameterConstraints as ParameterConstraints,
)
from jax_dynemb._src.planner.constraints import ShardingType as ShardingType
from jax_dynemb._src.planner.planner import (
    EmbeddingShardingPlanner as EmbeddingShardingPlanner,
)
from jax_dynemb._src.planner.report import DeviceLoad as DeviceLoad
from jax_dynemb._src.planner.report import Imbalance as Imbalance
from jax_dynemb._src.planner.report import TableChoice as TableChoice
from jax_dynemb._src.planner.sharding_plan import ShardingPlan as ShardingPlan
from jax_dynemb._src.planner.storage import StorageReservation as StorageReservation
from jax_dynemb._src.planner.topology import Topology as Topology
