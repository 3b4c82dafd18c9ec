# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""TorchRec's names over ``jde.Tables`` and ``jde.nnx``: jagged tensors, collections.

No kernel and no second kind of table: everything here is Python that turns TorchRec's
arguments into those of the core.
"""

import functools as _functools

from jax_dynemb.planner import ParameterConstraints as ParameterConstraints
from jax_dynemb.planner import PlannerError as PlannerError
from jax_dynemb.planner import PlannerErrorType as PlannerErrorType
from jax_dynemb.planner import ShardingPlan as ShardingPlan
from jax_dynemb.planner import ShardingType as ShardingType
from jax_dynemb.planner import StorageReservation as StorageReservation
from jax_dynemb.torchrec._capacity import Capacity as Capacity
from jax_dynemb.torchrec._collections import (
    EmbeddingBagCollection as EmbeddingBagCollection,
)
from jax_dynemb.torchrec._collections import EmbeddingCollection as EmbeddingCollection
from jax_dynemb.torchrec._compute import ComputeJTDictToKJT as ComputeJTDictToKJT
from jax_dynemb.torchrec._compute import ComputeKJTToJTDict as ComputeKJTToJTDict
from jax_dynemb.torchrec._config_lists import with_optimizer as with_optimizer
from jax_dynemb.torchrec._configs import DataType as DataType
from jax_dynemb.torchrec._configs import EmbeddingBagConfig as EmbeddingBagConfig
from jax_dynemb.torchrec._configs import EmbeddingConfig as EmbeddingConfig
from jax_dynemb.torchrec._configs import PoolingType as PoolingType
from jax_dynemb.torchrec._distributed import (
    DistributedModelParallel as DistributedModelParallel,
)
from jax_dynemb.torchrec._distributed import (
    TrainPipelineSparseDist as TrainPipelineSparseDist,
)
from jax_dynemb.torchrec._fused_params import from_fused_params as from_fused_params
from jax_dynemb.torchrec._jagged_tensor import JaggedTensor as JaggedTensor
from jax_dynemb.torchrec._jagged_tensor import jt_is_equal as jt_is_equal
from jax_dynemb.torchrec._keyed_jagged_tensor import (
    KeyedJaggedTensor as KeyedJaggedTensor,
)
from jax_dynemb.torchrec._keyed_tensor import KeyedTensor as KeyedTensor
from jax_dynemb.torchrec._keyed_tensor import KTRegroupAsDict as KTRegroupAsDict
from jax_dynemb.torchrec._managed_collision import (
    from_managed_collision as from_managed_collision,
)
from jax_dynemb.torchrec._modules import install as _install
from jax_dynemb.torchrec._modules import member as _member
from jax_dynemb.torchrec._planner import (
    EmbeddingShardingPlanner as EmbeddingShardingPlanner,
)
from jax_dynemb.torchrec._planner import Topology as Topology
from jax_dynemb.torchrec._position_weights import (
    FeatureProcessedEmbeddingBagCollection as FeatureProcessedEmbeddingBagCollection,
)
from jax_dynemb.torchrec._position_weights import (
    PositionWeightedModule as PositionWeightedModule,
)
from jax_dynemb.torchrec._position_weights import (
    PositionWeightedModuleCollection as PositionWeightedModuleCollection,
)
from jax_dynemb.torchrec._quantized import quantize_embeddings as quantize_embeddings
from jax_dynemb.torchrec._routes import RoutedFeatures as RoutedFeatures
from jax_dynemb.torchrec._state_dict import (
    load_torch_state_dict as load_torch_state_dict,
)
from jax_dynemb.torchrec._torch import from_torch as from_torch
from jax_dynemb.torchrec._torch import to_torch as to_torch
from jax_dynemb.torchrec._validate import kjt_is_equal as kjt_is_equal
from jax_dynemb.torchrec._validate import validate as validate
from jax_dynemb.torchrec._validate import validate as validate_keyed_jagged_tensor  # noqa: F401
from jax_dynemb.torchrec._warmup import WarmupPolicy as WarmupPolicy
from jax_dynemb.torchrec._warmup import WarmupStage as WarmupStage
from jax_dynemb.torchrec._warmup import warmup_schedule as warmup_schedule

__getattr__ = _functools.partial(_member, __name__)
_install()
