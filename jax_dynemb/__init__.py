# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Embedding tables for JAX that grow and forget, inside ``jax.jit``."""

from jax_dynemb import admission as admission
from jax_dynemb import checkpoint as checkpoint
from jax_dynemb import distributed as distributed
from jax_dynemb import export as export
from jax_dynemb import import_ as import_
from jax_dynemb import initializers as initializers
from jax_dynemb import lifecycle as lifecycle
from jax_dynemb import metrics as metrics
from jax_dynemb import nnx as nnx
from jax_dynemb import one_embedding as one_embedding
from jax_dynemb import optim as optim
from jax_dynemb import pipeline as pipeline
from jax_dynemb import serving as serving
from jax_dynemb import stores as stores
from jax_dynemb import testing as testing
from jax_dynemb import tiers as tiers
from jax_dynemb import torchrec as torchrec
from jax_dynemb import tt as tt
from jax_dynemb._src.compiler_options import compiler_options as compiler_options
from jax_dynemb._src.config import ScoreStrategy as ScoreStrategy
from jax_dynemb._src.config import TableConfig as TableConfig
from jax_dynemb._src.earlier_paths import install as _install
from jax_dynemb._src.engines import Routed as Routed
from jax_dynemb._src.engines import StatsFuture as StatsFuture
from jax_dynemb._src.engines.hash import Plan as Plan
from jax_dynemb._src.engines.hash import TablePlan as TablePlan
from jax_dynemb._src.files.integrity import DamagedFileError as DamagedFileError
from jax_dynemb._src.hash_ids import hash_ids as hash_ids
from jax_dynemb._src.ids import ids as ids
from jax_dynemb._src.ids import now as now
from jax_dynemb._src.jagged import Jagged as Jagged
from jax_dynemb._src.ops import Residual as Residual
from jax_dynemb._src.ops import TableState as TableState
from jax_dynemb._src.planner import DeviceLoad as DeviceLoad
from jax_dynemb._src.planner import EmbeddingShardingPlanner as EmbeddingShardingPlanner
from jax_dynemb._src.planner import Imbalance as Imbalance
from jax_dynemb._src.planner import ParameterConstraints as ParameterConstraints
from jax_dynemb._src.planner import PlannerError as PlannerError
from jax_dynemb._src.planner import PlannerErrorType as PlannerErrorType
from jax_dynemb._src.planner import ShardingPlan as ShardingPlan
from jax_dynemb._src.planner import StorageReservation as StorageReservation
from jax_dynemb._src.planner import TableChoice as TableChoice
from jax_dynemb._src.planner import Topology as Topology
from jax_dynemb._src.rows import Exported as Exported
from jax_dynemb._src.scores import scores as scores
from jax_dynemb._src.table import Delta as Delta
from jax_dynemb._src.table import Mark as Mark
from jax_dynemb._src.table import RowGradients as RowGradients
from jax_dynemb._src.table import Tables as Tables
from jax_dynemb._src.tt import TTConfig as TTConfig
from jax_dynemb._version import __version__ as __version__
from jax_dynemb.nnx import TTEmbeddingBag as TTEmbeddingBag

_install()
