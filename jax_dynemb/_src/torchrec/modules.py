# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""TorchRec's module paths under ``jax_dynemb.torchrec``, so that imports stay as long.

Each holds the names of the package itself. They are made when they are imported, by one
finder; it also says what takes the place of a refused name. ``__getattr__`` alone could
not: it must raise AttributeError for ``hasattr``, and an import forgets that sentence.
"""

from __future__ import annotations

import functools
import importlib
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from jax_dynemb._src.torchrec.refused_names import NAMES
from jax_dynemb._src.torchrec.regroup import PRIVATE

_PACKAGE = "jax_dynemb.torchrec"
PATHS = {
    "distributed": (
        *("comm", "embedding", "embedding_types", "embeddingbag", "fused_embedding"),
        *("fbgemm_qcomm_codec", "quant_embedding", "quant_embeddingbag"),
        *("fused_embeddingbag", "model_parallel", "model_tracker", "sharding_plan"),
        *("model_tracker.model_delta_tracker", "planner", "planner.enumerators"),
        *("planner.partitioners", "planner.planners", "planner.proposers"),
        *("planner.shard_estimators", "planner.stats", "planner.types"),
        *("planner.storage_reservations", "planner.utils", "train_pipeline"),
        *("train_pipeline.train_pipelines", "train_pipeline.utils", "types", "utils"),
    ),
    "inference": ("modules", "state_dict_transform"),
    "metrics": (
        *("auc", "auprc", "calibration", "ctr", "mae", "metric_module", "mse", "ndcg"),
        *("metrics_config", "ne", "rec_metric", "throughput"),
    ),
    "modules": (
        *("embedding_configs", "embedding_modules", "embedding_tower"),
        *("feature_processor", "feature_processor_", "fp_embedding_modules"),
        *("fused_embedding_modules", "hash_mc_evictions", "hash_mc_modules"),
        *("mc_embedding_modules", "mc_modules", "regroup"),
    ),
    "optim": (
        *("apply_optimizer_in_backward", "apply_overlapped_optimizer", "clipping"),
        *("fused", "keyed", "optimizers", "rowwise_adagrad", "warmup"),
    ),
    "quant": ("embedding_modules",),
    "sparse": ("jagged_tensor", "jagged_tensor_validator"),
    "types": (),
}
# Modules of TorchRec that are no part of this layer, and where their classes are.
_LAYERS = "write the layers in Flax; MLP and the arches of DLRM are in {}."
_BATCHES = "Batch, RandomRecDataset and the names of Criteo's columns are in {}."
_FOLDER = "examples/torchrec_dlrm of jax_dynemb's repository, a folder to copy"
ELSEWHERE = {
    "datasets": _BATCHES.format(_FOLDER),
    "models": f"DLRM, DLRMTrain and their arches are in {_FOLDER}.",
    **dict.fromkeys(
        [
            f"modules.{name}"
            for name in ("activation", "crossnet", "deepfm", "mlp", "normalization")
        ],
        _LAYERS.format(_FOLDER),
    ),
}
_ALL = {f"{top}.{path}" for top, paths in PATHS.items() for path in paths} | set(PATHS)


def member(module: str, name: str) -> Any:
    """Stands for ``__getattr__`` of the package and of the modules below it.

    Args:
      module: the full name of one of them.
      name: what is looked for.

    Raises:
      AttributeError: there is no such name; says what to use instead of a refused one.
    """
    path = f"{module.removeprefix(_PACKAGE)}.{name}".removeprefix(".")
    if path in _ALL:
        return importlib.import_module(f"{_PACKAGE}.{path}")
    if module.endswith(".jagged_tensor") and name in PRIVATE:
        return PRIVATE[name]
    package = vars(sys.modules[_PACKAGE])
    if module != _PACKAGE and name in package and not name.startswith("_"):
        return package[name]
    if name in NAMES:
        raise AttributeError(_refusal(name))
    if path in ELSEWHERE:
        raise AttributeError(_absence(path))
    raise AttributeError(f"module {module!r} has no attribute {name!r}")


def _refusal(name: str) -> str:
    return f"jde.torchrec.{name} is refused: {NAMES[name]}"


def _absence(path: str) -> str:
    return f"jde.torchrec has no module {path}: {ELSEWHERE[path]}"


class _Finder(MetaPathFinder, Loader):
    """Makes the modules; and where an import finds no such name, says what to use."""

    def find_spec(
        self, fullname: str, path: Any = None, target: Any = None
    ) -> ModuleSpec | None:
        below, _, name = fullname.rpartition(".")
        if not f"{fullname}.".startswith(f"{_PACKAGE}."):
            return None
        where = fullname.removeprefix(f"{_PACKAGE}.")
        if where in _ALL:
            return ModuleSpec(fullname, self, is_package=True)
        if where in ELSEWHERE:
            raise ModuleNotFoundError(_absence(where), name=fullname)
        if below and name in NAMES:
            raise ImportError(_refusal(name), name=fullname)
        return None

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        module.__doc__ = f"The names of {_PACKAGE}, where TorchRec has them."
        vars(module)["__getattr__"] = functools.partial(member, module.__name__)


def install() -> None:
    """Lets imports find the modules."""
    sys.meta_path.append(_Finder())
