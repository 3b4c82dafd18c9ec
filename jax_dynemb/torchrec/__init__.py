# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""TorchRec's names over ``jde.Tables`` and ``jde.nnx``: jagged tensors, collections.

No kernel and no second kind of table: everything here is Python that turns TorchRec's
arguments into those of the core.
"""

import functools as _functools

from jax_dynemb._src.torchrec import Capacity as Capacity
from jax_dynemb._src.torchrec import ComputeJTDictToKJT as ComputeJTDictToKJT
from jax_dynemb._src.torchrec import ComputeKJTToJTDict as ComputeKJTToJTDict
from jax_dynemb._src.torchrec import DataType as DataType
from jax_dynemb._src.torchrec import (
    DistributedModelParallel as DistributedModelParallel,
)
from jax_dynemb._src.torchrec import EmbeddingBagCollection as EmbeddingBagCollection
from jax_dynemb._src.torchrec import EmbeddingBagConfig as EmbeddingBagConfig
from jax_dynemb._src.torchrec import EmbeddingCollection as EmbeddingCollection
from jax_dynemb._src.torchrec import EmbeddingConfig as EmbeddingConfig
from jax_dynemb._src.torchrec import (
    EmbeddingShardingPlanner as EmbeddingShardingPlanner,
)
from jax_dynemb._src.torchrec import (
    FeatureProcessedEmbeddingBagCollection as FeatureProcessedEmbeddingBagCollection,
)
from jax_dynemb._src.torchrec import JaggedTensor as JaggedTensor
from jax_dynemb._src.torchrec import KeyedJaggedTensor as KeyedJaggedTensor
from jax_dynemb._src.torchrec import KeyedTensor as KeyedTensor
from jax_dynemb._src.torchrec import KTRegroupAsDict as KTRegroupAsDict
from jax_dynemb._src.torchrec import ParameterConstraints as ParameterConstraints
from jax_dynemb._src.torchrec import PlannerError as PlannerError
from jax_dynemb._src.torchrec import PlannerErrorType as PlannerErrorType
from jax_dynemb._src.torchrec import PoolingType as PoolingType
from jax_dynemb._src.torchrec import PositionWeightedModule as PositionWeightedModule
from jax_dynemb._src.torchrec import (
    PositionWeightedModuleCollection as PositionWeightedModuleCollection,
)
from jax_dynemb._src.torchrec import RoutedFeatures as RoutedFeatures
from jax_dynemb._src.torchrec import ShardingPlan as ShardingPlan
from jax_dynemb._src.torchrec import ShardingType as ShardingType
from jax_dynemb._src.torchrec import StorageReservation as StorageReservation
from jax_dynemb._src.torchrec import Topology as Topology
from jax_dynemb._src.torchrec import TrainPipelineSparseDist as TrainPipelineSparseDist
from jax_dynemb._src.torchrec import WarmupPolicy as WarmupPolicy
from jax_dynemb._src.torchrec import WarmupStage as WarmupStage
from jax_dynemb._src.torchrec import check_bounds as check_bounds
from jax_dynemb._src.torchrec import data_type_to_dtype as data_type_to_dtype
from jax_dynemb._src.torchrec import dtype_to_data_type as dtype_to_data_type
from jax_dynemb._src.torchrec import from_fused_params as from_fused_params
from jax_dynemb._src.torchrec import from_managed_collision as from_managed_collision
from jax_dynemb._src.torchrec import from_torch as from_torch
from jax_dynemb._src.torchrec import jt_is_equal as jt_is_equal
from jax_dynemb._src.torchrec import kjt_is_equal as kjt_is_equal
from jax_dynemb._src.torchrec import load_torch_state_dict as load_torch_state_dict
from jax_dynemb._src.torchrec import (
    permute_multi_embedding as permute_multi_embedding,
)
from jax_dynemb._src.torchrec import quantize_embeddings as quantize_embeddings
from jax_dynemb._src.torchrec import regroup_kts as regroup_kts
from jax_dynemb._src.torchrec import tables_from_fbgemm as tables_from_fbgemm
from jax_dynemb._src.torchrec import to_torch as to_torch
from jax_dynemb._src.torchrec import to_torch_state_dict as to_torch_state_dict
from jax_dynemb._src.torchrec import validate as validate
from jax_dynemb._src.torchrec import (
    validate_keyed_jagged_tensor as validate_keyed_jagged_tensor,
)
from jax_dynemb._src.torchrec import warmup_schedule as warmup_schedule
from jax_dynemb._src.torchrec import with_optimizer as with_optimizer
from jax_dynemb._src.torchrec.modules import install as _install
from jax_dynemb._src.torchrec.modules import member as _member

__getattr__ = _functools.partial(_member, __name__)
_install()
