# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""TorchRec's names over ``jde.Tables`` and ``jde.nnx``: jagged tensors, collections.

No kernel and no second kind of table: everything here is Python that turns TorchRec's
arguments into those of the core.
"""

from jax_dynemb._src.planner import ParameterConstraints as ParameterConstraints
from jax_dynemb._src.planner import PlannerError as PlannerError
from jax_dynemb._src.planner import PlannerErrorType as PlannerErrorType
from jax_dynemb._src.planner import ShardingPlan as ShardingPlan
from jax_dynemb._src.planner import ShardingType as ShardingType
from jax_dynemb._src.planner import StorageReservation as StorageReservation
from jax_dynemb._src.torchrec.capacity import Capacity as Capacity
from jax_dynemb._src.torchrec.collections import (
    EmbeddingBagCollection as EmbeddingBagCollection,
)
from jax_dynemb._src.torchrec.collections import (
    EmbeddingCollection as EmbeddingCollection,
)
from jax_dynemb._src.torchrec.compute import ComputeJTDictToKJT as ComputeJTDictToKJT
from jax_dynemb._src.torchrec.compute import ComputeKJTToJTDict as ComputeKJTToJTDict
from jax_dynemb._src.torchrec.config_lists import with_optimizer as with_optimizer
from jax_dynemb._src.torchrec.configs import DataType as DataType
from jax_dynemb._src.torchrec.configs import EmbeddingBagConfig as EmbeddingBagConfig
from jax_dynemb._src.torchrec.configs import EmbeddingConfig as EmbeddingConfig
from jax_dynemb._src.torchrec.configs import PoolingType as PoolingType
from jax_dynemb._src.torchrec.data_types import data_type_to_dtype as data_type_to_dtype
from jax_dynemb._src.torchrec.data_types import dtype_to_data_type as dtype_to_data_type
from jax_dynemb._src.torchrec.distributed import (
    DistributedModelParallel as DistributedModelParallel,
)
from jax_dynemb._src.torchrec.distributed import (
    TrainPipelineSparseDist as TrainPipelineSparseDist,
)
from jax_dynemb._src.torchrec.fbgemm_tables import (
    tables_from_fbgemm as tables_from_fbgemm,
)
from jax_dynemb._src.torchrec.fused_params import from_fused_params as from_fused_params
from jax_dynemb._src.torchrec.jagged_tensor import JaggedTensor as JaggedTensor
from jax_dynemb._src.torchrec.jagged_tensor import jt_is_equal as jt_is_equal
from jax_dynemb._src.torchrec.keyed_jagged_tensor import (
    KeyedJaggedTensor as KeyedJaggedTensor,
)
from jax_dynemb._src.torchrec.keyed_tensor import KeyedTensor as KeyedTensor
from jax_dynemb._src.torchrec.keyed_tensor import KTRegroupAsDict as KTRegroupAsDict
from jax_dynemb._src.torchrec.managed_collision import (
    from_managed_collision as from_managed_collision,
)
from jax_dynemb._src.torchrec.planner import (
    EmbeddingShardingPlanner as EmbeddingShardingPlanner,
)
from jax_dynemb._src.torchrec.planner import Topology as Topology
from jax_dynemb._src.torchrec.position_weights import (
    FeatureProcessedEmbeddingBagCollection as FeatureProcessedEmbeddingBagCollection,
)
from jax_dynemb._src.torchrec.position_weights import (
    PositionWeightedModule as PositionWeightedModule,
)
from jax_dynemb._src.torchrec.position_weights import (
    PositionWeightedModuleCollection as PositionWeightedModuleCollection,
)
from jax_dynemb._src.torchrec.quantized import (
    quantize_embeddings as quantize_embeddings,
)
from jax_dynemb._src.torchrec.regroup import (
    permute_multi_embedding as permute_multi_embedding,
)
from jax_dynemb._src.torchrec.regroup import regroup_kts as regroup_kts
from jax_dynemb._src.torchrec.routes import RoutedFeatures as RoutedFeatures
from jax_dynemb._src.torchrec.state_dict import (
    load_torch_state_dict as load_torch_state_dict,
)
from jax_dynemb._src.torchrec.state_dict import (
    to_torch_state_dict as to_torch_state_dict,
)
from jax_dynemb._src.torchrec.torch_tensors import from_torch as from_torch
from jax_dynemb._src.torchrec.torch_tensors import to_torch as to_torch
from jax_dynemb._src.torchrec.validate import check_bounds as check_bounds
from jax_dynemb._src.torchrec.validate import kjt_is_equal as kjt_is_equal
from jax_dynemb._src.torchrec.validate import validate as validate
from jax_dynemb._src.torchrec.validate import validate as validate_keyed_jagged_tensor  # noqa: F401
from jax_dynemb._src.torchrec.warmup import WarmupPolicy as WarmupPolicy
from jax_dynemb._src.torchrec.warmup import WarmupStage as WarmupStage
from jax_dynemb._src.torchrec.warmup import warmup_schedule as warmup_schedule
