# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Names are found where TorchRec has them; refused ones say what to use."""

import importlib
import os
import subprocess
import sys

import pytest

import jax_dynemb as jde
from jax_dynemb._src.torchrec.modules import _ALL as PATHS
from jax_dynemb._src.torchrec.refused_names import NAMES

T = jde.torchrec
# Import lines of TorchRec's examples and of its own tests.
LINES = {
    "distributed": ["DistributedModelParallel", "TrainPipelineSparseDist"],
    "distributed.model_parallel": ["DistributedModelParallel"],
    "distributed.planner": [
        "EmbeddingShardingPlanner",
        "ParameterConstraints",
        "Topology",
    ],
    "distributed.planner.types": ["ParameterConstraints", "PlannerError"],
    "distributed.types": ["ShardingPlan", "ShardingType"],
    "inference.modules": ["quantize_embeddings"],
    "modules.embedding_configs": [
        "DataType",
        "EmbeddingBagConfig",
        "EmbeddingConfig",
        "PoolingType",
    ],
    "modules.embedding_modules": ["EmbeddingBagCollection", "EmbeddingCollection"],
    "modules.feature_processor_": [
        "PositionWeightedModule",
        "PositionWeightedModuleCollection",
    ],
    "modules.fp_embedding_modules": ["FeatureProcessedEmbeddingBagCollection"],
    "modules.regroup": ["KTRegroupAsDict"],
    "optim.warmup": ["WarmupPolicy", "WarmupStage"],
    "sparse.jagged_tensor": [
        "JaggedTensor",
        "KeyedJaggedTensor",
        "KeyedTensor",
        "jt_is_equal",
        "kjt_is_equal",
    ],
    "sparse.jagged_tensor_validator": ["validate_keyed_jagged_tensor"],
    "types": ["DataType"],
}


@pytest.mark.parametrize("path", LINES)
def test_names_of_a_module_are_those_of_the_package(path):
    module = importlib.import_module(f"jax_dynemb.torchrec.{path}")
    for name in LINES[path]:
        scope = {}
        exec(f"from {module.__name__} import {name} as found", scope)
        assert scope["found"] is getattr(T, name)
    assert not hasattr(module, "no_such_name") and not hasattr(module, "_join")


def test_modules_are_attributes_without_an_import_of_their_own():
    code = (
        "import jax_dynemb.torchrec as torchrec\n"
        "assert torchrec.sparse.jagged_tensor.JaggedTensor is torchrec.JaggedTensor\n"
        "assert torchrec.distributed.planner.planners.Topology is torchrec.Topology\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-P", "-c", code]
    subprocess.run(command, check=True, env=environment)


def test_what_torchrec_does_not_have_is_not_there():
    with pytest.raises(ImportError, match="cannot import name 'Nothing'"):
        exec("from jax_dynemb.torchrec.sparse import Nothing")
    for path in ("sparse.no_module", "no_module", "sparse.jagged_tensor.deeper"):
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(f"jax_dynemb.torchrec.{path}")


@pytest.mark.parametrize("name", sorted(NAMES))
def test_refused_names_say_what_to_use(name):
    assert not hasattr(T, name) and not hasattr(T.sparse, name)
    with pytest.raises(AttributeError, match="is refused: .{20}"):
        getattr(T, name)
    for path in ("", ".distributed"):
        with pytest.raises(ImportError, match="is refused: .{20}"):
            exec(f"from jax_dynemb.torchrec{path} import {name}")


@pytest.mark.parametrize(
    "line",
    [
        "from jax_dynemb.torchrec.datasets.criteo import DEFAULT_CAT_NAMES",
        "from jax_dynemb.torchrec.datasets.random import RandomRecDataset",
        "from jax_dynemb.torchrec.models.dlrm import DLRM, DLRMTrain",
        "from jax_dynemb.torchrec.modules.mlp import MLP",
        "import jax_dynemb.torchrec.modules.crossnet",
    ],
)
def test_modules_of_the_example_package_say_where_it_is(line):
    with pytest.raises(ModuleNotFoundError, match="examples/torchrec_dlrm"):
        exec(line)
    assert not hasattr(T, "datasets") and not hasattr(T.modules, "mlp")


def test_every_path_is_a_module():
    for path in sorted(PATHS):
        assert importlib.import_module(f"jax_dynemb.torchrec.{path}").__doc__
