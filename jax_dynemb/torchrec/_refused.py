# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Names of TorchRec that have no counterpart, and what to use instead."""

from __future__ import annotations

from typing import Any, NoReturn

from flax import nnx

_PLACE = "JAX places arrays from outside: write jax.device_put(x, device_or_sharding)."
_STREAM = "XLA orders its own streams, so arrays need no stream to be recorded on."
_PINNED = "jax.device_put copies from any host memory: leave pin_memory out."
_EXCHANGE = (
    "the exchange between devices is inside the lookup: give mesh=... to the "
    "collection."
)

ATTRIBUTES = {
    "device": _PLACE,
    "to": _PLACE,
    "cuda": _PLACE,
    "record_stream": _STREAM,
    "pin_memory": _PINNED,
    "dist_labels": _EXCHANGE,
    "dist_splits": _EXCHANGE,
    "dist_tensors": _EXCHANGE,
    "dist_init": _EXCHANGE,
    "is_caching_offsets": "offsets are computed where they are used; nothing is kept.",
}

_STATE = (
    "nnx.state(module) has all arrays, and jde.checkpoint saves tables; a TorchRec "
    "checkpoint is read by jde.torchrec.load_torch_state_dict(module, state_dict)."
)
_TABLES = (
    "rows lie in hash tables: module.coll.export(module.get_state(), table) streams "
    "them."
)
_PARAMETERS = (
    "tables have their own optimizer, see with_optimizer; nnx.state(model, nnx.Param) "
    "has the dense parameters."
)
MEMBERS = {
    "state_dict": _STATE,
    "load_state_dict": _STATE,
    "embedding_bags": _TABLES,
    "embeddings": _TABLES,
    "parameters": _PARAMETERS,
    "named_parameters": _PARAMETERS,
    "reset_parameters": "unseen ids get initial rows; a new module has no rows.",
    "forward": "call the module: module(features).",
    "device": _PLACE,
    "to": _PLACE,
    "cuda": _PLACE,
}

_NO_WRAPPER = "no wrapper shards a model: give mesh=... to the collection."
_OPTIMIZER = (
    "tables have their own optimizer, see with_optimizer; dense parameters use "
    "jde.nnx.Optimizer, and clipping jde.nnx.clip_by_global_norm."
)
_FROZEN = "jde.export.frozen(dtype=...) quantises a table and serves it."
_CAPACITY = (
    "a dynamic table remaps nothing, and its capacity takes the place of zch_size: "
    "from_managed_collision(params) gives the fields of the table."
)
_EVICTS = "a table evicts by its score_strategy."
_STALE = (
    "it reads rows before the update before it: call two pure functions in that "
    "order where stale rows are wanted."
)
_JIT = "jax.jit compiles the step, so there is no stage to build by hand."
_HASHED = "ids are hash keys of 64 bits, so nothing is pruned or pooled beside tables."
NAMES = {
    "DistributedModelParallel": _NO_WRAPPER,
    "DMPCollection": _NO_WRAPPER + " An axis left out of axis=... replicates.",
    "apply_optimizer_in_backward": "write with_optimizer(tables, {...}) instead.",
    "KeyedOptimizer": _OPTIMIZER,
    "CombinedOptimizer": _OPTIMIZER,
    "KeyedOptimizerWrapper": _OPTIMIZER,
    "WarmupOptimizer": "write warmup_schedule(stages, learning_rate) instead.",
    "GradientClippingOptimizer": _OPTIMIZER,
    "FusedEmbeddingBagCollection": "EmbeddingBagCollection is fused always.",
    "FusedEmbeddingCollection": "EmbeddingCollection is fused always.",
    "quantize_inference_model": _FROZEN,
    "shard_quant_model": _FROZEN,
    "ManagedCollisionModule": _CAPACITY,
    "ManagedCollisionCollection": _CAPACITY,
    "ManagedCollisionEmbeddingCollection": _CAPACITY,
    "ManagedCollisionEmbeddingBagCollection": _CAPACITY,
    "MCHManagedCollisionModule": _CAPACITY,
    "HashZchManagedCollisionModule": _CAPACITY,
    "LFU_EvictionPolicy": _EVICTS,
    "LRU_EvictionPolicy": _EVICTS,
    "DistanceLFU_EvictionPolicy": _EVICTS,
    "ITEPEmbeddingBagCollection": _HASHED,
    "TensorPool": _HASHED,
    "KeyedJaggedTensorPool": _HASHED,
    "EmbeddingTower": _NO_WRAPPER,
    "EmbeddingTowerCollection": _NO_WRAPPER,
    "TrainPipelineBase": "a for loop over prefetched batches is the pipeline.",
    "TrainPipelineSparseDist": "collection.route(kjt) sends a batch ahead: one jitted "
    "step looks up what was routed, and routes the next batch.",
    "TrainPipelineSemiSync": _STALE,
    "TrainPipelineFusedSparseDist": _STALE,
    "StagedTrainPipeline": _JIT,
    "TrainPipelinePT2": _JIT,
    "EvalPipelineSparseDist": _JIT,
    "ModelDeltaTracker": "jde.Tables.export(since=...) streams what changed.",
}


def refused_name(name: str) -> NoReturn:
    """Stands for ``__getattr__`` of the package.

    Raises:
      AttributeError: a name that TorchRec does not have either.
      ImportError: a refused name, so that ``from ... import`` shows the sentence.
    """
    if name in NAMES:
        raise ImportError(f"jde.torchrec.{name} is refused: {NAMES[name]}", name=name)
    raise AttributeError(f"module 'jax_dynemb.torchrec' has no attribute {name!r}")


def refused_attribute(self: Any, name: str) -> NoReturn:
    """Stands for ``__getattr__`` of a class: says what takes the place of a name.

    Raises:
      AttributeError: always.
    """
    kind = type(self).__name__
    if name in ATTRIBUTES:
        raise AttributeError(f"{kind}.{name} is refused: {ATTRIBUTES[name]}")
    raise AttributeError(f"{kind!r} object has no attribute {name!r}")


def refused_member(self: Any, name: str) -> NoReturn:
    """Stands for ``__getattr__`` of a collection, as ``refused_attribute``.

    Raises:
      AttributeError: always.
    """
    kind = type(self).__name__
    if name in MEMBERS:
        raise AttributeError(f"{kind}.{name} is refused: {MEMBERS[name]}")
    raise AttributeError(f"{kind!r} object has no attribute {name!r}")


def check_place(kind: str, device: Any, rngs: nnx.Rngs | None) -> nnx.Rngs:
    """Refuses the device of a collection, and one without a source of seeds.

    Raises:
      TypeError: there are no ``rngs``.
      ValueError: a device is given.
    """
    if device is not None:
        raise ValueError(
            f"device={device!r} is refused: tables are made on jax's default device "
            "(with jax.default_device(...)), or on the devices of mesh=..."
        )
    if rngs is None:
        raise TypeError(
            f"{kind} needs rngs, from which it draws the seed of initial rows: write "
            f"{kind}(..., rngs=nnx.Rngs(0))."
        )
    return rngs
