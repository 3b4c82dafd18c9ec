# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Embedding tables for JAX that grow and forget, inside ``jax.jit``."""

from jax_dynemb import checkpoint as checkpoint
from jax_dynemb import distributed as distributed
from jax_dynemb import export as export
from jax_dynemb import import_ as import_
from jax_dynemb import initializers as initializers
from jax_dynemb import nnx as nnx
from jax_dynemb import optim as optim
from jax_dynemb import testing as testing
from jax_dynemb import torchrec as torchrec
from jax_dynemb import tt as tt
from jax_dynemb._compiler_options import compiler_options as compiler_options
from jax_dynemb._errors import DamagedFileError as DamagedFileError
from jax_dynemb._hash_ids import hash_ids as hash_ids
from jax_dynemb._ids import ids as ids
from jax_dynemb._version import __version__ as __version__
from jax_dynemb.config import ScoreStrategy as ScoreStrategy
from jax_dynemb.config import TableConfig as TableConfig
from jax_dynemb.engines.mesh import Plan as Plan
from jax_dynemb.engines.mesh import ShardedResidual as ShardedResidual
from jax_dynemb.engines.mesh import TablePlan as TablePlan
from jax_dynemb.jagged import Jagged as Jagged
from jax_dynemb.nnx import TTEmbeddingBag as TTEmbeddingBag
from jax_dynemb.ops import Residual as Residual
from jax_dynemb.ops import TableState as TableState
from jax_dynemb.table import Exported as Exported
from jax_dynemb.table import RowGradients as RowGradients
from jax_dynemb.table import Tables as Tables
from jax_dynemb.tt import TTConfig as TTConfig
